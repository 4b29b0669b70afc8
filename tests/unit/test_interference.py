"""Real pytest runs, over measurements that are given, of which some were disturbed: measured again, kept or failed."""

import dataclasses
import json

import pytest

from fwbench.plugin.plan import Plan
from fwbench.plugin.session import Session
from fwbench.record.measurement import Failure, Measurement, Metric
from fwbench.record.reading import read
from tests.unit.suites import FAST as HASTY
from tests.unit.suites import benchmarks, in_process, refused
from tests.unit.suites import suite as noops

__all__ = ["noops"]

FAST = HASTY[:2]  # with patience
DISTURBED = "torch-mlp-inference-b2"


@pytest.fixture
def suite(noops):
    noops.makepyfile(test_suite=benchmarks("mlp", "torch"))
    return noops


@pytest.fixture
def found(monkeypatch):
    """What each process of the disturbed workload meets in turn: seconds of a call and other load, or a failure.

    A third number is the drift of its calls.
    """
    coming = []

    def run(self, workload, protocol, tell=None):
        met = coming.pop(0) if workload.id == DISTURBED else (1.0, 0.0)
        if isinstance(met, Failure):
            return Measurement(workload, failure=met)
        seconds, load, *drift = met
        metrics = {"throughput": Metric(1 / seconds, "given"), "other_load": Metric(load, "given")}
        metrics |= {"latency_drift": Metric(drift[0], "given")} if drift else {}
        return Measurement(workload, (seconds,) * 7, metrics, dataclasses.asdict(protocol))

    monkeypatch.setattr(Session, "run", run)
    return coming


@pytest.fixture
def quiet(monkeypatch):
    """Whether the machine becomes quiet, each time that somebody waits for it."""
    answers = []
    monkeypatch.setattr("fwbench.worker.client.workers.wait_for_quiet", lambda patience, **_: answers.pop(0))
    return answers


def measured(suite, *arguments):
    """A run; pytest's result, the saved benchmark that was disturbed, and what the journal says of it."""
    result = in_process(suite, "--benchmark-only", "--benchmark-json=run.json", *FAST, *arguments)
    saved = json.loads(suite.path.joinpath("run.json").read_text())
    (benchmark,) = (b for b in saved["benchmarks"] if DISTURBED in b["name"])
    journal = read(next(suite.path.glob(".benchmarks/journal/*.jsonl")))
    (kept,) = (m for m in journal.measurements if m.workload.id == DISTURBED)
    assert kept.samples == tuple(benchmark["stats"]["data"])
    return result, benchmark, kept


def test_what_was_disturbed_is_measured_again_at_once_and_the_first_attempt_stays_on_record(suite, found, quiet):
    found += [(8.0, 0.4), (2.0, 0.0)]
    quiet.append(True)
    result, benchmark, kept = measured(suite)
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines([f"*{DISTURBED}: disturbed and measured again, *"])
    assert (benchmark["stats"]["data"], benchmark["stats"]["median"]) == ([2.0] * 7, 2.0)
    assert benchmark["extra_info"]["metrics"]["throughput"]["value"] == 0.5
    (attempt,) = kept.attempts
    assert attempt["samples"] == [8.0] * 7
    assert attempt["metrics"]["other_load"]["value"] == 0.4
    assert not any("other processes used the CPUs" in line for line in result.outlines)
    told = f"note: measured a second time as the first attempt was disturbed: 1 ({DISTURBED})"
    assert told in result.outlines


@pytest.mark.parametrize("second", [(9.0, 0.45), Failure("crashed", "why")])
def test_a_second_attempt_that_is_worse_is_the_one_beside(suite, found, quiet, second):
    found += [(8.0, 0.4), second]
    quiet.append(True)
    result, benchmark, kept = measured(suite)
    result.assert_outcomes(passed=3)
    assert benchmark["stats"]["median"] == 8.0
    (attempt,) = kept.attempts
    assert (attempt["failure"] is None) == isinstance(second, tuple)
    assert any("other processes used the CPUs while 1 of 3 were measured" in line for line in result.outlines)


