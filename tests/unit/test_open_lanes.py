"""Lanes of other packages: the NumPy lane of docs/numpy-lane, installed beside fwbench, and what is wrong with one."""

import json
import os
import shutil
import sys
import uuid
from pathlib import Path

import pytest

import fwbench
from fwbench.errors import UserError
from fwbench.models import CATALOG
from fwbench.models.project import complete, provable
from fwbench.models.store import of_suite
from fwbench.record import lanes
from fwbench.record.lanes import OWN, Lane, Lanes
from fwbench.record.reading import PROOFS
from fwbench.suite.studies import SUITES
from fwbench.worker.client.starting import PACKAGE
from tests.unit.shared import ALONE, finish, needs, once
from tests.unit.suites import FAST as BRIEFLY

EXAMPLE = PACKAGE.parent / "docs" / "numpy-lane"
SPEED = """
import fwbench

@fwbench.benchmark("mlp", modes=["inference", "train_step"], batch_sizes=[8], lanes=["torch", "numpy"])
def test_speed(fwbench_measure):
    fwbench_measure()
"""
FAST = (*ALONE, *BRIEFLY, "--benchmark-only", "--benchmark-max-time=0.1")
IDS = {f"{lane}-mlp-{mode}-b8" for lane in ("torch", "numpy") for mode in ("inference", "train_step")}


@pytest.fixture(scope="module", autouse=True)
def without_gpu():
    """NumPy computes on the CPU alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", "")
        yield


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder that the package was installed to, from a folder outside this repository."""

    def install(site):
        source = tmp_path_factory.mktemp("source") / "numpy-lane"
        shutil.copytree(EXAMPLE, source)
        options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-index", "--no-build-isolation"]
        finish(sys.executable, "-m", "pip", "install", *options, "--target", site, source, check=True, cwd=site)

    return once(tmp_path_factory, "numpy-lane", install)


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A user's project with one test."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "test_speed.py").write_text(SPEED)
    return folder


@pytest.fixture(scope="module")
def run(site, project):
    """Run a module, or code after `-c`, in the project, as an environment with the package has it."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment["PYTHONPATH"] = os.pathsep.join([str(site), str(PACKAGE.parent)])

    def run(module, *arguments, code=0, **variables):
        command = (sys.executable, *(() if module == "-c" else ("-m",)), module, *arguments)
        done = finish(*command, cwd=project, env={**environment, **variables})
        assert done.returncode == code, f"{done.stdout}\n{done.stderr}"
        return done.stdout

    return run


@pytest.fixture(scope="module")
def measured(tmp_path_factory, run, project):
    """What a run of the project says, and its record."""

    def measure(folder):
        told = run("pytest", "-v", *FAST, "--benchmark-save=base", "--benchmark-save-data")
        folder.joinpath("told.txt").write_text(told)
        (saved,) = project.glob(".benchmarks/*/*_base.json")
        saved.rename(folder / "base.json")

    folder = once(tmp_path_factory, "numpy-lane-measured", measure)
    return (folder / "told.txt").read_text(), folder / "base.json"


@needs("proofs")
@pytest.mark.slow
def test_a_packages_lane_is_measured_beside_our_own(measured):
    told, saved = measured
    records = {record["name"]: record for record in json.loads(saved.read_text())["benchmarks"]}
    assert {name.partition("[")[2].rstrip("]") for name in records} == IDS
    for mode in ("inference", "train_step"):
        torch, numpy = (records[f"test_speed[{lane}-mlp-{mode}-b8]"]["extra_info"] for lane in ("torch", "numpy"))
        assert numpy["parity"]["weights"] == torch["parity"]["weights"]
        assert {found["arithmetic"] for found in numpy["parity"]["probe"].values()} == {"fp32"}
        assert numpy["versions"].keys() == {"numpy"}
        # The lane's own environment, over everybody's.
        assert numpy["settings"]["OPENBLAS_NUM_THREADS"] == numpy["settings"]["OMP_NUM_THREADS"]
        assert torch["settings"]["OPENBLAS_NUM_THREADS"] == "1"
    assert "4 passed" in told
    assert any(line.split()[:4] == ["mlp", "inference", "8", "numpy"] for line in told.splitlines())


@pytest.mark.slow
def test_a_packages_lane_is_in_the_report(run, measured, tmp_path):
    _, saved = measured
    run("fwbench", "report", saved, "--out", tmp_path, "--format", "html,csv")
    rows = [line.split(",") for path in tmp_path.rglob("*.csv") for line in path.read_text().splitlines()]
    assert any("numpy" in row and "inference" in row for row in rows)
    assert any("NumPy" in path.read_text() for path in tmp_path.rglob("*.html"))


PROVE = """
from fwbench.commands import cli
from fwbench.ext.proofs import command

