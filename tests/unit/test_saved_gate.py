"""`--fwbench-gate` in real pytest runs, over measurements that are given: held to slower and to faster baselines."""

import dataclasses
import itertools
import json

import pytest
from pytest_benchmark.utils import get_machine_id

from fwbench.plugin.session import Session
from fwbench.record.measurement import Failure, Measurement, Metric
from tests.unit.recorded import plain, write
from tests.unit.recorded import saved as as_saved
from tests.unit.suites import FAST, benchmarks, ended, in_process, refused
from tests.unit.suites import suite as noops
from tests.unit.test_evidence import HEADER, runs

__all__ = ["noops"]

SUITE = benchmarks("mlp", "torch")
BENCHMARKS = [f"torch-mlp-inference-b{size}" for size in (1, 2, 3)]


@pytest.fixture
def suite(noops, given):
    noops.makepyfile(test_suite=SUITE)
    return noops


@pytest.fixture
def given(monkeypatch):
    """What any process finds on a machine that does nothing else; workloads in the list it gives fail."""
    levels, failing = itertools.cycle([0.99, 1.0, 1.01, 0.995, 1.005]), []

    def measured(self, workload, protocol, tell=None):
        if workload.id in failing:
            return Measurement(workload, failure=Failure("error", "why"))
        seconds = next(levels)
        metrics = {"throughput": Metric(1 / seconds, "given"), "other_load": Metric(0.0, "given")}
        return Measurement(workload, (seconds,) * 7, metrics, dataclasses.asdict(protocol))

    monkeypatch.setattr(Session, "run", measured)
    return failing


def marked(threshold):
    """The suite, its test marked with this."""
    return benchmarks("mlp", "torch", marks=dict.fromkeys((1, 2, 3), f"pytest.mark.fwbench_fail({threshold})"))


@pytest.fixture(scope="module")
def measured():
    """The text of a baseline by five processes, once a test has made it."""
    return []


@pytest.fixture
def baseline(suite, measured):
    """Writes a baseline of the three benchmarks, against which times are worse by a factor; returns its path."""
    if not measured:
        arguments = ("--benchmark-only", "--fwbench-set=processes=5", "--benchmark-json=measured.json", *FAST)
        assert in_process(suite, *arguments).ret == 0
        measured.append(suite.path.joinpath("measured.json").read_text())

    def make(worse, change=lambda record: None, name="baseline.json"):
        record = json.loads(measured[0])
        for benchmark in record["benchmarks"]:
            for process in benchmark["extra_info"]["processes"]:
                process["latency"] /= worse
                process["throughput"] *= worse
        change(record)
        path = suite.path / name
        path.write_text(json.dumps(record))
        return path

    return make


@pytest.fixture
def gate(suite):
    """Runs the suite through the gate; returns pytest's result."""

    def go(path, *arguments, processes=5):
        given = (f"--benchmark-compare={path}", f"--fwbench-set=processes={processes}", *FAST, *arguments)
        return in_process(suite, "--benchmark-only", "--fwbench-gate", *given)

    return go


def nothing_was_measured(suite):
    return not list(suite.path.glob(".benchmarks/journal/*"))


def test_the_same_regression_fails_every_time_also_where_each_run_is_saved(suite, baseline, gate):
    path = baseline(2.0)
    for saved in (1, 2):
        result = ended(gate(path, "--benchmark-autosave", "--fwbench-summary=out.md"), 1, passed=3)
        for benchmark in BENCHMARKS:
            result.stdout.fnmatch_lines([f"{benchmark} *latency *5 and 5 processes *regressed"])
        result.stdout.fnmatch_lines([f"this run, against {path}", "3 benchmarks: 3 regressed"])
        assert len(list(suite.path.glob(".benchmarks/*/*.json"))) == saved
    text = suite.path.joinpath("out.md").read_text()
    assert text.startswith("**fwbench: 3 benchmarks: 3 regressed**\n\n| benchmark |")


def test_a_faster_run_passes_whatever_pytest_benchmark_holds_beside_it(baseline, gate):
    def with_plain(record):
        stats = {name: record["benchmarks"][0]["stats"][name] for name in ("median", "mean", "stddev", "rounds")}
        record["benchmarks"].append({"name": "gone", "fullname": "x.py::gone", "extra_info": {}, "stats": stats})

    ended(gate(baseline(0.5, with_plain)), 0, "3 benchmarks: 3 improved")


