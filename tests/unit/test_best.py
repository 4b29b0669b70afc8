"""The gate against the best level of earlier runs: what it finds, and how often without a change."""

import dataclasses
import math
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from fwbench.compare import best as bests
from fwbench.compare import saved, testing
from fwbench.compare.best import Earlier, best
from fwbench.compare.criteria import CRITERIA
from fwbench.compare.saved import compare
from fwbench.record.measurement import Metric
from fwbench.record.reading import Record
from tests.unit.recorded import MACHINE, measured, metric
from tests.unit.test_saved import gaussian, heavy_tails
from tests.unit.test_saved import loaded_suites as saved_suites

LATENCY = {"latency": CRITERIA["latency"].saved}
LEVELS = (0.99, 1.0, 1.01, 0.995, 1.005)
BEGUN = datetime(2026, 11, 1, tzinfo=UTC)


def runs(*values):
    return [Earlier(value, f"run {number}") for number, value in enumerate(values)]


def test_the_best_level_is_five_runs_in_a_row():
    found = best(runs(3.0, 3.0, 1.0, 3.0, 2.0, 2.0, 2.0, 2.0, 2.0, 3.0, 3.0), "lower")
    # A single fast run is none; the first five whose median is as good are.
    assert (found.value, found.runs, found.where, found.choices) == (2.0, 5, "run 1", 7)
    found = best(runs(3.0, 3.0, 9.0, 3.0, 4.0, 4.0, 4.0, 4.0, 4.0, 3.0, 3.0), "higher")
    assert found.value == 4.0


def test_fewer_runs_have_no_level():
    assert best(runs(1.0, 1.0, 1.0, 1.0), "lower") is None
    assert bests.state(runs(1.0, 2.0, 1.0, 2.0)) == (0.0, math.inf)


@pytest.mark.parametrize("scale", [0.01, 0.05])
def test_how_far_runs_differ_is_told_whatever_has_changed_between(scale):
    draw = np.random.default_rng(1)
    logarithms = draw.normal(0, scale, 400) + 0.5 * (np.arange(400) > 200)
    found, degrees = bests.state(runs(*np.exp(logarithms)))
    assert found == pytest.approx(scale, rel=0.15)
    assert degrees == pytest.approx(0.37 * 399)


# Verdicts


def record(number, *measurements, machine=MACHINE):
    return Record(
        Path(f"{number:04d}.json"),
        BEGUN + timedelta(days=number),
        commit={"id": f"{number:040d}"},
        machine=machine,
        # No two measurements take the same time.
        measurements=tuple(
            dataclasses.replace(m, stages={"latency": number + 0.01 * place}) for place, m in enumerate(measurements)
        ),
    )


def several(factor, processes=5, load=0.0, **fields):
    values = tuple({"latency": factor * level} for level in LEVELS[:processes])
    return measured(processes=values, metrics={"other_load": Metric(load, "/proc/stat")}, **fields)


def frog(processes=5, count=10, **fields):
    """Runs, each 3 % slower than the one before."""
    return [record(number, several(1.03**number, processes, **fields)) for number in range(count)]


def verdict(base, head, earlier, thresholds=LATENCY, **options):
    (finding,) = compare(base, head, thresholds, earlier=earlier, **options).findings
    return finding


@pytest.mark.parametrize("processes", [1, 5])
def test_ten_runs_each_three_percent_slower_pass_one_by_one_and_fail_against_the_best(processes):
    earlier = frog(processes)
    for number in range(1, 10):
        assert verdict(earlier[number - 1], earlier[number], []).kind in ("unchanged", "inconclusive")
    finding = verdict(earlier[8], earlier[9], earlier[:9])
    assert finding.kind == "regressed"
    assert finding.verdict.ratio == pytest.approx(1.03**7, rel=0.001)
    assert finding.replicates == f"5 runs and {processes} process{'es' * (processes > 1)}"
    assert finding.note == (
        f"beside the best of the earlier runs, from 2026-11-01 00:00 (commit {'0' * 10}) on; `fwbench history` shows "
        "when it became worse"
    )


def test_what_is_worse_beside_the_baseline_too_is_told_of_the_baseline():
    earlier = frog()
    finding = verdict(earlier[0], earlier[9], earlier[:9])
    assert (finding.kind, finding.note) == ("regressed", "")
    assert finding.verdict.ratio == pytest.approx(1.03**9)


def steady(count=10, factor=1.0, **fields):
    return [record(number, several(factor, **fields)) for number in range(count)]


def test_a_run_as_good_as_the_best_is_unchanged_and_a_better_one_is_better_than_its_baseline_alone():
    assert verdict(steady()[-1], record(10, several(1.001)), steady()).kind == "unchanged"
    slow = record(9, several(2.0))
    assert verdict(slow, record(10, several(1.0)), steady(9)).kind == "improved"
    assert verdict(slow, record(10, several(1.0)), steady(9)).note == ""


@pytest.mark.parametrize(
    "earlier",
    [
        steady(4),
        steady(load=0.3),
        steady(settings={"x": 1}),
        steady(parity={"weights": "other"}),
        [dataclasses.replace(one, machine=dataclasses.replace(MACHINE, threads=1)) for one in steady()],
        [record(number, several(1.0), several(1.0)) for number in range(10)],
    ],
)
def test_runs_that_are_too_few_or_loaded_or_cannot_be_compared_are_no_series(earlier):
    base, head = record(10, several(2.0)), record(11, several(2.001))
    assert verdict(base, head, earlier).kind == "unchanged"
    assert verdict(base, head, steady()).kind == "regressed"


