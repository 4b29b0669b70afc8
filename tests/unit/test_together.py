"""Lanes whose benchmarks have become slower together, by pairs of known differences."""

import numpy as np
import pytest

from fwbench.compare.criteria import Threshold
from fwbench.compare.duet import Duet
from fwbench.compare.duet_outcome import CHANCE, outcome, together
from fwbench.compare.findings import ALL, Outcome
from fwbench.record.workload import Workload
from tests.unit.test_duet import pair


def compared(differences):
    """The comparisons of benchmarks with these differences, by lane one list each, after which the time was over."""
    workloads = {
        Workload(lane, "mlp", batch_size=size): of
        for lane, each in differences.items()
        for size, of in enumerate(each, 1)
    }
    duet = Duet({workload: {"latency": Threshold(0.02)} for workload in workloads})
    for workload, of in workloads.items():
        for difference in of:
            duet.take("screening", workload, pair(difference))
    return list(duet.comparisons().values())


SLOWER = [[0.2, 0.39], [0.31, 0.22], [0.28, 0.35], [0.25, 0.3], [0.33, 0.2], [0.27, 0.29], [0.24, 0.38], [0.3, 0.3]]
AS_BEFORE = [[0.01, -0.04], [-0.02, 0.03]] * 4


def test_eight_benchmarks_that_the_time_left_open_are_slower_together():
    comparisons = compared({"torch": SLOWER, "jax": AS_BEFORE})
    assert {comparison.kind for comparison in comparisons} == {"inconclusive"}
    (found,) = together(comparisons, 0.02)
    assert (found.benchmark, found.kind, found.metric) == (ALL, "regressed", "latency")
    assert found.replicates == "8 benchmarks of torch, 16 pairs"
    assert found.verdict.ratio == pytest.approx(np.exp(0.285), rel=0.02)
    assert 1.2 < found.verdict.interval[0] < found.verdict.ratio < found.verdict.interval[1] < 1.4
    assert found.verdict.p_value <= CHANCE / 2


def test_it_fails_the_run_and_counts_as_no_benchmark():
    comparisons = compared({"torch": SLOWER})
    result = outcome("base", "head", comparisons, 1.0)
    assert result.exit_code == 0
    whole = Outcome("base", "head", [*result.findings, *together(comparisons, 0.02)])
    assert whole.exit_code == 1
    assert whole.counts == {"inconclusive": 8}
    assert "8 benchmarks of torch, 16 pairs: regressed" in whole.reason(1)


@pytest.mark.parametrize(
    "differences",
    [
        SLOWER[:3],  # too few
        [[-each for each in of] for of in SLOWER],  # faster
        AS_BEFORE,
        [[0.01, 0.012]] * 8,  # less than the threshold
        [[0.0] * 3] * 8,  # unchanged, each of them
    ],
)
def test_otherwise_nothing_is_named(differences):
    assert together(compared({"torch": differences}), 0.02) == []


@pytest.mark.slow
def test_unchanged_benchmarks_are_hardly_ever_slower_together():
    """Pairs with the heavy tails of a shared machine, in two lanes of eight benchmarks: expected are two or fewer."""
    rng = np.random.default_rng(5)
    found = 0
    for _ in range(1000):
        drawn = 0.03 * rng.standard_t(2, (2, 8, 3))
        lanes = {lane: of.tolist() for lane, of in zip(("torch", "jax"), drawn, strict=True)}
        found += bool(together(compared(lanes), 0.02))
    assert found <= 5
