"""Compares a record with an earlier one: finds benchmarks that became better or worse, or cannot be compared."""

import dataclasses
import math
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence

from fwbench.compare import best as bests
from fwbench.compare import programs
from fwbench.compare.agreement import of_sides
from fwbench.compare.best import Earlier
from fwbench.compare.criteria import CRITERIA, PAIRED, Threshold, by_metric, hidden
from fwbench.compare.differences import differences, in_words, mismatches, other_cpu, versions_that_differ
from fwbench.compare.findings import ALL, Finding, Kind, Outcome, Verdict
from fwbench.compare.matching import (
    Benchmark,
    benchmarks,
    distinct,
    matched,
    measured_twice,
    nothing_shared,
    without_harness,
    without_repeats,
)
from fwbench.compare.testing import OF_STATE, UNTESTED, Compared, Disturbed, level, verdicts
from fwbench.machine import Machine
from fwbench.machine.disturbances import Cause, disturbances, lengthening
from fwbench.record.measurement import Measurement
from fwbench.record.storage import Record
from fwbench.record.workload import FIELDS

_HIDDEN = (
    "the allocator's peak is from before the step, and hides the step's own: judge by program_memory, which the "
    "compiler states"
)
_ALONE = "one process a side says nothing about the spread between processes, so that only a factor of 2 counts"


def compare(
    base: Record,
    head: Record,
    thresholds: Mapping[str, Threshold],
    *,
    own: Mapping[str, Mapping[str, Threshold]] | None = None,
    left_out: frozenset[str] = frozenset(),
    allow_mismatch: bool = False,
    state: float = UNTESTED,
    earlier: Sequence[Record] = (),
) -> Outcome:
    """Compare two records.

    Args:
        thresholds: by metric; metrics not named are not judged.
        own: thresholds of single benchmarks, by name.
        left_out: benchmarks that were deselected, which are not missing.
        allow_mismatch: compare even if more than the code differs.
        state: standard deviation between this machine's runs of unchanged code without other load, of logarithms.
        earlier: runs with whose best level head is compared, too.
    """
    base, head = without_harness(base), without_harness(head)
    refusal = "" if allow_mismatch else in_words((*mismatches(base.machine, head.machine), *other_cpu(base, head)))
    theirs, ours = benchmarks(base), benchmarks(head)
    twice = {name for record in (base, head) for name in measured_twice(record)}
    failures = {m.workload.id: m.failure for m in head.measurements if m.failure}
    failed = {name: failure.message for name, failure in failures.items() if failure.kind != "unavailable"}
    pairs = matched(theirs, ours)
    damaged = _damaged(base, head, left_out)
    if not refusal and not pairs and not failed and not damaged:
        refusal = nothing_shared(theirs, ours, [record.against is not None for record in (base, head)])
    if refusal:
        return Outcome(str(base.path), str(head.path), [Finding(ALL, "incomparable", note=refusal)])
    findings = [Finding(name, "failed", note=message) for name, message in failed.items()]
    findings += [Finding(name, "incomparable", note=why) for name, why in damaged.items()]
    cases: list[Compared] = []
    series = _by_workload(earlier, head.machine)
    for before, now in pairs:
        if damaged.keys() & {before.name, now.name}:
            continue
        if twice & {before.name, now.name}:
            findings.append(Finding(now.name, "incomparable", note="one of the two records holds it twice"))
        elif not allow_mismatch and (different := in_words(differences(before.measurement, now.measurement))):
            findings.append(Finding(now.name, "incomparable", note=different))
        else:
            limits = {**thresholds, **(own or {}).get(now.asked, {})}
            at_once, tested = _paired(before, now, limits, state, series.get(now.name, ()))
            findings += at_once
            cases += tested
    findings += _findings(cases)
    known = {*(before.name for before, _ in pairs), *failed, *left_out, *damaged}
    for name in (side.name for side in theirs.values() if not known & {side.name, side.asked}):
        why = f"not available here: {failures[name].message}" if name in failures else "not measured"
        findings.append(Finding(name, "missing", note=f"in the baseline, {why}"))
    compared = {*(now.name for _, now in pairs), *damaged}
    findings += [Finding(name, "new", note="not in the baseline") for name in ours if name not in compared]
    notes = [f"{record.path}: {note}" for record in (base, head) for note in record.notes]
    notes += [*_in_vain(thresholds, cases), *_versions(pairs), *_cause(base, head, pairs, findings)]
    return Outcome(str(base.path), str(head.path), findings, notes=notes)


