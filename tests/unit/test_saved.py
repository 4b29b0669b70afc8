"""Two records compared: verdicts whose error rates are simulated, and refusals that name the difference."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from fwbench.compare import saved
from fwbench.compare.criteria import CRITERIA, Threshold
from fwbench.compare.saved import compare
from fwbench.fingerprint import Fingerprint
from fwbench.measurement import Metric
from fwbench.records import read
from tests.unit.recorded import MACHINE, QUICK, failed, journal, measured, plain, write
from tests.unit.recorded import saved as as_saved

THRESHOLDS = {name: criterion.saved for name, criterion in CRITERIA.items() if criterion.saved}
LATENCY = {"latency": THRESHOLDS["latency"]}
# Of five processes that scatter by one percent.
LEVELS = (0.99, 1.0, 1.01, 0.995, 1.005)
MIB = 2.0**20


@pytest.fixture
def record(tmp_path):
    """What is read of these measurements, once saved."""
    numbers = iter(range(1000))

    def make(*measurements, **top):
        return read(write(tmp_path / f"{next(numbers)}.json", as_saved(*measurements, **top)))

    return make


def several(metric="latency", factor=1.0, levels=LEVELS, unit=1.0, **fields):
    """A measurement by several processes."""
    return measured(processes=tuple({metric: unit * factor * level} for level in levels), **fields)


def found(outcome, kind=None):
    """The findings on metrics by benchmark and metric, or those of one kind."""
    if kind is None:
        return {(finding.benchmark, finding.metric): finding.kind for finding in outcome.findings}
    return [finding for finding in outcome.findings if finding.kind == kind]


def verdict(record, base, head, thresholds=LATENCY, **options):
    (finding,) = compare(record(base), record(head), thresholds, **options).findings
    return finding


# Verdicts


@pytest.mark.parametrize(
    ("factor", "kind", "exit_code"), [(1.0, "unchanged", 0), (1.3, "regressed", 1), (0.7, "improved", 0)]
)
def test_five_processes_a_side_tell_what_has_changed(record, factor, kind, exit_code):
    outcome = compare(record(several()), record(several(factor=factor)), LATENCY)
    (finding,) = outcome.findings
    assert (finding.benchmark, finding.metric, finding.kind) == ("torch-mlp-inference-b1", "latency", kind)
    assert outcome.exit_code == exit_code
    assert finding.verdict.ratio == pytest.approx(factor)
    low, high = finding.verdict.interval
    assert low < factor < high
    assert (finding.base, finding.head) == pytest.approx((1.0, factor), rel=1e-3)
    assert finding.replicates == "5 and 5 processes"


@pytest.mark.parametrize(
    ("factor", "kind"), [(2.0, "improved"), (1.0, "unchanged"), (0.86, "unchanged"), (0.8, "regressed")]
)
def test_a_higher_throughput_is_no_failure_and_a_lower_one_fails_beyond_its_share_of_base(record, factor, kind):
    quiet = [1 + (level - 1) / 100 for level in LEVELS]
    base, head = (several("throughput", by, quiet) for by in (1.0, factor))
    finding = verdict(record, base, head, {"throughput": Threshold(0.15)})
    assert finding.kind == kind
    assert finding.verdict.ratio == pytest.approx(factor)
    assert finding.verdict.interval[0] < factor < finding.verdict.interval[1]


def test_a_fall_of_throughput_by_a_threshold_of_all_of_it_is_impossible(record):
    base, head = several("throughput"), several("throughput", 0.01)
    assert verdict(record, base, head, {"throughput": Threshold(1.0)}).kind == "unchanged"


def memory(base, head):
    return [measured(metrics={"program_memory": Metric(size, "B", "lower", "the compiler")}) for size in (base, head)]


@pytest.mark.parametrize(
    ("base", "head", "kind"),
    [
        (2 * MIB, 2.5 * MIB, "unchanged"),  # 25 %, but less than the amount on top of the share
        (2 * MIB, 3.1 * MIB, "regressed"),
        (1000 * MIB, 1020 * MIB, "unchanged"),
        (1000 * MIB, 1022 * MIB, "regressed"),
        (1000 * MIB, 900 * MIB, "improved"),
        (7 * MIB, 7 * MIB, "unchanged"),
    ],
)
def test_what_the_compiler_says_of_memory_is_exact_so_that_one_process_decides(record, base, head, kind):
    finding = verdict(record, *memory(base, head), {"program_memory": THRESHOLDS["program_memory"]})
    assert finding.kind == kind
    assert finding.verdict.interval == (finding.verdict.ratio, finding.verdict.ratio)


def test_one_process_a_side_is_no_guess_but_inconclusive_with_what_to_do(record):
    outcome = compare(record(measured()), record(measured(samples=(30.0,))), LATENCY)
    (finding,) = outcome.findings
    assert finding.kind == "inconclusive"
    assert "--fwbench-processes=5" in finding.note
    assert finding.verdict.interval == (0.0, math.inf)


def test_processes_that_scatter_more_than_the_threshold_are_inconclusive(record):
    wild = (0.7, 1.0, 1.4, 0.8, 1.2)
    finding = verdict(record, several(levels=wild), several(factor=1.2, levels=wild))
    assert finding.kind == "inconclusive"
    assert "hides changes of 15%" in finding.note
    assert "--fwbench-processes" in finding.note


def test_what_this_machine_is_known_to_scatter_widens_the_interval(record):
    sides = several(), several(factor=1.3)
    alone, floored = verdict(record, *sides), verdict(record, *sides, floor=0.2)
    assert (alone.kind, floored.kind) == ("regressed", "inconclusive")
    # Known from elsewhere, so that it is the normal distribution's: 1.96 standard errors.
    width = 1.96 * 0.2 * math.sqrt(2 / 5)
    assert np.log(floored.verdict.interval) == pytest.approx([math.log(1.3) - width, math.log(1.3) + width], abs=1e-4)
    assert verdict(record, *sides, floor=0.001) == alone


def test_a_floor_lets_one_process_a_side_decide_over_times_of_calls_alone(record):
    slow = measured(samples=(30.0,), metrics={"compile_time": Metric(90.0, "s", "lower", "a clock")})
    quick = measured(metrics={"compile_time": Metric(1.0, "s", "lower", "a clock")})
    outcome = compare(record(quick), record(slow), LATENCY | {"compile_time": Threshold(0.25)}, floor=0.02)
    assert [finding.kind for finding in outcome.findings] == ["regressed", "inconclusive"]


def test_a_p_value_that_is_enough_for_one_benchmark_is_not_for_forty(record):
    spread = [1 + 10 * (level - 1) for level in LEVELS]

    def suite(size, factor):
        names = range(1, size + 1)
        return record(*(several(factor=factor if n == 1 else 1.0, levels=spread, batch_size=n) for n in names))

    for size, kind in ((1, "regressed"), (40, "inconclusive")):
        outcome = compare(suite(size, 1.0), suite(size, 1.3), LATENCY)
        assert found(outcome)["torch-mlp-inference-b1", "latency"] == kind
        (p,) = {f.verdict.p_value for f in outcome.findings if f.benchmark == "torch-mlp-inference-b1"}
        assert 0.01 / 40 < p < 0.01


def test_a_tests_own_threshold_stands_before_the_suites(record):
    sides = several(), several(factor=1.1)
    assert verdict(record, *sides).kind == "unchanged"
    own = {"torch-mlp-inference-b1": {"latency": Threshold(0.05)}}
    assert verdict(record, *sides, own=own).kind == "regressed"
    assert verdict(record, *sides, own={"jax-mlp-inference-b1": own}).kind == "unchanged"


# Error rates

BENCHMARKS = 20
SUITES = 150


def gaussian(rng, n):
    return rng.standard_normal(n)


def heavy_tails(rng, n):
    """Student's t with three degrees of freedom, scaled to a standard deviation of one."""
    return rng.standard_t(3, n) / math.sqrt(3)


