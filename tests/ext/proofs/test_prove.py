"""`fwbench prove` and what it is made of, with a fake in the place of the process that proves."""

import functools
import sys
import textwrap
from pathlib import Path

import pytest

import fwbench
from fwbench.commands import cli, collecting
from fwbench.errors import UserError
from fwbench.ext.proofs import client as proving
from fwbench.ext.proofs import command
from fwbench.models import CATALOG
from fwbench.models.project import Project, complete, provable
from fwbench.models.store import SHIPPED, Key, Proved
from fwbench.record.reading import PROOFS
from fwbench.worker.client.starting import PACKAGE
from tests.unit.shared import ALONE, finish, needs

TESTS = """
    import pytest
    import fwbench

    pair = fwbench.Model(
        "pair", torch="nets:Torch", jax="nets:Jax", inputs=fwbench.normal("length"), axes={"length": (2, 4)}
    )
    alone = fwbench.Model("alone", jax="nets:Jax", inputs=fwbench.normal(2))
    third = fwbench.Model("third", torch="nets:Torch", jax="nets:Jax", inputs=fwbench.normal(2))

    @fwbench.benchmark(pair, "mlp")
    def test_speed(fwbench_measure):
        fwbench_measure()

    @fwbench.proof(alone, third)
    def test_proof(fwbench_prove):
        fwbench_prove()
"""


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The folder of a project by its tests, which are collected once: that takes a process of a second."""
    collect = collecting._collection
    once = functools.cache(lambda folder, settings, *asked: collect(*asked))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            collecting,
            "_collection",
            lambda arguments, unknown: once(Path.cwd(), Path("pytest.ini").read_text(), tuple(arguments), unknown),
        )
        yield functools.cache(lambda tests: tmp_path_factory.mktemp("project"))


@pytest.fixture
def project(folders, monkeypatch):
    """Writes a project's file of tests, and goes to its folder."""

    def write(tests=TESTS):
        folder = folders(tests)
        monkeypatch.chdir(folder)
        # The command collects the tests in a process of its own.
        addopts = " ".join(("-p", "fwbench.plugin", *ALONE))
        (folder / "pytest.ini").write_text(f"[pytest]\npythonpath = src\naddopts = {addopts}\n")
        (folder / "test_mine.py").write_text(textwrap.dedent(tests))
        return folder

    return write


@pytest.fixture
def proofs(monkeypatch):
    """What each proof comes to, by model; the models proved, in order, with their projects."""
    asked, states = [], {}

    def prove(model, candidate, project, tell, pythons):
        asked.append((model, candidate, project))
        state = states.get(model.name, "proved")
        if isinstance(state, Exception):
            raise state
        sentence = {"failed": "output differ by 1.0e-01", "apart in training": "gradients differ"}.get(state, "")
        alone = state == "apart in training"
        found = model.name, candidate, model.reference, "failed" if alone else state, sentence
        figures = {"output": 1e-13, "gradients": 1e-9}, {"output": 1e-10, "gradients": 1e-8}
        return Proved(*found, *figures, Key("", {}, {}), training_alone=alone)

    monkeypatch.setattr(command, "prove", prove)
    monkeypatch.setattr(command, "has_framework", lambda framework: True)
    return asked, states


def test_help_proves_nothing(capsys, proofs):
    with pytest.raises(SystemExit) as caught:
        cli.main(["prove", "--help"])
    assert caught.value.code == 0
    assert "fwbench prove" in capsys.readouterr().out
    assert proofs[0] == []


@needs("tensorflow")
def test_without_names_all_models_that_the_tests_name_are_proved(project, proofs, capsys):
    root = project()
    assert cli.main(["prove"]) == 0
    asked, _ = proofs
    proved = [(model.name, candidate) for model, candidate, _ in asked]
    assert proved == [("pair", "jax"), ("mlp", "jax"), ("mlp", "tensorflow"), ("third", "jax")]
    model, _, where = asked[0]
    assert model.axes == {"length": (2, 4)}
    assert (where.root, where.path) == (root, (root / "src", root))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == ("pair: jax computes the same as torch (closest to its bound: gradients 1.0e-09, at most 1e-08)")
    assert lines[3] == "alone: only in jax, so there is nothing to prove"


def test_a_difference_is_1_and_does_not_keep_others_from_being_proved(project, proofs, capsys):
    project()
    asked, states = proofs
    states |= {"pair": "failed", "third": UserError("third: no proof of jax: it raised an error")}
    assert cli.main(["prove", "pair", "third", "mlp"]) == 1
    assert len(asked) == 4
    said = capsys.readouterr()
    assert said.out.splitlines()[0] == "pair: jax does not compute the same as torch: output differ by 1.0e-01"
    assert said.err.splitlines() == ["fwbench: third: no proof of jax: it raised an error"]
    states["pair"] = "proved"
    assert cli.main(["prove", "pair", "third"]) == 4


