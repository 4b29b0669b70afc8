"""`--fwbench-programs-only` in real pytest runs, over workers whose programs a test plants."""

import dataclasses
import json
from types import SimpleNamespace

import pytest

from fwbench.plugin.session import Session
from fwbench.record.fingerprint import Fingerprint
from fwbench.record.measurement import Failure, Measurement
from fwbench.record.workload import Workload
from tests.unit.suites import benchmarks, ended, suite
from tests.unit.suites import in_process as run

__all__ = ["suite"]

ALL = {1: 5, 2: 6, 3: 7}


@pytest.fixture
def planted(monkeypatch):
    """What workers say of programs, by batch size: how many `adds` they have, and `changes` of their measurements.

    No worker is started for them, unless they are `real`.
    """
    found, measure = SimpleNamespace(adds={}, changes={}, real=False), Session.run

    def run(self, workload, protocol, tell=lambda _: None):
        adds = found.adds.get(workload.batch_size)
        measured = found.real or adds is None
        measurement = measure(self, workload, protocol, tell) if measured else Measurement(workload)
        if adds is None:
            return measurement
        program = Fingerprint(form="fake", digest=f"digest of {adds} adds", operators={"add": adds})
        change = {"program": program, "failure": None, **found.changes.get(workload.batch_size, {})}
        return dataclasses.replace(measurement, protocol=protocol.to_json(), **change)

    monkeypatch.setattr(Session, "run", run)
    return found


@pytest.fixture
def programs(suite, planted):
    """Runs the suite over planted programs (adds by batch size); returns pytest's result."""

    def go(adds, *arguments):
        planted.adds = adds
        return run(suite, "--fwbench-programs-only", *arguments)

    return go


@pytest.fixture
def baseline(suite, programs):
    """A journal that a run of all three made."""
    result = programs(ALL)
    assert result.ret == 0
    (journal,) = suite.path.glob(".benchmarks/journal/*.jsonl")
    result.stdout.fnmatch_lines([f"no baseline was given, nothing was compared;*--benchmark-compare={journal}"])
    return journal.rename(suite.path / "programs.jsonl")


@pytest.fixture
def compared(programs, baseline):
    """Runs the suite over planted programs, which are compared with those of the baseline."""
    return lambda adds, *arguments: programs(adds, f"--benchmark-compare={baseline}", *arguments)


def test_the_same_programs_pass_and_nothing_is_timed(suite, planted, compared):
    planted.real = True
    ended(
        compared(ALL),
        0,
        "this run, against *programs.jsonl",
        "*-b1, *-b2, *-b3: unchanged: same program, same compiler: a difference in time is the machine's",
        "3 benchmarks: 3 unchanged",
    )
    (journal,) = suite.path.glob(".benchmarks/journal/*.jsonl")
    _, *records = map(json.loads, journal.read_text().splitlines())
    assert [record["samples"] for record in records] == [[], [], []]
    assert "latency" not in records[0]["stages"]


def test_a_changed_program_fails_its_test_until_the_baseline_is_renewed(suite, compared):
    changed = ALL | {2: 9}
    for _ in range(2):
        result = ended(
            compared(changed),
            1,
            "noop-noop-inference-b2: 3 more add",
            "*fwbench: programs*",
            "noop-noop-inference-b2: changed: 3 more add",
            "3 benchmarks: 1 changed, 2 unchanged",
            passed=2,
            failed=1,
        )
    (renewal,) = [line for line in result.outlines if line.startswith("to accept these programs: ")]
    assert suite.run(*renewal.partition(": ")[2].split()).ret == 0
    assert compared(changed).ret == 0


def test_a_program_that_is_in_no_run_any_more_fails_and_a_new_one_does_not(suite, compared):
    suite.makepyfile(test_suite=benchmarks(sizes=[1, 2, 4]))
    ended(
        compared(ALL | {4: 1}),
        1,
        "noop-noop-inference-b3: missing: in the baseline, not run",
        "noop-noop-inference-b4: new: not in the baseline",
        passed=3,
    )


def test_a_batch_that_was_halved_leaves_the_one_that_was_asked_for_missing(without_gpu, planted, compared):
    planted.changes = {3: {"workload": Workload("noop", "noop", batch_size=2), "unfit": (3,)}}
    result = compared({1: 5, 2: 6, 3: 6})
    result.assert_outcomes(passed=3)
    missing = "*-b3: missing: in the baseline, not available here: batch 3 was asked for, and 3 did not fit into memory"
    result.stdout.fnmatch_lines([missing, "3 benchmarks: 1 missing, 2 unchanged"])


def test_what_is_left_out_on_purpose_is_not_missing(compared):
    result = compared(ALL, "-k", "b1")
    assert result.ret == 0
    result.stdout.no_fnmatch_line("*: missing: *")
    # Its journal would be a baseline without the others.
    ended(compared(ALL | {1: 9}, "-k", "b1"), 1, "to accept these programs, run all of them and *")


def test_a_gate_over_nothing_is_no_gate(suite, compared):
    suite.makepyfile(test_suite=benchmarks(sizes=[5]))
    ended(compared({5: 1}), 4, "all: not comparable: the baseline holds none of these programs: *")