command.has_framework = lambda framework: False
raise SystemExit(cli.main(["prove", "mlp"]))
"""


@pytest.fixture
def gate(measured):
    """Options that hold the inference of the package's lane to its own record."""
    _, saved = measured
    return (*FAST, "--fwbench-gate", f"--benchmark-compare={saved}", "-k", "numpy and inference")


@pytest.mark.slow
def test_a_packages_lane_is_proved_and_gated(run, project, measured, gate):
    _, saved = measured
    # Of the suite's own networks the model has two more, and proofs of their own.
    told = run("-c", PROVE)
    assert "mlp: numpy computes the same as torch" in told
    (proof,) = [one for one in json.loads((project / PROOFS / "mlp.json").read_text()) if one["candidate"] == "numpy"]
    assert proof["state"] == "proved"
    assert proof["errors"].keys() == {"output", "loss", "gradients", "sgd", "adam"}
    assert "numpy_lane.mlp" in proof["key"]["files"]
    # Whatever the verdict on so few processes.
    anything = ("--fwbench-fail=latency:1000000%", "--fwbench-fail=throughput:99.99%")
    told = run("pytest", *gate, *anything, "--benchmark-json=proved.json")
    assert any(line.split()[:2] == ["numpy-mlp-inference-b8", "latency"] for line in told.splitlines())
    # The record says so from then on.
    for path, state in ((saved, "missing"), (project / "proved.json", "proved")):
        records = {record["name"]: record["extra_info"] for record in json.loads(path.read_text())["benchmarks"]}
        assert records["test_speed[numpy-mlp-inference-b8]"]["parity"]["proof"]["state"] == state


@pytest.fixture
def bare_python(tmp_path):
    """An interpreter that has fwbench's dependencies, and not the package."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nunset PYTHONPATH\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return python


@pytest.mark.slow
def test_a_packages_lane_plays_a_duet(run):
    told = run(
        "pytest",
        *(*ALONE, "--benchmark-only", f"--fwbench-against={sys.executable}", "--fwbench-fail=latency:10000%"),
        *("-k", "numpy and inference"),
    )
    assert "1 passed" in told


def test_a_packages_lane_is_listed_with_its_package(run):
    listed = json.loads(run("fwbench", "list", "--json"))
    assert {"name": "numpy", "title": "NumPy", "framework": "numpy", "package": "numpy-lane"} in listed["lanes"]
    assert {"torch", "jax", "numpy"} <= {row["name"] for row in listed["frameworks"]}
    findings = json.loads(run("fwbench", "doctor", "--json"))["findings"]
    (numpy,) = [finding for finding in findings if finding["subject"] == "numpy"]
    assert numpy["level"] == "good"
    assert numpy["found"].endswith("; the lane comes from numpy-lane 0.1")


@pytest.mark.slow
def test_a_suites_model_is_measured_in_a_packages_lane_only_when_asked_for(run, project):
    (project / "test_speed.py").write_text(SPEED.replace(', lanes=["torch", "numpy"]', ""))
    try:
        usual = run("pytest", *ALONE, "--collect-only", "-q")
        asked = run("pytest", *ALONE, "--collect-only", "-q", "--fwbench-lanes=numpy")
    finally:
        (project / "test_speed.py").write_text(SPEED)
    assert "numpy" not in usual
    assert asked.count("numpy-mlp") == 2
    assert "torch" not in asked


@pytest.mark.slow
def test_an_interpreter_without_the_package_skips_its_lane_with_the_reason_and_passes_no_gate(run, gate, bare_python):
    told = run("pytest", *gate, "-rs", f"--fwbench-python=numpy={bare_python}", code=4)
    skipped, _, judged = told.partition("fwbench: gate")
    assert "numpy cannot be imported (No module named 'numpy_lane'); install it there" in skipped
    assert "this run holds no measured benchmark" in judged


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Put a package on the path whose module has this source, and whose entry point is `module:LANE`."""

    def package(source):
        # Python remembers the module of another test.
        module = f"some_lanes_{uuid.uuid4().hex}"
        (tmp_path / f"{module}.py").write_text("from fwbench.record.lanes import Lane\n" + source)
        info = tmp_path / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: some-lanes\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{lanes.GROUP}]\n{module} = {module}:LANE\n")
        monkeypatch.syspath_prepend(tmp_path)
        return tmp_path

    return package