def decide(rng, noise, scale, effect=0.0):
    """The verdicts on a suite of five processes a side, of which the first benchmark is slower by `effect`."""

    def case(name):
        base, head = (list(np.exp(scale * noise(rng, 5))) for _ in range(2))
        slower = 1 + effect if name == 0 else 1.0
        return saved._Case(str(name), "latency", base, [slower * x for x in head], 0.15, 0.0)

    return [finding.kind for finding in saved._judged([case(name) for name in range(BENCHMARKS)])]


def proven(noise, scale):
    """The rate of suites without a change that fail, of which simulated ones convince at 99.9 %."""
    rng = np.random.default_rng(0)
    failures = sum("regressed" in decide(rng, noise, scale) for _ in range(SUITES))
    return stats.beta.ppf(0.001, failures, SUITES - failures + 1) if failures else 0.0


@pytest.mark.parametrize(("noise", "scale"), [(gaussian, 0.01), (gaussian, 0.1), (heavy_tails, 0.1), (gaussian, 0.3)])
def test_unchanged_suites_fail_once_in_a_hundred_at_most(noise, scale):
    assert proven(noise, scale) <= 0.01


def known_too_well(case):
    """The spread of a single process for that of the difference of means."""
    logs = [np.log(side) for side in (case.base, case.head)]
    return math.sqrt(sum(np.var(side, ddof=1) for side in logs) / 2) * math.sqrt(1 / 25 + 1 / 25), 8


@pytest.mark.parametrize(
    ("part", "broken"),
    [
        # As if each process were five.
        ("_Case.spread", property(known_too_well)),
        # No control over the suite's many benchmarks.
        ("holm", lambda p_values, alpha: {name for name, p in p_values.items() if p <= alpha}),
        # Certain of everything, as a test on rounds is.
        ("_p_value", lambda excess, error, degrees: 1e-9),
    ],
)
def test_a_broken_statistic_is_found_by_its_false_alarms(monkeypatch, part, broken):
    *owner, name = part.split(".")
    monkeypatch.setattr(getattr(saved, owner[0]) if owner else saved, name, broken)
    assert proven(gaussian, 0.1) > 0.01


@pytest.mark.parametrize("noise", [gaussian, heavy_tails])
def test_a_slowdown_of_thirty_percent_is_found(noise):
    rng = np.random.default_rng(1)
    kinds = [decide(rng, noise, 0.03, 0.3)[0] for _ in range(SUITES)]
    assert kinds.count("regressed") >= 0.95 * SUITES


def test_a_slowdown_below_the_threshold_is_none():
    rng = np.random.default_rng(2)
    assert not any(decide(rng, gaussian, 0.02, 0.08)[0] == "regressed" for _ in range(SUITES))