def _in_vain(thresholds: Iterable[str], cases: Sequence[Compared]) -> Iterator[str]:
    """Yield a sentence on the metrics that no benchmark has in both records."""
    if left := [metric for metric in thresholds if not any(case.metric == metric for case in cases)]:
        was, it = ("was", "it") if len(left) == 1 else ("were", "them")
        yield f"{', '.join(left)} {was} not compared: no benchmark has {it} in both records"


def _damaged(base: Record, head: Record, left_out: frozenset[str]) -> dict[str, str]:
    """The benchmarks that are damaged in either record, each with a sentence on the record and the fault."""
    sides = (("the baseline", base), ("this run", head))
    damaged = ((side, each) for side, record in sides for each in record.damaged if each.name not in left_out)
    return {each.name: f"{side} holds it, but damaged: {each.fault}" for side, each in damaged}


def _paired(
    base: Benchmark,
    head: Benchmark,
    thresholds: Mapping[str, Threshold],
    state: float,
    series: Sequence[tuple[Measurement, str]],
) -> tuple[list[Finding], list[Compared]]:
    """The findings on one benchmark that need no test, and its metrics that the suite's tests must judge."""
    changed, same = _program(base.measurement, head.measurement)
    findings = [Finding(head.name, "program", note=changed)] if changed else []
    if base.measurement and head.measurement:
        of_both = (base.measurement.parity, head.measurement.parity)
        found = of_sides(head.measurement.workload, *of_both, ("the baseline", "this run"))
        findings += [Finding(head.name, "different", note=str(found))] if found.agrees is False else []
    limits = {metric: limit for metric, limit in thresholds.items() if base.values.get(metric)}
    if "peak_memory" in thresholds and any(side.measurement and hidden(side.measurement) for side in (base, head)):
        findings.append(Finding(head.name, "inconclusive", "peak_memory", note=_HIDDEN))
        limits.pop("peak_memory", None)
    if not limits:
        return [Finding(head.name, "incomparable", note="the baseline has no value that could be judged")], []
    # True of a record against itself.
    alike = (base.values, base.measurement) == (head.values, head.measurement)
    earlier = [run for run in series if not any(differences(run[0], head.measurement))]
    cases: list[Compared] = []
    ours = head.measurement
    for metric, threshold in limits.items():
        before, now = base.values[metric], head.values.get(metric)
        if not now:
            findings.append(Finding(head.name, "missing", metric, note="the baseline has it, this run has not"))
            continue
        limit = threshold.of(math.exp(level(before)))
        moved, met = (state, _disturbed(base, head)) if metric in OF_STATE else (0.0, Disturbed())
        exact = alike or (ours is not None and CRITERIA[metric].decided_by_one(ours.workload.device))
        turns = ours is not None and ours.workload.takes_turns and CRITERIA[metric].duet is not None
        case = Compared(head.name, metric, before, now, limit, moved, exact, met, ours is not None, turns, same)
        cases += _in_the_series(case, _earlier(case, earlier))
    return findings, cases