def test_a_damaged_program_of_the_baseline_does_not_pass(compared, baseline):
    header, first, second, *rest = map(json.loads, baseline.read_text().splitlines())
    second["samples"] = 3
    baseline.write_text("".join(f"{json.dumps(line)}\n" for line in (header, first, second, *rest)))
    ended(
        compared(ALL),
        4,
        "noop-noop-inference-b2: not comparable: the baseline holds it, but damaged: line 3: samples: *",
        "3 benchmarks: 1 not comparable, 2 unchanged",
    )
    assert compared(ALL, "-k", "b1").ret == 0


def test_a_program_that_the_baseline_holds_twice_is_compared_where_both_are_alike(compared, baseline):
    first, *lines = baseline.read_text().splitlines(keepends=True)
    baseline.write_text("".join([first, *lines, lines[1]]))
    assert compared(ALL).ret == 0
    baseline.write_text("".join([first, *lines, lines[1].replace("digest of 6 adds", "digest of 9 adds")]))
    ended(compared(ALL), 4, "*-b2: not comparable: the baseline holds it twice, with different programs")


def test_what_is_skipped_is_not_missing(suite, compared):
    suite.makepyfile(test_suite=benchmarks(marks={3: "pytest.mark.skip"}))
    ended(compared(ALL), 0, passed=2, skipped=1)


def test_a_changed_program_that_is_expected_is_told_and_forgiven(suite, compared):
    suite.makepyfile(test_suite=benchmarks(marks={3: "pytest.mark.xfail"}))
    ended(compared(ALL | {3: 9}), 0, "noop-noop-inference-b3: changed: 2 more add")


def test_a_summary_says_what_changed(suite, compared):
    result = compared(ALL | {2: 9}, "--fwbench-summary=summary.md")
    assert result.ret == 1
    text = suite.path.joinpath("summary.md").read_text()
    assert text.startswith("**fwbench: 3 benchmarks: 1 changed, 2 unchanged**\n\n- noop-noop-inference-b2: changed: 3 ")


@pytest.mark.parametrize(
    ("change", "code", "lines"),
    [
        ({"failure": Failure("error", "why")}, 1, ["*-b3: failed: why", "3 benchmarks: 1 failed, 2 unchanged"]),
        ({"failure": Failure("unavailable", "why")}, 1, ["*-b3: missing: in the baseline, not available here: why"]),
        ({"program": Fingerprint.untold("why")}, 1, ["*-b3: missing: no program to compare: why"]),
    ],
)
def test_a_program_that_cannot_be_told_any_more_is_no_pass(compared, planted, change, code, lines):
    planted.changes[3] = change
    ended(compared(ALL), code, *lines)


def test_what_neither_run_can_tell_is_not_judged(suite, programs):
    """The harness itself has no program."""
    told = {size: adds for size, adds in ALL.items() if size != 3}
    assert programs(told).ret == 0
    (journal,) = suite.path.glob(".benchmarks/journal/*.jsonl")
    ended(programs(told, f"--benchmark-compare={journal}"), 0, "2 benchmarks: 2 unchanged")
    # The first time that it can be told.
    ended(
        programs(ALL, f"--benchmark-compare={journal}"),
        0,
        "*-b3: new: the baseline has no program: *",
        "3 benchmarks: 1 new, 2 unchanged",
    )


@pytest.mark.slow
def test_a_timed_record_is_a_baseline_too(suite, programs, planted):
    planted.adds, planted.real = ALL, True
    run(suite, "--benchmark-only", "--benchmark-json=timed.json", "--benchmark-max-time=0", "--benchmark-min-rounds=5")
    assert programs(ALL, "--benchmark-compare=timed.json").ret == 0
    ended(
        programs(ALL | {1: 6}, "--benchmark-compare=timed.json"),
        1,
        "to accept these programs, make this run's journal the baseline: *",
    )


@pytest.mark.slow
def test_programs_for_a_gpu_that_is_not_here_are_held_to_that_gpus(suite, programs):
    assert programs(ALL, "--fwbench-programs-only=a100").ret == 0
    (journal,) = suite.path.glob(".benchmarks/journal/*.jsonl")
    compare = f"--benchmark-compare={journal}"
    ended(
        programs(ALL | {2: 9}, compare, "--fwbench-programs-only=a100"),
        1,
        "noop-noop-inference-b2-a100: changed: 3 more add",
        "3 benchmarks: 1 changed, 2 *",
    )
    for options, here in ((["--fwbench-programs-only=h100"], "h100"), ([], "the device at hand")):
        ended(programs(ALL, compare, *options), 4, f"*: the baseline's programs are for a100, and these for {here}: *")


def test_a_lane_that_compiles_for_no_other_device_says_so_once(suite):
    ended(
        run(suite, "--fwbench-programs-only=h100"),
        0,
        "3 not available here: the lane cannot compile for a device that is not here",
        skipped=3,
    )


def test_what_follows_the_option_may_be_the_tests(suite):
    ended(run(suite, "--fwbench-programs-only", "test_suite.py", "--collect-only", "-q"), 0, "*3 tests collected*")


def test_a_summary_without_a_baseline_is_refused(suite):
    assert run(suite, "--fwbench-programs-only", "--fwbench-summary=x.md").ret == pytest.ExitCode.USAGE_ERROR