def test_what_is_not_run_is_missing_unless_it_was_left_out(suite, baseline, gate):
    path = baseline(0.5)
    ended(gate(path, "-k", "b1"), 0, "1 benchmark: 1 improved")
    suite.makepyfile(test_suite=benchmarks("mlp", "torch", [1, 2, 4]))
    ended(
        gate(path),
        1,
        "torch-mlp-inference-b3: missing: in the baseline, not measured",
        "torch-mlp-inference-b4: new: not in the baseline",
        "4 benchmarks: 1 missing, 2 improved, 1 new",
    )


def on_the_third(marker):
    return benchmarks("mlp", "torch", marks={3: f"pytest.mark.{marker}"})


@pytest.mark.parametrize("marker", ["skip", "skipif(True, reason='known')"])
def test_what_is_skipped_was_left_out(suite, baseline, gate, marker):
    suite.makepyfile(test_suite=on_the_third(marker))
    ended(gate(baseline(0.5)), 0, "2 benchmarks: 2 improved")


@pytest.mark.parametrize(("marker", "code"), [("xfail", 0), ("filterwarnings('error')", 1)])
def test_a_failure_that_is_expected_is_told_and_forgiven(suite, baseline, gate, given, marker, code):
    suite.makepyfile(test_suite=on_the_third(marker))
    path = baseline(0.5)
    given.append(BENCHMARKS[2])
    ended(gate(path), code, "3 benchmarks: 1 failed, 2 improved")


@pytest.mark.parametrize("value", [{"extra_info": []}, None])
def test_a_damaged_benchmark_of_the_baseline_does_not_pass(suite, baseline, gate, recwarn, value):
    """Nor does pytest-benchmark, which would compare with the baseline too, warn of what it makes of that."""

    def damage(record):
        record["benchmarks"][1] = value and {**record["benchmarks"][1], **value}

    ended(gate(baseline(1.0, damage)), 4, "*: not comparable: the baseline holds it, but damaged: benchmark 2: *")
    assert [str(warning.message) for warning in recwarn if "Failed to load" in str(warning.message)] == []


def test_a_damaged_benchmark_that_is_deselected_is_nobodys_business(suite, baseline, gate):
    def damage(record):
        record["benchmarks"][1]["extra_info"]["stages"] = 3

    assert gate(baseline(1.0, damage), "-k", "b1").ret == 0


def test_a_gate_over_nothing_is_no_gate(baseline, gate):
    ended(gate(baseline(1.0), "-k", "nothing"), 4, "all: not comparable: this run holds no measured benchmark")


@pytest.mark.parametrize(("worse", "code", "verdict"), [(1.5, 0, "inconclusive"), (10.0, 1, "regressed")])
def test_one_process_a_side_guesses_nothing_below_a_factor_of_two(suite, baseline, gate, worse, code, verdict):
    def alone(record):
        for benchmark in record["benchmarks"]:
            del benchmark["extra_info"]["processes"][1:]

    # By its number, as one that was kept by --benchmark-autosave.
    kept = suite.path / ".benchmarks" / get_machine_id()
    kept.mkdir(parents=True)
    baseline(worse, alone, kept / "0001_of_yesterday.json")
    ended(
        gate("0001", processes=1),
        code,
        f"{BENCHMARKS[0]} *latency *1 and 1 process *{verdict}",
        f"3 benchmarks: 3 {verdict}",
    )


def slower_and_slower(suite, baseline):
    """Ten kept runs, each 3 % slower than the one before, as this run is than the last."""
    kept = suite.path / ".benchmarks" / get_machine_id()
    kept.mkdir(parents=True, exist_ok=True)
    for day in range(10):
        made = {"datetime": f"2026-01-{day + 1:02d}T00:00:00+00:00"}
        baseline(1.03 ** (10 - day), lambda record, made=made: record.update(made), kept / f"{day + 1:04d}_kept.json")
    return kept


def test_ten_runs_each_a_little_slower_pass_one_by_one_and_fail_beside_the_best(suite, baseline, gate):
    kept = slower_and_slower(suite, baseline)
    ended(
        gate("0010"),
        1,
        f"{BENCHMARKS[0]} *latency * 5 runs and 5 processes *regressed",
        "*: regressed: beside the best of the earlier runs, from 2026-01-01 00:00 * on; `fwbench history` shows *",
        "3 benchmarks: 3 regressed",
    )
    # Whoever keeps a baseline apart from the runs, made after them, has accepted what they came to.
    (kept / "0010_kept.json").rename(suite.path / "accepted.json")
    ended(gate("accepted.json"), 0, "3 benchmarks: 3 unchanged")