def _by_workload(earlier: Sequence[Record], machine: Machine | None) -> dict[str, list[tuple[Measurement, str]]]:
    """The measurements of earlier runs on such a machine by workload, oldest first, each with its run for readers."""
    series: dict[str, list[tuple[Measurement, str]]] = {}
    for record in distinct(earlier):
        if not mismatches(record.machine, machine):
            commit = str(record.commit.get("id") or "")[:10]
            where = f"{record.made:%Y-%m-%d %H:%M}{f' (commit {commit})' if commit else ''}"
            twice = measured_twice(record)
            for m in without_repeats(record):
                if m.workload.id not in twice:
                    series.setdefault(m.workload.id, []).append((m, where))
    return series


def _in_the_series(case: Compared, runs: Sequence[Earlier]) -> Iterator[Compared]:
    """Yield the case with the scatter of earlier runs; then the metric against their best level, if there is one."""
    scatter, degrees = bests.state(runs)
    if case.metric in OF_STATE and scatter > case.state:
        # The known part of the scatter is certain; only the part that the series adds has degrees of freedom.
        added = (scatter**2 - case.state**2) / scatter**2
        case = dataclasses.replace(case, state=scatter, degrees=degrees / added**2)
    yield case
    chosen = bests.best(runs, CRITERIA[case.metric].direction, 1 if case.exact else bests.RUNS)
    if chosen:
        met = dataclasses.replace(case.disturbed, base=0.0)
        beside = dataclasses.replace(case, base=(chosen.value,), disturbed=met, best=chosen)
        yield beside if case.metric in OF_STATE else dataclasses.replace(beside, state=scatter, degrees=degrees)


def _earlier(case: Compared, series: Sequence[tuple[Measurement, str]]) -> list[Earlier]:
    """The levels of undisturbed earlier runs, each over no more processes than head has."""
    if case.exact and not CRITERIA[case.metric].exact:
        # A record against itself.
        return []
    return [
        Earlier(math.exp(level(of_processes[: len(case.head)])), where)
        for m, where in series
        if (of_processes := by_metric(m).get(case.metric)) and (case.metric not in OF_STATE or lengthening([m]) == 1)
    ]


def _disturbed(base: Benchmark, head: Benchmark) -> Disturbed:
    where: dict[Cause, list[str]] = {}
    factors: list[float] = []
    for name, side in (("the baseline", base), ("this run", head)):
        measured = [side.measurement] if side.measurement else []
        factors.append(math.log(lengthening(measured)))
        for disturbance in disturbances(measured):
            most = f", up to {disturbance.factor:.2g}x" if math.isfinite(disturbance.factor) else ""
            where.setdefault(disturbance.cause, []).append(f"in {name} ({disturbance.detail}{most})")
    happened = "; ".join(f"{cause.happened} {' and '.join(places)}" for cause, places in where.items())
    steps = ". ".join(cause.next_step for cause in where)
    return Disturbed(factors[0], factors[1], happened, steps)


def _program(base: Measurement | None, head: Measurement | None) -> tuple[str, str]:
    """The changes of a program; and the remarks on one that did not change, if there are any."""
    if base is None or head is None or base.program is None or head.program is None:
        return "", ""
    remarks = programs.compare(base.program, head.program, head.workload.device)
    changed = programs.changes(remarks)
    return changed, "" if changed else programs.facts(remarks)


def _findings(cases: Sequence[Compared]) -> list[Finding]:
    findings = [(case, _finding(case, verdict)) for case, verdict in zip(cases, verdicts(cases), strict=True)]
    # Against the best level only a regression counts; it then replaces the finding against the baseline.
    worse = {(f.benchmark, f.metric): f for case, f in findings if case.best and f.kind == "regressed"}
    beside = (finding for case, finding in findings if not case.best)
    return [f if f.kind == "regressed" else worse.get((f.benchmark, f.metric), f) for f in beside]


