"""The plugin in real pytest runs, over a framework that does nothing unless a test is about the real ones."""

import dataclasses
import json
import os
import signal
import sys

import pytest

from fwbench.plugin.session import Session
from fwbench.record.journal import SCHEMA
from fwbench.record.measurement import Failure, Measurement
from fwbench.worker.client.server import Server
from tests.unit.processes import grandchildren
from tests.unit.shared import needs
from tests.unit.suites import FAST, given, refused
from tests.unit.suites import in_process as run
from tests.unit.suites import run as in_own_process
from tests.unit.suites import suite as noops

__all__ = ["given", "noops"]

NOOP = """
    import fwbench

    @fwbench.benchmark("noop", lanes=["noop"], batch_sizes=[1, 2, 3])
    def test_noop(fwbench_measure):
        measurement = fwbench_measure()
        print("samples", len(measurement.samples))
"""


@pytest.fixture
def suite(noops):
    """A user's suite outside this repository, over three no-op workloads of one test."""
    noops.makepyfile(test_suite=NOOP)
    return noops


@pytest.fixture
def shipped(suite, request):
    """This repository's own axes and benchmarks, in a folder where nothing else lies."""
    root = request.config.rootpath
    suite.makeconftest((root / "conftest.py").read_text())
    for path in (root / "tests" / "benchmarks").glob("test_*.py"):
        suite.makepyfile(**{path.stem: path.read_text()})
    suite.path.joinpath("test_suite.py").unlink()
    return suite


def saved(suite):
    (path,) = suite.path.glob(".benchmarks/*/*.json")
    return json.loads(path.read_text())


def journal(suite):
    (path,) = suite.path.glob(".benchmarks/journal/*.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_run_stores_what_its_workers_have_measured_and_shows_it(suite):
    result = run(suite, "--benchmark-only", "--benchmark-autosave", "--benchmark-save-data", *FAST)
    result.assert_outcomes(passed=3)
    header, *records = journal(suite)
    data = saved(suite)
    benchmarks = data["benchmarks"]
    assert header["schema"] == SCHEMA
    assert [b["stats"]["data"] for b in benchmarks] == [r["samples"] for r in records]
    assert [len(r["samples"]) for r in records] == [7, 7, 7]
    info = benchmarks[0]["extra_info"]
    throughput = info["metrics"]["throughput"]
    assert throughput["value"] > 0
    assert (throughput["unit"], throughput["direction"]) == ("1/s", "higher")
    assert "wait" in throughput["source"]
    assert info["metrics"]["latency_p99"]["reason"] == "n/a (n=7): p99 needs 299 samples"
    assert info["workload"]["batch_size"] == 1
    assert info["protocol"]["min_rounds"] == 7
    params = {"framework": "noop", "model": "noop", "mode": "inference", "batch_size": 1, "precision": "fp32"}
    assert benchmarks[0]["params"] == params
    machine_info = data["machine_info"]
    assert machine_info["fwbench"]["threads"] >= 1
    assert machine_info["fwbench"]["versions"]["torch"]
    assert "hz_actual" not in machine_info["cpu"]
    result.stdout.fnmatch_lines(
        [
            "fwbench: 3 benchmarks, about * s (from rough figures, as no record of this machine has them)",
            "[[]1/3, * s left] noop-noop-inference-b1: */s*",
            "[[]3/3, * s left] noop-noop-inference-b3: *",
            "*fwbench: * profile on *",
            "model *throughput/s*p50*p95*p99*memory*J/sample*compile*speed-up",
            "noop *inference *1 *noop*",
            "journal: *; all of it: fwbench report *",
        ]
    )


@pytest.mark.parametrize(("option", "rounds"), [("--benchmark-min-rounds=11", 11), ("--benchmark-min-rounds=1", 1)])
def test_min_rounds_keeps_its_meaning(suite, option, rounds):
    result = run(suite, "--benchmark-only", "--benchmark-max-time=0", option, "-rP", "-k", "b1")
    result.stdout.fnmatch_lines([f"samples {rounds}"])


def test_a_marker_on_the_test_wins_over_the_command_line(suite):
    suite.makepyfile(
        test_suite=NOOP.replace("import fwbench", "import fwbench, pytest").replace(
            "@fwbench", "@pytest.mark.benchmark(min_rounds=13, group='mine')\n    @fwbench"
        )
    )
    result = run(suite, "--benchmark-only", "-rP", "-k", "b1", "--benchmark-columns=median", *FAST)
    result.stdout.fnmatch_lines(["samples 13"])
    result.stdout.fnmatch_lines(["*benchmark 'mine': 1 tests*"])


def test_disabled_means_one_smoke_call_and_no_record(suite):
    result = run(suite, "--benchmark-disable", "--benchmark-autosave", "-rP")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["samples 0"])
    assert not list(suite.path.glob(".benchmarks/**/*.json*"))


