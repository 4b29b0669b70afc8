"""Strangers' own models in repositories of their own, through nothing but the public face, with the wheel installed."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.unit.shared import ALONE, ONE_PAIR, finish, git, needs
from tests.unit.suites import FAST

REPOSITORY = Path(__file__).with_name("repository")
QUICK = ("-v", *ALONE, *FAST, "--benchmark-max-time=0.05")


class Repository:
    """A git repository outside the checkout, and commands run in it."""

    def __init__(self, folder, installed):
        self.folder = folder
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        self._environment = {**kept, "PYTHONPATH": str(installed)}
        shutil.copytree(REPOSITORY, folder, ignore=shutil.ignore_patterns("__pycache__"))
        (folder / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
        (folder / ".gitignore").write_text(".benchmarks/\n__pycache__/\n")
        for arguments in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "--message", "Begin"]):
            git(folder, *arguments)

    def run(self, *arguments):
        """Exit code and all that a module's command wrote."""
        done = finish(sys.executable, "-P", "-m", *arguments, cwd=self.folder, env=self._environment)
        return done.returncode, done.stdout + done.stderr

    def edit(self, name, old, new):
        path = self.folder / name
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))


@pytest.fixture
def repository(tmp_path, installed):
    return Repository(tmp_path / "repository", installed)


def rows(output, model):
    """The rows of a model in the table of lanes, in columns."""
    _, _, table = output.rpartition("throughput/s")
    return [line.split() for line in table.splitlines() if line.startswith(f"{model} ")]


@pytest.mark.slow
def test_a_language_model_is_proved_measured_and_reported(repository):
    code, output = repository.run("fwbench", "prove", "tiny-gpt")
    assert (code, "tiny-gpt: jax computes the same as torch" in output) == (0, True), output
    measure = ("pytest", "benchmarks/test_gpt.py", "--benchmark-only", "--benchmark-autosave", "--benchmark-save-data")
    code, output = repository.run(*measure, "-k", "speed and length16", *QUICK)
    assert code == 0, output
    found = rows(output, "tiny-gpt")
    assert [(row[1], row[3], row[4]) for row in found] == [
        (mode, "16", lane) for mode in ("inference", "train_step") for lane in ("torch", "jax")
    ]
    # A ratio, whatever other load makes of it, and its evidence. The baseline's own row has none.
    assert [row[-1] for row in found if row[4] == "jax"] == ["proved", "proved"], output
    code, output = repository.run("fwbench", "report", "--format=markdown,csv", "--out=report")
    assert code == 0, output
    pages = "".join(path.read_text() for path in (repository.folder / "report").rglob("*") if path.is_file())
    assert "tiny-gpt" in pages
    assert "length" in pages


@pytest.mark.slow
def test_a_wrong_twin_has_numbers_and_no_speed_up(repository):
    repository.edit("mine/jax_gpt.py", "approximate=True", "approximate=False")
    only = ("--benchmark-only", "-k", "speed and inference and length16")
    code, output = repository.run("pytest", "benchmarks/test_gpt.py", *only, *QUICK)
    assert code == 0, output
    assert [row[-1] for row in rows(output, "tiny-gpt")] == ["1.00x", "different"], output
    assert "error: torch and jax do not compute the same in inference of tiny-gpt: outputs differ by" in output


@pytest.mark.slow
def test_weights_of_other_names_are_said_before_anything_is_timed_and_both_lanes_are(repository):
    repository.edit("mine/jax_gpt.py", "self.qkv", "self.joint")
    only = ("--benchmark-only", "-k", "speed and inference and length16", "--fwbench-fail=different")
    code, output = repository.run("pytest", "benchmarks/test_gpt.py", *only, *QUICK)
    assert code == 1, output
    found = rows(output, "tiny-gpt")
    assert [row[-2:] for row in found if row[4] == "jax"] == [["other", "weights"]], output
    assert "error" not in {column for row in found for column in row}
    first, _, rest = output.partition("[1/2")
    assert ("jax alone blocks.0.joint." in first, "jax alone blocks.0.joint." in rest) == (True, False)


