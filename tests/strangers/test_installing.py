"""The wheel in an empty folder, what it lacks without extras, and a checkout that is not installed."""

import json
import shutil
import zipfile

import pytest

from tests.unit.shared import ALONE
from tests.unit.suites import FAST as BRIEFLY

NOOP = """
    import fwbench

    def test_plain():
        pass

    @fwbench.benchmark("noop", lanes=["noop"])
    def test_noop(fwbench_measure):
        fwbench_measure()
"""
FAST = (*BRIEFLY, *ALONE)
SUITE = ("--pyargs", "fwbench.suite.benchmarks", "--benchmark-only", "--fwbench-profile=quick")


def test_the_wheel_carries_what_is_read_at_run_time(wheel, request):
    root = request.config.rootpath
    packed = set(zipfile.ZipFile(wheel).namelist())
    tracked = {path.relative_to(root).as_posix() for path in root.glob("fwbench/**/*") if path.is_file()}
    assert {path for path in tracked if "__pycache__" not in path} <= packed
    assert {"fwbench/py.typed", "fwbench/report/page.html", "fwbench/suite/benchmarks/test_training.py"} <= packed
    assert not [path for path in packed if path.startswith(("tests/", "tools/"))]


def test_an_empty_folder_and_the_core_alone_measure_and_read(stranger, core):
    """A user's own test, then each command on its record; a light installation tells what the others need."""
    stranger.makepyfile(test_noop=NOOP)
    outcome = stranger.run(core, "-m", "pytest", *FAST, "--benchmark-json=x.json", "--fwbench-threads=1")
    outcome.assert_outcomes(passed=2)
    told = stranger.run(core, "-m", "fwbench", "list", "--json")
    assert "resnet50" in [model["name"] for model in json.loads(told.stdout.str())["models"]]
    told = stranger.run(core, "-m", "fwbench", "compare", "x.json", "x.json")
    # The lane without a framework is the harness's own, and no suite's.
    told.stdout.fnmatch_lines(["x.json, against x.json", "nothing was compared"])
    told = stranger.run(core, "-m", "fwbench", "report", "x.json", "--format=markdown")
    assert told.ret == 0
    told = stranger.run(core, "-m", "fwbench", "report", "x.json")
    assert told.ret == pytest.ExitCode.USAGE_ERROR
    assert len(told.stderr.lines) == 1
    told.stderr.fnmatch_lines(["fwbench: figures and the page need *`pip install 'fwbench[[]report]'`*"])


@pytest.mark.slow
def test_the_study_of_three_frameworks_skips_what_is_missing(stranger, core):
    outcome = stranger.run(core, "-m", "pytest", *SUITE, "--fwbench-study=simple-cnn", "-rs")
    outcome.assert_outcomes(skipped=3, deselected=outcome.parseoutcomes().get("deselected"))
    for lane, package in (("tensorflow-xla", "tensorflow"), ("torch-compile", "torch"), ("jax", "jax")):
        reason = f"*SKIPPED*{lane} cannot be imported (No module named '{package}'); install it there*"
        outcome.stdout.fnmatch_lines_random([reason, f"cnn *{lane} *unavailable"])


def test_missing_packages_of_data_are_told_in_a_sentence(stranger, core):
    stranger.makepyfile(
        main="""
        from fwbench.ext.epochs.data import DataError, open_data
        from fwbench.models import CATALOG
        from fwbench.record.workload import DATA

        for name in DATA:
            try:
                open_data(name, CATALOG["resnet50"], path="." if name == "imagenet-100" else None)
                print(name, "opens")
            except DataError as error:
                print(error)
        """
    )
    told = stranger.run(core, "main.py")
    told.stdout.fnmatch_lines(
        [
            "digits needs sklearn, which is not installed in *core/bin/python: pip install 'fwbench[[]data]'",
            "mnist needs data_path: *",
            "imagenet-100 needs *, which is not installed in *: pip install 'fwbench[[]imagenet]'",
            "synthetic opens",
        ]
    )


@pytest.mark.slow
def test_a_checkout_need_not_be_installed(outside, core, request):
    """As the README promises: an interpreter that has the packages and no fwbench, in a clone."""
    root = request.config.rootpath
    for folder in ("fwbench", "tests/benchmarks"):
        shutil.copytree(root / folder, outside.path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("conftest.py", "pytest.ini"):
        shutil.copy(root / name, outside.path)
    outcome = outside.run(core, "-m", "pytest", *FAST, "--benchmark-only", "-k", "mlp or empty_step", "-rs")
    counts = outcome.parseoutcomes()
    # What prices the harness is no answer.
    assert (outcome.ret, counts["passed"]) == (4, 1), outcome.stdout.str() + outcome.stderr.str()
    outcome.stdout.fnmatch_lines(
        ["*] noop-noop-inference-b1: *", "ERROR: nothing could be measured: torch cannot be imported*"]
    )
    # The names that baselines are kept under.
    collected = outside.run(core, "-m", "pytest", "-p", "no:cacheprovider", "--collect-only", "-q", "-k", "mlp and b1")
    assert "tests/benchmarks/test_inference.py::test_inference[jax-mlp-inference-b1]" in collected.outlines