def test_each_level_to_choose_from_has_its_price():
    base, head = record(100, several(1.2)), record(101, several(1.21))
    p_values = [verdict(base, head, steady(count)).verdict.p_value for count in (5, 14)]
    assert p_values[1] == pytest.approx(10 * p_values[0])


def test_load_of_this_run_explains_as_much_as_it_can():
    base = record(10, several(1.2))
    assert verdict(base, record(11, several(1.3, load=0.3)), steady()).kind == "inconclusive"
    assert verdict(base, record(11, several(10.0, load=0.3)), steady()).kind == "regressed"


def test_exact_memory_is_held_to_the_least_of_any_run():
    sizes = [1e9 * 1.015**number for number in range(4)]
    earlier = [record(n, measured(metrics={"program_memory": metric(size)})) for n, size in enumerate(sizes)]
    limits = {"program_memory": CRITERIA["program_memory"].saved}
    finding = verdict(earlier[2], earlier[3], earlier[:3], limits)
    assert (finding.kind, finding.verdict.ratio) == ("regressed", pytest.approx(1.015**3))
    assert verdict(earlier[2], earlier[3], [], limits).kind == "unchanged"


def test_a_record_against_itself_is_unchanged_whatever_was_before():
    same = record(10, several(2.0))
    assert verdict(same, same, steady()).kind == "unchanged"


def test_where_earlier_runs_differ_much_a_baseline_is_believed_less():
    wild = [record(n, several(1.5 if n % 2 else 1.0)) for n in range(20)]
    base, head = record(20, several(1.0)), record(21, several(1.5))
    assert verdict(base, head, []).kind == "regressed"
    assert verdict(base, head, wild).kind == "inconclusive"


# Error rates

BENCHMARKS, EARLIER = 20, 20


def persistent(rng, count):
    """States that last: each resembles the one before by 0.7."""
    found = [rng.standard_normal()]
    for _ in range(count - 1):
        found.append(0.7 * found[-1] + math.sqrt(1 - 0.7**2) * rng.standard_normal())
    return np.array(found)


def unchanged(rng, states, scale, processes):
    """A suite without a change after so many runs: its cases in the series, and against the baseline alone."""
    cases, alone = [], []
    for number in range(BENCHMARKS):
        moved = scale * states(rng, EARLIER + 1)
        runs = np.exp(moved[:, None] + 0.02 * rng.standard_normal((EARLIER + 1, processes)))
        earlier = [Earlier(value, str(run)) for run, value in enumerate(np.exp(np.log(runs[:-1]).mean(axis=1)))]
        sides = list(runs[-2]), list(runs[-1])
        alone.append(testing.Compared(str(number), "latency", *sides, 0.15, testing.UNTESTED, False))
        cases += saved._in_the_series(alone[-1], earlier)
    return cases, alone


def suite(rng, states, scale, processes):
    """The verdicts on it."""
    return [finding.kind for finding in saved._findings(unchanged(rng, states, scale, processes)[0])]


def false_alarms(states, scale, processes, suites):
    """The rate of unchanged suites that fail, of which simulated ones convince at 99.9 %."""
    rng = np.random.default_rng(0)
    failures = sum("regressed" in suite(rng, states, scale, processes) for _ in range(suites))
    return stats.beta.ppf(0.001, failures, suites - failures + 1) if failures else 0.0


@pytest.mark.parametrize("states", [gaussian, heavy_tails, persistent])
@pytest.mark.parametrize("processes", [1, 5])
def test_unchanged_suites_fail_once_in_a_hundred_at_most(states, processes, suites):
    assert false_alarms(states, testing.UNTESTED, processes, suites) <= 0.01


def test_nobody_needs_to_have_tested_a_machine_whose_runs_tell_how_far_they_differ(suites):
    assert false_alarms(gaussian, 0.1, 5, suites) <= 0.01


@pytest.mark.parametrize(
    ("part", "broken"),
    [
        # Chance makes the best look better than it is, which costs nothing.
        ("_p_value", lambda excess, error, degrees: 1e-9 if excess > 0 else 1.0),
        # Every process is a run of its own.
        ("Compared.spread", property(lambda case: (0.02 * math.sqrt(2 / 5), math.inf))),
    ],
)
def test_a_broken_statistic_is_found_by_its_false_alarms(monkeypatch, part, broken, suites):
    *owner, name = part.split(".")
    monkeypatch.setattr(getattr(testing, owner[0]) if owner else testing, name, broken)
    assert false_alarms(gaussian, 0.1, 1, suites) > 0.01


def loaded_suites():
    """The suites of the self-test that stands in the docs as runs."""
    return [
        [record(2 * number + at, *side.measurements) for at, side in enumerate(sides)]
        for number, sides in enumerate(saved_suites(None))
    ]


@pytest.mark.slow
def test_unchanged_suites_under_the_self_tests_load_fail_once_in_a_hundred_at_most():
    suites = loaded_suites()
    failed = 0
    numbers = range(1, len(suites))
    for number in numbers:
        base, head = suites[number - 1][0], suites[number][1]
        earlier = [side for sides in suites[:number] for side in sides]
        failed += any(f.kind == "regressed" for f in compare(base, head, LATENCY, earlier=earlier).findings)
    assert failed / len(numbers) <= 0.01