MINE = {"title": "mine", "adapter": "mine:A", "distributions": ("mine",)}


def lane(name="mine", framework="mine", **fields):
    given = {**MINE, **fields}
    return f"Lane(name={name!r}, framework={framework!r}, {', '.join(f'{k}={v!r}' for k, v in given.items())})"


def test_a_package_may_bring_several_lanes(package):
    package(f"LANE = [{lane('one')}, {lane('two')}]")
    found = Lanes()
    assert OWN.keys() < found.keys()
    assert [name for name, lane in found.items() if lane.package == "some-lanes"] == ["one", "two"]


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("import no_such_module", r"the lanes of some-lanes cannot be loaded .*\(No module named 'no_such_module'\)"),
        ("LANE = {'name': 'mine'}", "of some-lanes holds 'name', which is no Lane"),
        ("LANE = 3", "of some-lanes holds 3, which is no Lane"),
        (f"LANE = {lane('torch')}", "some-lanes and fwbench both have a lane 'torch'"),
        (f"LANE = {lane(baseline=True)}", "the lane 'mine' of some-lanes claims to be the baseline"),
        (f"LANE = {lane(name='mine:a')}", "the lane 'mine:a' of some-lanes has a colon in its name"),
        (f"LANE = {lane(name='a b')}", "a lane's name is made of letters, digits, _, . and -, and 'a b' is not"),
        (f"LANE = {lane(framework='my-framework')}", "is a Python name, and 'my-framework' is not"),
        (f"LANE = {lane(adapter='mine')}", "'mine' of the lane 'mine' is no import path"),
        ("LANE = Lane(name='mine')", "missing 5 required|missing 4 required"),
    ],
)
def test_what_is_wrong_with_a_packages_lanes_is_one_sentence_that_names_it(package, source, sentence):
    package(source)
    found = Lanes()
    with pytest.raises(UserError, match=sentence) as error:
        len(found)
    assert "some-lanes" in str(error.value)
    assert "\n" not in str(error.value)
    # Our own need no other package.
    assert found["torch"] is OWN["torch"]


def pytest_in(folder, site, *arguments):
    path = os.pathsep.join([str(site), str(PACKAGE.parent)])
    return finish(
        sys.executable, "-m", "pytest", *ALONE, *arguments, cwd=folder, env={**os.environ, "PYTHONPATH": path}
    )


def test_a_broken_package_costs_nothing_where_fwbench_is_not_used(package, tmp_path_factory):
    site, folder = package("import no_such_module"), tmp_path_factory.mktemp("project")
    (folder / "test_plain.py").write_text("def test_plain():\n    pass\n")
    done = pytest_in(folder, site)
    assert done.returncode == 0, done.stdout
    (folder / "test_speed.py").write_text(SPEED)
    for arguments in ((), ("--fwbench-profile=quick",)):
        done = pytest_in(folder, site, *arguments)
        told = done.stdout + done.stderr
        assert done.returncode in (2, 4)
        assert "the lanes of some-lanes cannot be loaded" in told
        assert "Traceback" not in told