@needs("tensorflow")
def test_lanes_choose_the_programs_that_are_proved(project, proofs, capsys):
    project()
    asked, _ = proofs
    assert cli.main(["prove", "pair", "alone", "--lanes", "torch-compile"]) == 4
    assert cli.main(["prove", "mlp", "--lanes", "torch-compile,jax"]) == 0
    proved = [(model.name, candidate) for model, candidate, _ in asked]
    assert proved == [("pair", "torch-compile"), ("mlp", "torch-compile"), ("mlp", "jax")]
    assert asked[0][0] == complete(asked[0][0])
    assert capsys.readouterr().out.startswith("pair: torch-compile computes the same as torch in inference (")


INFERRING = """
    import fwbench

    nets = {"torch": "nets:Torch", "jax": "nets:Jax", "inputs": fwbench.normal(2)}
    inferred, trained, proved = (fwbench.Model(name, **nets) for name in ("inferred", "trained", "proved"))

    @fwbench.benchmark(inferred, trained, proved)
    def test_inference(fwbench_measure):
        fwbench_measure()

    @fwbench.benchmark(trained, modes=["train_step"])
    def test_training(fwbench_measure):
        fwbench_measure()

    @fwbench.proof(proved)
    def test_proof(fwbench_prove):
        fwbench_prove()
"""


@pytest.mark.parametrize(
    ("model", "state", "code"),
    [
        ("inferred", "apart in training", 0),
        ("inferred", "failed", 1),
        ("trained", "apart in training", 1),
        ("proved", "apart in training", 1),
    ],
)
def test_a_difference_in_training_counts_where_a_test_trains_or_proves(project, proofs, capsys, model, state, code):
    project(INFERRING)
    proofs[1][model] = state
    assert cli.main(["prove", model]) == code
    said = capsys.readouterr().out
    assert ("jax computes the same" in said) is (code == 0)
    assert ("gradients differ" in said) is (state == "apart in training")


def test_the_suites_own_models_are_known_without_collecting(project, proofs):
    root = project("raise RuntimeError('a test that cannot be imported')")
    assert cli.main(["prove", "mlp"]) == 0
    assert [(model, where.root) for model, _, where in proofs[0]] == [(complete(CATALOG["mlp"]), root)] * 2


@needs("tensorflow")
def test_of_the_suites_own_models_only_installed_frameworks_are_proved(project, proofs, monkeypatch, capsys):
    monkeypatch.setattr(command, "has_framework", lambda framework: framework != "tensorflow")
    project()
    assert cli.main(["prove", "mlp"]) == 0
    assert [candidate for _, candidate, _ in proofs[0]] == ["jax"]
    assert "mlp: tensorflow is not installed here, so its network is not proved" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("tests", "arguments", "sentence"),
    [
        (TESTS, ["tinynet"], "no test names a model 'tinynet', and the suite has none: choose from resnet50, "),
        ("def test_x(): pass\n", [], "no test names a model to prove: mark one with @fwbench.proof(model) or "),
        ("import nowhere\n", [], "the project's tests could not be collected, so its models are not known: "),
        (TESTS, ["--python", "jxa=python3"], "--python 'jxa=python3' is not FRAMEWORK=PATH with a framework of to"),
        (TESTS, ["pair", "--lanes", "torch"], "no proof compares what the lane 'torch' computes of pair: "),
        (
            TESTS,
            ["pair", "--lanes", "torch-compile-max"],
            "no proof compares what the lane 'torch-compile-max' computes",
        ),
        (TESTS, ["--python", "jax=/nowhere/python"], "--python jax: there is no interpreter '/nowhere/python'; g"),
    ],
)
def test_what_cannot_be_proved_is_one_sentence(project, proofs, capsys, tests, arguments, sentence):
    project(tests)
    assert cli.main(["prove", *arguments]) == 4
    said = capsys.readouterr().err
    assert said.startswith(f"fwbench: {sentence}")
    assert said.count("\n") == 1
    assert proofs[0] == []


def test_a_framework_is_proved_by_the_interpreter_that_pytests_settings_or_the_command_name(
    project, proofs, monkeypatch, tmp_path
):
    """Also one of the suite's own models in a framework that this interpreter does not have."""
    monkeypatch.setattr(command, "has_framework", lambda framework: False)
    prove, passed = command.prove, []

    def noted(*given, pythons, **others):
        passed.append(pythons)
        return prove(*given, pythons=pythons, **others)

    monkeypatch.setattr(command, "prove", noted)
    for name in ("settings", "option"):
        (tmp_path / name).symlink_to(sys.executable)
    root = project()
    with (root / "pytest.ini").open("a") as settings:
        settings.write(f" --fwbench-python jax={tmp_path}/settings\n")
    assert cli.main(["prove", "pair"]) == 0
    assert cli.main(["prove", "pair", "mlp", "--python", f"jax={tmp_path}/option"]) == 0
    assert passed == [{"jax": f"{tmp_path}/settings"}, *[{"jax": f"{tmp_path}/option"}] * 2]


