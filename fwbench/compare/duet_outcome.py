"""Makes the outcome to report from a duet's comparisons: of each benchmark, and of lanes that are slower together."""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import replace

from fwbench.compare.cases import grouped
from fwbench.compare.differences import versions_that_differ
from fwbench.compare.findings import ALL, Finding, Outcome, Verdict
from fwbench.compare.pair import Comparison
from fwbench.compare.programs import changes
from fwbench.compare.statistics import ALPHA, SCREENING, estimate, evidence, holm, interval
from fwbench.record.measurement import CHANGED, fitting
from fwbench.record.plain import PlainTest
from fwbench.record.workload import Workload

AnyComparison = Comparison[Workload] | Comparison[PlainTest]

# The fewest benchmarks of a lane that are judged together.
FEWEST = 4

# The share of unchanged suites in which a lane is named, beside the share `ALPHA` in which a benchmark is.
CHANCE = ALPHA / 10


def outcome(base: str, head: str, comparisons: Iterable[AnyComparison], seconds: float) -> Outcome:
    """The outcome of these comparisons, of sides with these titles; the whole duet took so many seconds.

    A benchmark that is worse, missing or failed has failed its own test already.
    """
    comparisons = list(comparisons)
    findings = [finding for comparison in comparisons for finding in _findings(comparison)]
    notes = dict.fromkeys(note for each in comparisons for note in (*_conditions(each), *_versions(each)))
    if not findings:
        notes |= {f"{each.workload.id}: {each.note}": None for each in comparisons}
    return Outcome(base, head, findings, seconds, list(notes))


def _findings(comparison: AnyComparison) -> list[Finding]:
    name = comparison.workload.id
    if comparison.kind == "unavailable":
        return []
    if not comparison.verdicts:
        return [Finding(name, comparison.kind, note=comparison.note, in_test=True)]
    pairs = comparison.pairs
    changed = changes(comparison.remarks)
    findings = [Finding(name, "program", note=changed)] if changed else []
    agreement = comparison.agreement
    if agreement.agrees is False:
        findings.append(Finding(name, "different", note=str(agreement)))
    elif changed and agreement.agrees is None:
        findings[0] = replace(findings[0], note=f"{changed}; whether it computes the same is unknown: {agreement}")
    for metric, verdict in comparison.verdicts.items():
        base = statistics.median(pair.values["base"][metric] for pair in pairs)
        head = base * verdict.ratio
        of_all = comparison.note if metric == next(iter(comparison.verdicts)) else ""
        note = "; ".join(filter(None, (verdict.note, of_all)))
        replicates = ", ".join(filter(None, (f"{verdict.pairs} pair{'s' * (verdict.pairs > 1)}", verdict.ended)))
        findings.append(Finding(name, verdict.kind, metric, base, head, replicates, verdict, note, in_test=True))
    return findings


def _conditions(comparison: AnyComparison) -> list[str]:
    """Notes on fallback flags and smaller batches that both sides ran with unasked, and on changed settings."""
    name, after_crash = comparison.workload.id, comparison.described.get("head", {}).get("after_crash")
    unfit = comparison.pairs[-1].unfit if comparison.pairs else ()
    crashed = [f"{name}: {after_crash}, on both sides"] if after_crash else []
    settings = {side: described.get("settings", {}) for side, described in comparison.described.items()}
    changed = [f"{name}, {side}: {of['caution']}" for side, of in sorted(settings.items()) if of.get(CHANGED)]
    of = comparison.workload
    smaller = unfit and isinstance(of, Workload) and f"{name}: {fitting(unfit)}, so both sides had {of.batch_size}"
    return [*crashed, *changed, *([smaller] if smaller else [])]


def _versions(comparison: AnyComparison) -> list[str]:
    """A sentence on each framework version that differs."""
    base, head = (comparison.described.get(side, {}).get("versions", {}) for side in ("base", "head"))
    differing = sorted(versions_that_differ(base, head).items())
    return [f"{name} {before} in base, {now} in head" for name, (before, now) in differing]


def together(comparisons: Iterable[Comparison[Workload]], threshold: float) -> list[Finding]:
    """A finding for each lane whose latencies have become worse together.

    The pairs of a lane's benchmarks are bet on as a suspect's are. In each pair a lot decides which server serves which
    side, so that with unchanged code the signs are fair coins, of one benchmark or of several. Pairs of plain tests do
    not count: tests share processes, and so what makes a process slow. A lane with a benchmark that has regressed by
    itself has no finding.

    Args:
        threshold: the smallest change that counts, as a share of base.
    """
    timed = (comparison for comparison in comparisons if "latency" in comparison.verdicts)
    lanes = grouped(timed, lambda comparison: comparison.workload.lane)
    # A lane without a question counts among the hypotheses, too.
    chances = {lane: _chance(own, threshold) for lane, own in lanes.items()}
    ratios = {lane: [math.log(each.verdicts["latency"].ratio) for each in own] for lane, own in lanes.items()}
    slower = [lane for lane in holm(chances, CHANCE) if estimate(ratios[lane]) > math.log1p(threshold)]
    return [_of_lane(lane, own, ratios[lane], chances[lane]) for lane, own in lanes.items() if lane in slower]


def _chance(own: Sequence[Comparison[Workload]], threshold: float) -> float:
    """The chance of such evidence without a change; 1 with few benchmarks, a regressed one, or no undecided one.

    Only screening's pairs are taken, first pairs first: whether one was played may depend on earlier ones alone.
    """
    kinds = {comparison.verdicts["latency"].kind for comparison in own}
    if len(own) < FEWEST or "inconclusive" not in kinds or "regressed" in kinds:
        return 1.0
    rounds = [[comparison.screening[index : index + 1] for comparison in own] for index in range(SCREENING)]
    differences = [pair.differences["latency"] for pairs in rounds for of in pairs for pair in of]
    return min(1.0, 1 / max(evidence(differences, (), threshold)))


def _of_lane(lane: str, own: Sequence[Comparison[Workload]], ratios: Sequence[float], chance: float) -> Finding:
    low, high, confidence = interval(ratios)
    pairs = sum(len(comparison.screening[:SCREENING]) for comparison in own)
    ends = math.exp(low), math.exp(high)
    return Finding(
        ALL,
        "regressed",
        "latency",
        replicates=f"{len(own)} benchmarks of {lane}, {pairs} pairs",
        verdict=Verdict("regressed", math.exp(estimate(ratios)), ends, confidence, pairs, chance, ended="together"),
        note=f"the benchmarks of {lane} are slower together, by something that they share; none has regressed alone",
    )