def test_a_lane_survives_its_way_to_a_worker():
    for known in lanes.LANES.values():
        assert Lane.from_json(json.loads(json.dumps(known.to_json()))) == known


def test_a_lanes_variables_depend_on_threads_and_device():
    told = {"POOL": "{threads}", "SHOWN": {"gpu": "0"}, "MODE": "x"}
    known = Lane(name="mine", framework="mine", **MINE, environment=told)
    assert known.variables(3, "cpu") == {"POOL": "3", "MODE": "x"}
    assert known.variables(2, "gpu") == {"POOL": "2", "SHOWN": "0", "MODE": "x"}


@pytest.fixture
def numpy_lane(monkeypatch):
    """The core's lanes, and one of another package, which brings a network for the MLP."""
    networks = {"mlp": "mine:MLP", "cnn": "mine:CNN"}
    known = Lane(name="numpy", framework="numpy", **MINE, networks=networks, package="numpy-lane")
    monkeypatch.setattr(lanes, "LANES", {**OWN, "numpy": known})


def test_a_profile_measures_the_lanes_of_the_frameworks_that_a_model_names(numpy_lane):
    assert lanes.of_profile("quick", "cpu", {"torch", "jax"}) == ("torch", "jax")
    assert lanes.of_profile("quick", "gpu", {"torch", "jax"}) == ("torch", "torch-compile", "jax")
    assert lanes.of_profile("ci", "gpu", {"torch", "jax"}) == ("torch", "jax")
    assert lanes.of_profile("paper", "cpu", {"torch", "jax"}) == ("torch", "torch-compile", "jax")
    assert lanes.of_profile("quick", "cpu", {"jax", "numpy"}) == ("jax", "numpy")
    assert lanes.of_profile("quick", "cpu", {"noop"}) == ()
    for device, suites in SUITES.items():
        for profile, parts in suites.items():
            for part in parts:
                for model in part.models:
                    assert part.lanes == lanes.of_profile(profile, device, CATALOG[model].networks)


def test_a_lane_brings_networks_for_models_that_name_none(numpy_lane):
    mlp = complete(CATALOG["mlp"])
    assert mlp.networks == {**CATALOG["mlp"].networks, "numpy": "mine:MLP"}
    assert mlp.reference == "torch"
    assert lanes.networks("mlp") == {"numpy": "mine:MLP"}
    assert lanes.networks("mlp", own=True) == {}
    assert [framework for framework in mlp.networks if of_suite(mlp, framework)] == ["torch", "jax"]
    own = fwbench.Model("cnn", numpy="theirs:CNN", torch="theirs:Net", inputs=fwbench.normal(3))
    assert complete(own).networks == {"numpy": "theirs:CNN", "torch": "theirs:Net"}
    assert complete(CATALOG["resnet50"]) == CATALOG["resnet50"]


def test_the_docs_show_the_package_as_it_is():
    text = (Path(EXAMPLE).parent / "adding-a-lane.md").read_text()
    for name in ("pyproject.toml", "numpy_lane/__init__.py"):
        assert (EXAMPLE / name).read_text() in text


def test_a_derived_lane_runs_the_networks_of_another_framework(monkeypatch):
    derived = Lane(name="export", framework="export", title="Export", adapter="a:b", distributions=(), derived="torch")
    monkeypatch.setattr(lanes, "LANES", {**OWN, "export": derived})
    whole = complete(CATALOG["mlp"])
    assert whole.networks["export"] == whole.networks["torch"]
    assert whole.reference == CATALOG["mlp"].reference
    # A worker of another lane need not have the package, and would take it for a network of the model's own.
    assert complete(CATALOG["mlp"], "torch").networks == CATALOG["mlp"].networks
    assert complete(CATALOG["mlp"], "export").networks["export"] == whole.networks["torch"]
    assert provable(whole) == [name for name in CATALOG["mlp"].networks if name != "torch"]
    assert "export" not in complete(fwbench.Model("mine", jax="mine:net", inputs=fwbench.Input((4,)))).networks
    # Models that name networks are measured in it only when it is asked for.
    assert "export" not in lanes.of_profile("quick", "cpu", CATALOG["mlp"].networks)