def test_a_mark_without_models_means_the_suites_own(project, proofs):
    project("import fwbench\n\n\n@fwbench.benchmark()\ndef test_speed(fwbench_measure):\n    pass\n")
    assert cli.main(["prove"]) == 0
    own = [(model.name, of) for model in map(complete, CATALOG.values()) for of in provable(model)]
    assert [(model.name, candidate) for model, candidate, _ in proofs[0]] == own


PAIR = fwbench.Model("pair", torch="nets:Torch", jax="nets:Jax", inputs=fwbench.normal(2))


@pytest.fixture
def process(tmp_path, monkeypatch):
    """Proves with another script in the place of the one that proves."""

    def run(script, deadline=60.0, pythons=None):
        path = tmp_path / "script.py"
        path.write_text(textwrap.dedent(script))
        monkeypatch.setattr(proving, "_PROCESS", path)
        return proving.prove(PAIR, "jax", Project(tmp_path, (tmp_path,)), stages.append, deadline, pythons=pythons)

    stages = []
    run.stages = stages
    return run


def test_a_proof_is_told_and_kept(process, tmp_path):
    found = process(
        """
        import json, sys
        job = json.loads(sys.stdin.readline())
        assert job["candidate"] == "jax" and job["path"] and job["model"]["name"] == "pair"
        print(json.dumps({"stage": "eval: output"}))
        key = {"definition": "", "files": {}, "versions": {}}
        print(json.dumps({"proved": {"model": "pair", "candidate": "jax", "reference": "torch", "state": "failed",
            "sentence": "gradients differ", "errors": {}, "bounds": {}, "key": key}}))
        """
    )
    assert (found.state, found.sentence) == ("failed", "gradients differ")
    assert process.stages == ["eval: output"]
    assert (tmp_path / PROOFS / "pair.json").exists()


@pytest.mark.parametrize(
    ("script", "deadline", "sentence"),
    [
        ("import os; os.abort()", 60.0, "pair: no proof of jax: its process was killed by SIGABRT"),
        ("raise SystemExit('not so')", 60.0, "its process ended with exit code 1 before it had a result (not so)"),
        ('print(\'{"unavailable": "nets has no Jax"}\')', 60.0, "pair: no proof of jax: nets has no Jax"),
        ("import time; time.sleep(60)", 0.5, "script.py, line 2): proof_axes= of the model makes proofs smaller"),
    ],
)
def test_what_becomes_of_a_process_without_a_proof_is_one_sentence(process, tmp_path, script, deadline, sentence):
    with pytest.raises(UserError) as caught:
        process(f"import sys; sys.stdin.readline()\n{script}\n", deadline=deadline)
    assert sentence in str(caught.value)
    assert not (tmp_path / PROOFS).exists()


@pytest.mark.parametrize(
    ("pythons", "proves"),
    [
        ({}, sys.executable),
        ({"torch": "/a"}, "/a"),
        ({"torch": "/a", "jax": "/b"}, "/b"),
        ({"numpy": "/c"}, sys.executable),
    ],
)
def test_the_candidates_interpreter_proves_or_else_the_references(pythons, proves):
    assert proving.interpreter(PAIR, "jax", pythons) == proves


def test_what_an_interpreter_lacks_is_one_sentence_that_names_it(process, tmp_path):
    (tmp_path / "other").symlink_to(sys.executable)
    script = "import sys; sys.stdin.readline(); print('{\"missing\": \"' + sys.executable + '\"}')"
    with pytest.raises(UserError) as caught:
        process(script, pythons={"jax": f"{tmp_path}/other"})
    assert str(caught.value) == (
        f"pair: no proof of jax: it needs torch and jax in one process, and {tmp_path}/other has no {tmp_path}/other: "
        "install that there, or name an interpreter that has both by --fwbench-python jax=PATH (--python of fwbench "
        "prove)"
    )


def test_the_suites_own_proofs_ship_with_its_checkout_alone(tmp_path):
    mlp, checkout = complete(CATALOG["mlp"]), Project(PACKAGE.parent, ())
    assert all(proving.folder(mlp, candidate, checkout) == SHIPPED for candidate in provable(mlp))
    assert proving.folder(mlp, "torch-compile", checkout) == SHIPPED
    assert proving.folder(mlp, "jax", Project(tmp_path, ())) == tmp_path / PROOFS
    assert proving.folder(PAIR, "jax", checkout) == PACKAGE.parent / PROOFS
    # A package's network of the suite's MLP is not the suite's.
    assert proving.folder(mlp, "numpy", checkout) == PACKAGE.parent / PROOFS


def test_the_command_imports_no_framework(tmp_path):
    code = (
        "import sys; import fwbench.ext.proofs.command, fwbench.ext.proofs.client; "
        "print([name for name in ('torch', 'jax', 'flax', 'torchvision') if name in sys.modules])"
    )
    assert finish(sys.executable, "-c", code, check=True).stdout.strip() == "[]"