@pytest.mark.parametrize(
    ("first", "second", "kept"),
    [
        # The training step of an H100 that was dropped for one 1.54 times as slow, as its calls had drifted more.
        ((1 / 44_772, 0.0, 0.25), (1 / 29_079, 0.0, 0.15), 0),
        ((1 / 44_772, 0.0, 0.25), (1 / 29_079, 0.0), 0),
        # A little slower is scatter, and what the drift explains contradicts nothing.
        ((1.0, 0.0, 0.25), (1.1, 0.0), 1),
        ((1.0, 0.0, 0.9), (1.5, 0.0, 0.5), 1),
        # Nothing is known of either but that something slowed it.
        ((1.0, 0.9), (2.0, 0.9), 0),
        ((2.0, 0.9), (1.0, 0.9), 1),
    ],
)
def test_of_two_attempts_the_one_that_drifted_less_is_not_kept_where_the_other_was_faster(
    suite, found, quiet, first, second, kept
):
    found += [first, second]
    quiet.append(True)
    _, benchmark, _ = measured(suite)
    assert benchmark["stats"]["median"] == (first, second)[kept][0]


def test_while_other_load_goes_on_nothing_is_measured_again(suite, found, quiet):
    found.append((8.0, 0.4))
    quiet.append(False)
    result, _, kept = measured(suite)
    result.stdout.fnmatch_lines([f"*{DISTURBED}: disturbed, and other load goes on, *"])
    assert kept.attempts == ()


def test_without_patience_nothing_is_measured_again(suite, found, quiet):
    found.append((8.0, 0.4))
    result, _, kept = measured(suite, "--fwbench-set=patience=0")
    assert not any("measured again" in line for line in result.outlines)
    assert kept.attempts == ()


def test_what_is_measured_again_takes_nothing_from_the_turns(suite, found, quiet, monkeypatch):
    found.append((8.0, 0.4))
    suite.makepyfile(test_suite=benchmarks("mlp", 'torch", "jax'))
    monkeypatch.setattr("fwbench.plugin.turning.Turning.take", lambda *_: None)
    # Measuring would end after the minutes.
    monkeypatch.setattr(Plan, "left", 4 * 60.0)
    result, _, kept = measured(suite, "--fwbench-minutes=5")
    assert not any("measured again" in line for line in result.outlines)
    assert kept.attempts == ()


def test_each_is_measured_again_once_and_the_patience_is_for_all_of_them(suite, monkeypatch, found):
    """As long as one waits, so much less is left for the others."""
    suite.makepyfile(test_suite=benchmarks("mlp", "torch", sizes=(2,)))
    found += [(8.0, 0.4), (4.0, 0.3)]
    given = []

    def wait(patience, **_):
        given.append(patience)
        return True

    monkeypatch.setattr("fwbench.worker.client.workers.wait_for_quiet", wait)
    _, _, kept = measured(suite, "--fwbench-set=patience=7")
    assert given == [7]
    assert (kept.samples[0], len(kept.attempts)) == (4.0, 1)


def test_a_gate_judges_the_second_attempt(suite, found, quiet):
    found += [(2.0, 0.0)] * 5
    assert (
        in_process(suite, "--benchmark-only", "--fwbench-set=processes=5", "--benchmark-json=base.json", *FAST).ret == 0
    )
    found += [(90.0, 0.1)] * 5 + [(2.0, 0.0)] * 5
    quiet.append(True)
    gate = ("--fwbench-gate", "--fwbench-set=processes=5", "--benchmark-compare=base.json")
    result = in_process(suite, "--benchmark-only", *gate, *FAST)
    result.stdout.fnmatch_lines(["3 benchmarks: 3 unchanged"])
    assert result.ret == 0


@pytest.mark.parametrize("given", [" -1", "=nan"])
def test_patience_is_a_number_of_seconds(suite, given):
    result = in_process(suite, "--benchmark-only", f"--fwbench-set=patience={given[1:]}")
    refused(result, f"--fwbench-set: patience{given} is not a whole number of at least 0.")


@pytest.mark.parametrize(
    ("options", "differs", "code"), [([], True, 0), (["different"], True, 1), (["different"], False, 0)]
)
def test_lanes_that_differ_fail_a_run_that_asks_for_it(suite, found, monkeypatch, options, differs, code):
    monkeypatch.setattr("fwbench.plugin.ending.differ", lambda cases: differs)
    found.append((1.0, 0.0))
    result = in_process(suite, "--benchmark-only", *FAST, *(f"--fwbench-fail={option}" for option in options))
    assert result.ret == code


def test_a_threshold_needs_a_gate_whatever_stands_beside_it(suite):
    result = in_process(suite, "--fwbench-fail=different", "--fwbench-fail=latency:5%")
    refused(result, "--fwbench-fail is about a gate: *")