def test_skip_measures_nothing(suite):
    run(suite, "--benchmark-skip").assert_outcomes(skipped=3)
    assert not list(suite.path.glob(".benchmarks/journal/*"))


def test_the_next_run_knows_from_the_journal_how_long_it_takes(suite):
    run(suite, "--benchmark-only", "-k", "b1", *FAST)
    result = run(suite, "--benchmark-only", "--collect-only")
    result.stdout.fnmatch_lines(["fwbench: 3 benchmarks, about * s (1 from the record of *; 2 from rough figures, *)"])
    for nothing_is_measured in ("--benchmark-disable", "--benchmark-skip"):
        assert "benchmarks, about" not in run(suite, nothing_is_measured, "--collect-only").stdout.str()


@pytest.mark.parametrize(("option", "shown"), [((), False), (("-v",), True), (("--benchmark-columns=min",), True)])
def test_our_benchmarks_are_in_pytest_benchmarks_tables_where_these_are_asked_for(suite, given, option, shown):
    """Those of others, in the same run, always are."""
    suite.makepyfile(test_suite=f"{NOOP}\n    def test_other(benchmark):\n        benchmark(lambda: None)\n")
    result = run(suite, "--benchmark-only", "--benchmark-autosave", *option, *FAST)
    result.assert_outcomes(passed=4)
    tables = [line for line in result.outlines if line.startswith("-") and " benchmark" in line]
    assert any(": 1 tests" in line and "noop" not in line for line in tables)
    assert any("noop inference" in line for line in tables) == shown
    assert len(saved(suite)["benchmarks"]) == 4


@pytest.mark.slow
def test_group_by_histogram_and_profile_of_pytest_benchmark_work(suite):
    options = ("--benchmark-only", "--benchmark-histogram=plot", "--benchmark-cprofile=tottime")
    # What draws histograms does not survive that pytester unloads it.
    result = in_own_process(suite, *options, "--benchmark-group-by=param:model,param:batch_size", *FAST)
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["*benchmark 'model=noop batch_size=2': 1 tests*"])
    assert list(suite.path.glob("plot*.svg"))


@pytest.mark.slow
def test_compare_with_a_saved_run(suite, given):
    run(suite, "--benchmark-only", "--benchmark-autosave", *FAST)
    result = run(suite, "--benchmark-only", "--benchmark-compare", *FAST)
    result.assert_outcomes(passed=3)
    assert "machine_info is different" not in result.stderr.str()
    for source in ("0001_", "NOW"):
        result.stdout.fnmatch_lines([f"test_noop[[]noop-noop-inference-b1] ({source}*"])


def test_a_regression_does_not_hide_the_table(suite, given):
    run(suite, "--benchmark-only", "--benchmark-autosave", *FAST)
    (path,) = suite.path.glob(".benchmarks/*/*.json")
    data = json.loads(path.read_text())
    for benchmark in data["benchmarks"]:
        benchmark["stats"]["min"] /= 1e6
    path.write_text(json.dumps(data))
    result = run(suite, "--benchmark-only", "--benchmark-compare", "--benchmark-compare-fail=min:100%", "-v", *FAST)
    assert result.ret != 0
    result.stdout.fnmatch_lines(["*fwbench: * profile on *", "noop *inference *1 *noop*"])


@pytest.fixture
def killed_when_it_measures_two(monkeypatch):
    """The worker that measures batches of two is killed while it does, and is given time enough to be."""
    measure = Session.run

    def killing(self, workload, protocol, tell):
        def stage(name):
            tell(name)
            if name == "latency":
                (pid,) = grandchildren(os.getpid())
                os.kill(pid, signal.SIGKILL)

        if workload.batch_size != 2:
            return measure(self, workload, protocol, tell)
        return measure(self, workload, dataclasses.replace(protocol, max_time=60.0), stage)

    monkeypatch.setattr(Session, "run", killing)


def test_a_killed_worker_fails_its_test_and_the_rest_is_kept(suite, killed_when_it_measures_two):
    suite.makepyfile(test_suite=NOOP.replace('lanes=["noop"]', 'lanes=["noop"], modes=["fixed"]'))
    result = run(suite, "--benchmark-only", "--benchmark-autosave", *FAST)
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["*noop-noop-fixed-b2: crashed during latency: *SIGKILL*"])
    assert [b["params"]["batch_size"] for b in saved(suite)["benchmarks"]] == [1, 3]
    _, *records = journal(suite)
    assert [r["failure"] and r["failure"]["kind"] for r in records] == [None, "crashed", None]
    assert saved(suite)["fwbench"] == {"schema": SCHEMA, "failures": [records[1]]}


