"""The core without its extensions."""

import ast
import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

import fwbench
from fwbench.models import CATALOG
from fwbench.models.store import stamp
from fwbench.record.lanes import OWN
from tests.unit.recorded import measured, saved, write
from tests.unit.shared import ALONE, finish

PACKAGE = Path(fwbench.__file__).parent
TESTS = Path(__file__).parents[1]
# The tests that prove the suite's own networks and users' training steps; they need the extension that proves,
# TensorFlow's, and ranks.
PROVING = ("correctness", "proving")
PROVEN = tuple(f"fwbench.ext.{name}." for name in ("cluster.ranks", "own_steps", "pretrained", "proofs", "tensorflow"))
KNOWN = """
import json
from fwbench.commands.cli import commands
from fwbench.commands.report import _writers
from fwbench.models import CATALOG
from fwbench.models.store import stamp
from fwbench.record.lanes import LANES, networks
lanes = [name for name, lane in LANES.items() if lane.package == "fwbench"]
proof = stamp(CATALOG["mlp"], "jax", None)
print(json.dumps([sorted(commands()), sorted(_writers()), lanes, networks("mlp", own=True), proof]))
"""
NOOP = """
import fwbench

@fwbench.benchmark("noop", lanes=["noop"])
def test_noop(fwbench_measure):
    fwbench_measure()
"""
LACKING = """
from fwbench.frameworks.extended import lacking
from fwbench.models import CATALOG, Model
from fwbench.models.inputs import normal
from fwbench.record.lanes import OWN
from fwbench.record.workload import Workload
from fwbench.suite.profiles import PROFILES
from fwbench.worker.process.run import Measuring
paths = {"torch": "mine:function"}
own = Model("own", torch="mine:Net", inputs=normal(2), train_step=paths, train_state=paths)
for mode in ("train_step", "prefill"):
    print(lacking(Workload("torch", "own", mode), own, "torch"))
fit = Workload("noop", "noop", "fit")
print(Measuring(fit, OWN["noop"], CATALOG["noop"], PROFILES["quick"], lambda stage: None).run().failure)
"""
TESTS_OF_ITS_USER = """
import fwbench

def test_sum(benchmark):
    assert benchmark(sum, [1, 2]) == 3

@fwbench.proof("mlp")
def test_proof(fwbench_prove):
    fwbench_prove()
"""


def extensions(path):
    """The modules of extensions, and of their tests, that a file imports, wherever in it."""
    modules = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules += [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules += [f"{node.module}.{name.name}" for name in node.names]
    return [module for module in modules if f"{module}.".startswith(("fwbench.ext.", "tests.ext."))]


def test_no_test_of_the_core_imports_one():
    files = [path for path in TESTS.rglob("*.py") if path.relative_to(TESTS).parts[0] not in ("ext", *PROVING)]
    assert Path(__file__) in files
    assert {str(path): extensions(path) for path in files if extensions(path)} == {}


def test_what_proves_the_suite_imports_what_proves_and_what_is_proved():
    files = [path for place in PROVING for path in (TESTS / place).rglob("*.py")]
    imported = {module for path in files for module in extensions(path)}
    assert imported
    assert [module for module in imported if not f"{module}.".startswith(PROVEN)] == []


@pytest.mark.parametrize("line", ["import fwbench.ext.ci", "from fwbench import ext", "from fwbench.ext import ci"])
def test_each_way_to_import_one_is_seen(tmp_path, line):
    (tmp_path / "module.py").write_text(f"def late():\n    {line}\n")
    assert extensions(tmp_path / "module.py")


@pytest.fixture(scope="module")
def core(tmp_path_factory):
    """Runs Python on a copy of the package that has no folder `ext`; returns what it prints."""
    folder = tmp_path_factory.mktemp("core")
    shutil.copytree(PACKAGE, folder / "fwbench", ignore=shutil.ignore_patterns("ext", "__pycache__"))

    def run(*words, cwd=folder, code=0):
        variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        done = finish(sys.executable, *words, cwd=cwd, env={**variables, "PYTHONPATH": str(folder)})
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    return run


def test_it_has_its_own_commands_formats_and_lanes_and_knows_the_proofs_that_ship(core):
    commands, formats, lanes, networks, proof = json.loads(core("-c", KNOWN))
    assert commands == ["compare", "doctor", "list", "measure", "report"]
    assert formats == ["csv", "html", "markdown"]
    assert (lanes, networks) == ([*OWN], {})
    assert proof == stamp(CATALOG["mlp"], "jax", None)
    assert proof["state"] != "missing"


def test_it_has_no_study(core):
    assert json.loads(core("-m", "fwbench", "list", "--json"))["studies"] == []


def test_it_reports_in_the_formats_that_it_has(core, tmp_path):
    write(tmp_path / "run.json", saved(measured("torch"), measured("jax")))
    core("-m", "fwbench", "report", "run.json", "--format=markdown,csv", cwd=tmp_path)
    assert "torch" in (tmp_path / "report" / "tables.md").read_text()


def test_it_measures_a_plain_test_and_makes_no_proof(core, tmp_path):
    (tmp_path / "test_own.py").write_text(TESTS_OF_ITS_USER)
    told = core("-m", "pytest", *ALONE, "-q", "-k", "sum or jax", "--benchmark-json=run.json", cwd=tmp_path, code=1)
    assert [one["name"] for one in json.loads((tmp_path / "run.json").read_text())["benchmarks"]] == ["test_sum"]
    assert "needs fwbench's extension `proofs`" in told


def test_it_says_which_extension_tries_a_machine_out(core):
    core("-m", "fwbench", "doctor", "--check", code=4)


def test_it_keeps_a_journal_from_which_a_run_goes_on_only_with_an_extension(core, tmp_path):
    (tmp_path / "test_noop.py").write_text(NOOP)
    command = ("-m", "pytest", *ALONE, "-q", "--benchmark-only", "--fwbench-minutes=0", "--benchmark-max-time=0")
    core(*command, cwd=tmp_path)
    (journal,) = tmp_path.glob(".benchmarks/journal/*.jsonl")
    header, measured = map(json.loads, journal.read_text().splitlines())
    assert (header["profile"], measured["workload"]["model"]) == ("quick", "noop")
    core(*command, "--fwbench-resume", cwd=tmp_path, code=4)


def test_it_names_the_extension_that_has_a_program_or_a_mode(core):
    told = core("-c", LACKING)
    assert re.findall(r"needs fwbench's extension `(\w+)`", told) == ["own_steps", "state", "epochs"]
    assert told.splitlines()[-1].startswith("unavailable")
