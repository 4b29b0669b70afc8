"""Makes the outcome to report from a duet's comparisons."""

import statistics
from collections.abc import Iterable
from dataclasses import replace

from fwbench.compare.differences import versions_that_differ
from fwbench.compare.findings import Finding, Outcome
from fwbench.compare.pair import Comparison
from fwbench.compare.programs import changes
from fwbench.record.measurement import CHANGED, fitting
from fwbench.record.plain import PlainTest
from fwbench.record.workload import Workload

AnyComparison = Comparison[Workload] | Comparison[PlainTest]


def outcome(base: str, head: str, comparisons: Iterable[AnyComparison], seconds: float) -> Outcome:
    """The outcome of these comparisons.

    A benchmark that is worse, missing or failed has failed its own test already.

    Args:
        base, head: titles of the sides.
        seconds: that the whole duet took.
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