def test_a_kept_run_that_cannot_be_read_is_told(suite, baseline, gate):
    kept = slower_and_slower(suite, baseline)
    (kept / "0001_kept.json").write_text("{")
    ended(gate("0010"), 1, "left out of the series: *0001_kept.json is not JSON *")


def test_a_machine_whose_runs_differ_much_is_not_believed(suite, baseline, gate):
    path = baseline(2.0)
    machine = json.loads(path.read_text())["machine_info"]["fwbench"]
    (suite.path / ".benchmarks").mkdir(exist_ok=True)
    write(suite.path / ".benchmarks" / "selftest.jsonl", [{**HEADER, "machine": machine}, *runs([1.0, 3.0] * 5)])
    ended(gate(path), 0, "3 benchmarks: 3 inconclusive")


def test_the_harness_itself_is_not_gated(suite, baseline, gate):
    path = baseline(0.5)
    suite.makepyfile(test_suite=SUITE, test_harness=benchmarks())
    ended(gate(path), 0, "3 benchmarks: 3 improved", passed=3, deselected=3)


def another(name, value):
    def change(record):
        record["machine_info"]["fwbench"][name] = value

    return change


def paper(record):
    for benchmark in record["benchmarks"]:
        benchmark["extra_info"]["protocol"]["profile"] = "paper"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (another("threads", 99), "threads differs: 99 in the baseline, * here"),
        (another("cpu", "Another CPU"), "cpu differs: Another CPU in the baseline, * here"),
        (paper, "profile differs: paper in the baseline, * here"),
    ],
)
def test_another_machine_or_profile_is_refused_before_anything_is_measured(suite, baseline, gate, change, reason):
    path = baseline(2.0, change)
    for journal in suite.path.glob(".benchmarks/journal/*"):
        journal.unlink()
    renew = "Renew the baseline, or add --fwbench-gate=allow-mismatch."
    refused(gate(path), f"{path} is not comparable: {reason}. {renew}")
    assert nothing_was_measured(suite)


@pytest.mark.filterwarnings("ignore:Benchmark machine_info is different")
def test_another_machine_may_be_allowed(baseline, gate):
    path = baseline(2.0, another("cpu", "Another CPU"))
    assert gate(path, "--fwbench-gate=allow-mismatch", "-k", "b1").ret == 1


def test_a_journal_is_a_baseline_too(suite, baseline, gate):
    record = json.loads(baseline(2.0).read_text())
    header = {"schema": record["fwbench"]["schema"], "started": record["datetime"], "profile": "quick"}
    machine = {name: value for name, value in record["machine_info"]["fwbench"].items() if name != "versions"}
    lines = [header | {"machine": machine}, *(benchmark["extra_info"] for benchmark in record["benchmarks"])]
    path = write(suite.path / "baseline.jsonl", lines)
    result = ended(gate(path), 1, f"this run, against {path}", "3 benchmarks: 3 regressed")
    assert result.stderr.str() == ""


def test_an_options_threshold_is_the_suites_and_a_markers_its_tests(suite, baseline, gate):
    path = baseline(2.0)
    wide = ("latency:1000%", "throughput:100%")
    assert gate(path, *(f"--fwbench-fail={text}" for text in wide)).ret == 0
    # A metric of the other gate, for when this test is in a duet.
    suite.makepyfile(test_suite=marked(", ".join(map(repr, (*wide, "cpu_time:5%")))))
    assert gate(path).ret == 0


@pytest.mark.parametrize(
    ("marker", "sentence"),
    [
        ("'speed:5%'", "unknown metric 'speed' in the marker fwbench_fail of test_suite.py::test_*"),
        ("5", "the marker fwbench_fail of test_suite.py::test_* takes its thresholds as text: *"),
        ("latency='5%'", "the marker fwbench_fail of test_suite.py::test_* takes its thresholds as text: *"),
        ("", "the marker fwbench_fail of test_suite.py::test_* takes its thresholds as text: *"),
    ],
)
def test_a_marker_that_is_no_threshold_is_one_sentence_and_no_report(suite, baseline, gate, marker, sentence):
    suite.makepyfile(test_suite=marked(marker))
    result = gate(baseline(1.0))
    assert result.ret == 4
    result.stderr.fnmatch_lines([f"ERROR: {sentence}"])
    result.stdout.no_fnmatch_line("*fwbench: gate*")