def test_a_batch_that_was_halved_stands_nowhere_under_the_batch_that_was_asked_for(suite, monkeypatch):
    """pytest-benchmark's files and tables know a benchmark by its name alone, and so would compare it."""
    measure = Server.measure

    def full(self, job, workload, tell, **options):
        if workload.batch_size < 3:
            return measure(self, job, workload, tell, **options)
        return Measurement(workload, failure=Failure("out_of_memory", "memory ran out"))

    monkeypatch.setattr(Server, "measure", full)
    suite.makepyfile(test_suite=NOOP.replace("[1, 2, 3]", "[1, 8]"))
    result = run(suite, "--benchmark-only", "--benchmark-autosave", "--fwbench-set=fit_batch=true", "-v", *FAST)
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(
        [
            "*noop-noop-inference-b8: *out of memory, again with batch 4, out of memory, again with batch 2, *"
            "at batch 2: *samples/s",
            "noop *inference *2 *noop (8 asked) *",
            "note: noop-noop-inference-b2: batch 8 was asked for, and 8 and 4 did not fit into memory (*",
        ]
    )
    _, halved = saved(suite)["benchmarks"]
    assert "b8" not in json.dumps({name: halved[name] for name in ("name", "fullname", "group", "param", "params")})
    assert halved["fullname"] == "test_suite.py::test_noop[noop-noop-inference-b2]"
    assert halved["params"]["batch_size"] == 2
    assert halved["extra_info"]["unfit"] == [8, 4]
    result = run(suite, "--benchmark-only", *FAST)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*b8: out_of_memory: memory ran out; choose a smaller batch than 8, or let *"])