@pytest.mark.slow
def test_right_twins_are_checked_in_the_first_run_without_a_proof(repository):
    only = ("--benchmark-only", "-k", "speed and train_step and length16")
    code, output = repository.run("pytest", "benchmarks/test_gpt.py", *only, *QUICK)
    assert code == 0, output
    assert [row[-1] for row in rows(output, "tiny-gpt") if row[4] == "jax"] == ["checked"], output
    assert "checked in this run, and not proved for these versions: tiny-gpt (it has never been proved)" in output


@pytest.mark.slow
def test_a_slowdown_of_the_strangers_own_fails_the_gate_and_is_named(repository):
    (repository.folder / "conftest.py").write_text(ONE_PAIR)
    repository.edit("mine/jax_gpt.py", "for block in self.blocks:", "for block in [*self.blocks] * 8:")
    only = ("-k", "speed and jax and inference and length32")
    gate = ("pytest", "benchmarks/test_gpt.py", *ALONE, "--benchmark-only", "--fwbench-against=HEAD")
    code, output = repository.run(*gate, *only)
    assert code == 1, output
    assert "jax-tiny-gpt-inference-b2-length32 regressed: latency +" in output


@pytest.mark.slow
def test_models_of_libraries_are_measured_in_one_framework(repository):
    """One of each library, for every worker imports it anew; tests/training has them all, in both modes."""
    only = ("-k", "resnet10t and inference or tiny-bert and train_step and length16")
    code, output = repository.run(
        "pytest", "benchmarks/test_libraries.py", "--benchmark-only", "--fwbench-lanes=torch", *only, *QUICK
    )
    assert code == 0, output
    assert [row[1] for row in rows(output, "resnet10t")] == ["inference"]
    assert [(row[1], row[3]) for row in rows(output, "tiny-bert")] == [("train_step", "16")]


@pytest.mark.slow
def test_gpt2_of_transformers_with_its_cache_is_measured_beside_a_port(repository):
    only = ("--benchmark-only", "-k", "decode and b1 and length32")
    code, output = repository.run("pytest", "benchmarks/test_gpt2.py", *only, *QUICK)
    assert code == 0, output
    assert [row[-1] for row in rows(output, "small-gpt2") if row[4] == "jax"] == ["checked"], output


# For the network that never comes, so that no other's time counts.
NO_PATIENCE = """
import dataclasses

from fwbench.ext.proofs import surveying
from fwbench.plugin.session import Session

surveying._PATIENCE = 2.0
run = Session.run


def impatient(self, workload, protocol, tell=None):
    if workload.model == "endless":
        protocol = dataclasses.replace(protocol, deadline=2.0)
    return run(self, workload, protocol, tell)


Session.run = impatient
"""


@needs("proofs")
@pytest.mark.slow
def test_every_wrong_builder_is_one_sentence_and_costs_its_own_test(repository):
    (repository.folder / "conftest.py").write_text(NO_PATIENCE)
    code, output = repository.run("pytest", "benchmarks/test_wrong.py", "--benchmark-only", *QUICK)
    assert code == 1
    assert "7 failed, 1 passed, 1 error" in output
    for sentence in (
        "no-batch returns an output of shape (3,) for a batch of 2: the first axis must be the batch",
        "tuple returns a tuple of 2 values instead of an array: name the output's index, key or attribute",
        "'mine.wrong:raises' raised RuntimeError: the weights are on another machine",
        "'mine.wrong:number' returned an object of type int instead of a torch.nn.Module",
        "no result within the deadline of 2 s; the worker was killed",
        "there is no module 'mine.worng', which 'mine.worng:Right' names",
        "the module 'mine.wrong' has no 'Rigth', which 'mine.wrong:Rigth' names; did you mean 'Right'?",
        "test_lane: unknown lane 'pytorch': the nearest is 'torch'",
    ):
        assert sentence in output, sentence
    assert "Traceback" not in output