def test_collecting_is_no_run(baseline, gate):
    result = gate(baseline(1.0), "--collect-only")
    assert result.ret == 0
    result.stdout.no_fnmatch_line("*fwbench: gate*")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("--fwbench-gate", "--fwbench-gate needs a baseline: --benchmark-compare=PATH, or its number, *"),
        ("--fwbench-gate --benchmark-compare", "--benchmark-compare names no baseline, and the newest run may *"),
        ("--fwbench-gate --benchmark-compare=", "--benchmark-compare names no baseline, and the newest run may *"),
        ("--fwbench-gate --benchmark-compare=0001", "*=0001 is no file, and no record in * is named so."),
        ("--fwbench-gate --benchmark-compare=a/b/c", "*=a/b/c is no file, and no record in * is named so."),
        ("--fwbench-gate --benchmark-compare=.", "--benchmark-compare=. is a folder: name one record in it."),
        ("--fwbench-gate --benchmark-compare=plain.json", "*=plain.json holds no benchmark of fwbench's, and *"),
        ("--fwbench-gate --benchmark-compare=test_suite.py", "--benchmark-compare: test_suite.py is not JSON *"),
        ("--fwbench-gate --fwbench-against=HEAD", "--fwbench-against cannot work with --fwbench-gate: *"),
        ("--fwbench-gate --benchmark-disable", "--benchmark-disable measures nothing for --fwbench-gate*"),
        ("--fwbench-gate --benchmark-skip", "--benchmark-skip measures nothing for --fwbench-gate*"),
        ("--fwbench-gate -n2", "--fwbench-gate cannot work with -n*"),
        ("--fwbench-gate --fwbench-summary=none/x.md", "--fwbench-summary none/x.md cannot be written (No such *"),
        ("--fwbench-gate --fwbench-summary=", "--fwbench-summary . cannot be written (Is a directory)."),
        ("--fwbench-gate --fwbench-fail=", "--fwbench-fail '' is not METRIC:PERCENT%*"),
        ("--fwbench-gate --fwbench-fail=mean:5%", "unknown metric 'mean' in --fwbench-fail: *"),
        ("--fwbench-gate --fwbench-fail=cpu_time:5%", "cpu_time in --fwbench-fail is not measured by this gate: *"),
        ("--fwbench-summary=x.md", "--fwbench-summary is about a gate: add --fwbench-against, --fwbench-gate or *"),
        ("--fwbench-fail=latency:5%", "--fwbench-fail is about a gate: add --fwbench-against or --fwbench-gate, *"),
        ("--fwbench-fail=", "--fwbench-fail is about a gate: add --fwbench-against or --fwbench-gate, *"),
        (
            "--fwbench-gate --fwbench-against=",
            "--fwbench-against cannot work with --fwbench-gate: they are different gates. *",
        ),
        ("--fwbench-gate=mismatch", "--fwbench-gate has no value 'mismatch': the nearest is 'allow-mismatch'."),
        ("--fwbench-gate=", "--fwbench-gate has no value '': choose from allow-mismatch."),
        ("--fwbench-devices=2 --fwbench-against=HEAD", "--fwbench-devices cannot work with --fwbench-against: *"),
        ("--fwbench-devices=2 --fwbench-programs-only", "--fwbench-devices cannot work with --fwbench-programs-only*"),
        (
            "--fwbench-programs-only --benchmark-autosave",
            "--fwbench-programs-only cannot work with --benchmark-autosave: *",
        ),
        (
            "--fwbench-programs-only --benchmark-compare-fail=min:5%",
            "--fwbench-programs-only cannot work with --benchmark-compare-fail: *",
        ),
        ("--fwbench-programs-only=h10", "--fwbench-programs-only has no value 'h10': the nearest is 'h100'."),
        ("--fwbench-set=processes=0", "--fwbench-set: processes 0 is not a whole number of at least 1."),
    ],
)
def test_bad_input_is_one_sentence_and_exit_4(suite, arguments, sentence):
    write(suite.path / "plain.json", {**as_saved(), "benchmarks": [plain()]})
    refused(in_process(suite, *arguments.split()), sentence)
    assert nothing_was_measured(suite)


def test_the_summary_of_a_refused_gate_has_the_reason(suite):
    path = suite.path / "out.json"
    in_process(suite, "--fwbench-gate", "--benchmark-compare=0001", f"--fwbench-summary={path}")
    found = json.loads(path.read_text())
    assert found["exit_code"] == 4
    assert "0001 is no file" in found["notes"][0]