def test_an_unavailable_framework_skips_with_the_reason(suite):
    suite.makepyfile(test_suite=NOOP.replace('lanes=["noop"]', 'lanes=["jax"]'))
    result = run(suite, "--benchmark-only", "-rs", *FAST)
    result.assert_outcomes(skipped=3)
    result.stdout.fnmatch_lines(["SKIPPED*noop names no network in JAX*"])
    # The line of progress says so, and no letter is glued to it.
    result.stdout.re_match_lines([r"\[1/3, .*: unavailable: noop names no network in JAX$"])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("--fwbench-models=resnet51", "*unknown model 'resnet51' in --fwbench-models: the nearest is 'resnet50'.*"),
        ("--fwbench-models=", "*unknown model '' in --fwbench-models: choose from resnet50,*"),
        ("--fwbench-lanes=mxnet", "*unknown lane 'mxnet' in --fwbench-lanes: choose from torch,*"),
        ("--fwbench-batch-sizes=0", "*--fwbench-batch-sizes: batch size 0 is not a whole number of at least 1*"),
        ("--fwbench-batch-sizes=1,x", "*--fwbench-batch-sizes: batch_size=x is not a whole number of at least 1*"),
        ("--fwbench-precision=fp8", "*unknown precision 'fp8'*"),
        ("--fwbench-precision=tf32", "*tf32 needs an NVIDIA GPU*ask for fp32 or bf16*"),
        ("--fwbench-set=weights=pretrained --fwbench-models=mlp", "*torchvision publishes no weights of mlp*"),
        ("--fwbench-python=jax=/no/such/python", "*there is no interpreter '/no/such/python'*"),
        ("--fwbench-python=python3", "*'python3' is not FRAMEWORK=PATH*"),
        ("-n2 --benchmark-autosave --fwbench-set=seed=1", "*--benchmark-autosave cannot work with -n*"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_4(suite, without_gpu, arguments, sentence):
    suite.makepyfile(test_suite=NOOP.replace('"noop", lanes=["noop"]', '"resnet50"'))
    refused(run(suite, *arguments.split()), sentence)
    assert not list(suite.path.glob(".benchmarks/**/*.json*"))


@needs("pretrained")
def test_weights_that_cannot_be_had_end_the_run_with_the_sentence_of_whoever_fetches_them(suite, monkeypatch):
    """That is the interpreter which has PyTorch; this one tells of its last argument alone."""
    python = suite.path / "python"
    python.write_text(
        "#!/bin/sh\necho 'a library warns' >&2\nfor name do :; done\necho \"no weights of $name\" >&2\nexit 1\n"
    )
    python.chmod(0o755)
    monkeypatch.setenv("FWBENCH_CACHE", str(suite.path / "cache"))
    suite.makepyfile(test_suite=NOOP.replace('"noop", lanes=["noop"]', '"resnet50"'))
    result = run(suite, "--fwbench-set=weights=pretrained", f"--fwbench-python=torch={python}")
    refused(result, "--fwbench-set weights=pretrained: no weights of resnet50.")
    assert not list(suite.path.glob(".benchmarks/**/*.json*"))


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--benchmark-autosave", "--benchmark-json=x.json"])
def test_a_parallel_run_that_would_save_nothing_fails_and_says_why(suite, option):
    result = in_own_process(suite, "-n1", option)
    result.assert_outcomes(errors=3)
    result.stdout.fnmatch_lines([f"*{option.partition('=')[0]} cannot work with -n*leave out -n*"])


@pytest.mark.slow
def test_parallel_runs_smoke_the_benchmarks(suite):
    in_own_process(suite, "-n2").assert_outcomes(passed=3)


def test_ids_and_markers_select(shipped, without_gpu):
    def collected(*arguments):
        result = run(shipped, "--collect-only", "-q", "--fwbench-profile=quick", *arguments)
        return [line.partition("[")[2].rstrip("]") for line in result.outlines if "test_inference[" in line]

    assert len(collected()) == 6 * 2 * 2
    assert collected("-k", "resnet50 and b1") == ["torch-resnet50-inference-b1", "jax-resnet50-inference-b1"]
    assert {i.partition("-")[0] for i in collected("-m", "jax")} == {"jax"}
    assert collected("--fwbench-lanes=torch-compile", "--fwbench-models=cnn", "--fwbench-batch-sizes=2") == [
        "torch-compile-cnn-inference-b2"
    ]
    assert len(collected("-m", "torch-compile", "--fwbench-profile=paper")) == 6 * 4


@pytest.mark.slow
def test_another_interpreter_measures(suite, without_gpu, tmp_path):
    """Its own versions and its own path are on the record."""
    wrapper = tmp_path / "python"
    wrapper.write_text(f'#!/bin/sh\nexport OMP_SCHEDULE=wrapped\nexec "{sys.executable}" "$@"\n')
    wrapper.chmod(0o755)
    suite.makepyfile(test_suite=NOOP.replace('"noop", lanes=["noop"]', '"mlp", lanes=["jax"]'))
    run(suite, "--benchmark-only", "--benchmark-json=x.json", f"--fwbench-python=jax={wrapper}", "-k", "b1", *FAST)
    (benchmark,) = json.loads((suite.path / "x.json").read_text())["benchmarks"]
    assert benchmark["extra_info"]["settings"]["OMP_SCHEDULE"] == "wrapped"


def test_a_benchmark_run_does_not_collect_what_imports_frameworks(shipped):
    for folder in ("correctness", "unit"):
        shipped.mkdir(folder).joinpath("test_x.py").write_text("raise SystemError('imported')\n")
    assert run(shipped, "--benchmark-only", "--collect-only", "-q").ret == 0
    assert run(shipped, "--collect-only", "-q").ret != 0


def test_pytest_benchmarks_own_command_reads_our_records(suite, given):
    run(suite, "--benchmark-only", "--benchmark-autosave", *FAST)
    suite.makeini("[pytest]\nfilterwarnings = error")
    command = (sys.executable, "-m", "pytest_benchmark", "compare")
    result = suite.run(*command, "--group-by=param:model,param:batch_size", "--columns=median")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*benchmark 'model=noop batch_size=2': 1 tests*"])


@pytest.mark.parametrize(("able", "status"), [((), 4), ((2,), 0)])
def test_a_run_in_which_nothing_could_be_measured_is_no_success(suite, monkeypatch, able, status):
    def measured(session, workload, protocol, tell=None):
        runs = workload.lane == "noop" or workload.batch_size in able
        failure = None if runs else Failure("unavailable", "the driver is too old")
        return Measurement(workload, () if failure else (0.1, 0.1), failure=failure)

    monkeypatch.setattr(Session, "run", measured)
    tests = NOOP.replace('"noop", lanes=["noop"]', '"mlp", lanes=["torch"]')
    # The harness's own benchmarks run everywhere.
    own = '@fwbench.benchmark("noop", lanes=["noop"], batch_sizes=[2])\n    def test_own(fwbench_measure):\n'
    suite.makepyfile(test_suite=f"{tests}\n    {own}        fwbench_measure()\n")
    done = run(suite, "--benchmark-only", *FAST)
    assert done.ret == status
    said = "ERROR: nothing could be measured: the driver is too old" in done.outlines
    assert said == (status == 4)