def _finding(case: Compared, verdict: Verdict) -> Finding:
    happened = f"{case.disturbed.happened}; the change is beyond that" if case.disturbed.happened else ""
    beside = (
        f"beside the best of the earlier runs, from {case.best.where} on; `fwbench history` shows when it became worse"
        if case.best
        else ""
    )
    notes = {"regressed": "; ".join(filter(None, (beside, happened, case.program))), "inconclusive": _unsure(case)}
    # A gate that cannot tell load from a slowdown by this factor has compared nothing.
    kind: Kind = "incomparable" if verdict.kind == "inconclusive" and case.grave else verdict.kind
    base, head, note = math.exp(level(case.base)), math.exp(level(case.head)), notes.get(verdict.kind, "")
    return Finding(case.name, kind, case.metric, base, head, _replicates(case), verdict, note)


def _replicates(case: Compared) -> str:
    processes = f"{len(case.head)} process{'es' * (len(case.head) > 1)}"
    if case.best:
        return f"{case.best.runs} run{'s' * (case.best.runs > 1)} and {processes}"
    return f"{len(case.base)} and {processes}"


def _unsure(case: Compared) -> str:
    """The reason why there is no verdict, and what to do."""
    met, duet = case.disturbed, "a duet (--fwbench-against)" if case.turns else ""
    if met.happened:
        again = f", or in {duet}" if duet else ""
        return f"{met.happened}: that can lengthen any time. {met.steps}, and measure again{again}"
    if case.alone:
        return f"{_ALONE}: --fwbench-set=processes=5 on both sides" if case.ours else _ALONE
    return (
        f"the differences between processes and between runs hide changes of {case.threshold:.0%}: more processes "
        f"(--fwbench-set=processes=5), or `fwbench selftest` here when it is quiet{f', or {duet}' if duet else ''}"
    )


def _versions(pairs: Sequence[tuple[Benchmark, Benchmark]]) -> list[str]:
    """A sentence on each framework version that differs, which is allowed and often the object of a comparison."""
    sides = ((base.measurement, head.measurement) for base, head in pairs)
    differing = (versions_that_differ(base.versions, head.versions).items() for base, head in sides if base and head)
    return sorted({f"{name} {old} in the baseline, {new} here" for of in differing for name, (old, new) in of})


def _cause(
    base: Record, head: Record, pairs: Iterable[tuple[Benchmark, Benchmark]], findings: Iterable[Finding]
) -> Iterator[str]:
    """Yield the command that searches for the worst regression's cause, if the baseline records what it was made of."""
    of_both = ((now.name, before.measurement, now.measurement) for before, now in pairs)
    sides = {name: (old, new) for name, old, new in of_both if old and new and new.workload.takes_turns}
    # Pairs play no calls back to back, but a cause that lowers the throughput also lengthens calls.
    worse = [
        (abs(math.log(finding.verdict.ratio)), finding.benchmark, metric)
        for finding in findings
        if finding.kind == "regressed" and finding.verdict and finding.benchmark in sides
        if (metric := "latency" if finding.metric == "throughput" else finding.metric) in PAIRED
    ]
    if not worse:
        return
    _, name, metric = max(worse)
    before, now = sides[name]
    old, new = (str(record.commit.get("id") or "")[:12] for record in (base, head))
    # A release brings the other distributions that belong to it, so the first is enough.
    releases = [f"{name}=={was}" for name, (was, _) in versions_that_differ(before.versions, now.versions).items()][:1]
    if releases or (old and old != new):
        # A side without a commit uses the working tree's files, which only both sides together may do.
        revisions = (" ".join(filter(None, (old, *releases))), new if old and new else ".")
        stated = [
            f"{field.name}={field.text(getattr(now.workload, field.name))}"
            for field in FIELDS.values()
            if field.name not in ("lane", "model", "device") and getattr(now.workload, field.name) != field.default
        ]
        command = ["fwbench", "explain", *revisions, *stated]
        command += [f"--model={now.workload.model}", f"--lane={now.workload.lane}"]
        command += [] if metric == "latency" else [f"--metric={metric}"]
        became = "slower" if metric == "latency" else f"worse in {metric}"
        yield f"what made {now.workload.id} {became}: {shlex.join(command)}"
