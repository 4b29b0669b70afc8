"""Lanes whose benchmarks have become slower together, although too few pairs decide any single one of them."""

import math
from collections.abc import Iterable, Sequence

from fwbench.compare.findings import ALL, Finding, Verdict
from fwbench.compare.pair import Comparison
from fwbench.compare.statistics import ALPHA, SCREENING, estimate, evidence, holm, interval
from fwbench.record.workload import Workload

# The fewest benchmarks of a lane that are judged together.
FEWEST = 4

# The share of unchanged suites in which a lane is named, beside the share `ALPHA` in which a benchmark is.
CHANCE = ALPHA / 10


def together(comparisons: Iterable[Comparison[Workload]], threshold: float) -> list[Finding]:
    """A finding for each lane whose latencies have become worse together.

    The pairs of a lane's benchmarks are bet on as a suspect's are. In each pair a lot decides which server serves which
    side, so that with unchanged code the signs are fair coins, of one benchmark or of several. Pairs of plain tests do
    not count: tests share processes, and so what makes a process slow. A lane with a benchmark that has regressed by
    itself has no finding.

    Args:
        threshold: the smallest change that counts, as a share of base.
    """
    lanes: dict[str, list[Comparison[Workload]]] = {}
    for comparison in comparisons:
        if "latency" in comparison.verdicts:
            lanes.setdefault(comparison.workload.lane, []).append(comparison)
    # A lane without a question counts among the hypotheses, too.
    chances = {lane: _chance(own, threshold) if _is_open(own) else 1.0 for lane, own in lanes.items()}
    fallen = holm(chances, CHANCE)
    slower = {lane: own for lane, own in lanes.items() if lane in fallen and _change(own) > math.log1p(threshold)}
    return [_finding(lane, own, chances[lane]) for lane, own in slower.items()]


def _is_open(own: Sequence[Comparison[Workload]]) -> bool:
    kinds = {comparison.verdicts["latency"].kind for comparison in own}
    return len(own) >= FEWEST and "inconclusive" in kinds and "regressed" not in kinds


def _chance(own: Sequence[Comparison[Workload]], threshold: float) -> float:
    """The chance of such evidence without a change.

    Only screening's pairs are taken, first pairs first: whether one was played may depend on earlier ones alone.
    """
    rounds = [[comparison.screening[index : index + 1] for comparison in own] for index in range(SCREENING)]
    differences = [pair.differences["latency"] for pairs in rounds for of in pairs for pair in of]
    return min(1.0, 1 / max(evidence(differences, (), threshold)))


def _changes(own: Sequence[Comparison[Workload]]) -> list[float]:
    return [math.log(comparison.verdicts["latency"].ratio) for comparison in own]


def _change(own: Sequence[Comparison[Workload]]) -> float:
    return estimate(_changes(own))


def _finding(lane: str, own: Sequence[Comparison[Workload]], chance: float) -> Finding:
    low, high, confidence = interval(_changes(own))
    pairs = sum(len(comparison.screening[:SCREENING]) for comparison in own)
    ends = math.exp(low), math.exp(high)
    return Finding(
        ALL,
        "regressed",
        "latency",
        replicates=f"{len(own)} benchmarks of {lane}, {pairs} pairs",
        verdict=Verdict("regressed", math.exp(_change(own)), ends, confidence, pairs, chance, ended="together"),
        note=f"the benchmarks of {lane} are slower together, by something that they share; none has regressed alone",
    )
