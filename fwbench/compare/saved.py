"""Two records compared: what is comparable, and which changes are more than the difference between processes.

The process is the replicate, never the round, and few processes decide little. A record made earlier met another state
of the machine, too, which all its processes share, so that no number of them averages it out: how far runs differ must
be known from elsewhere, and other load lengthens any time. So the thresholds are wide, a change counts only beyond what
load can explain, and what cannot be told is inconclusive.
"""

import dataclasses
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass
from typing import Any

from scipy import special

from fwbench.compare import best as bests
from fwbench.compare import programs
from fwbench.compare.best import Best, Earlier
from fwbench.compare.criteria import CRITERIA, Threshold, hidden, values
from fwbench.compare.findings import ALL, Decision, Finding, Outcome, Verdict
from fwbench.compare.statistics import holm
from fwbench.machine import Machine
from fwbench.machine.disturbances import Cause, disturbances, lengthening
from fwbench.record.lanes import LANES, PLACES
from fwbench.record.measurement import ALSO_IMPORTED, Measurement
from fwbench.record.reading import Record
from fwbench.record.workload import Workload
from fwbench.suite.profiles import Protocol

# Of intervals.
_CONFIDENCE = 0.95

# The null hypothesis is a change of at most this share of the threshold.
_TOLERATED = 0.25

# A field of the protocol that a record lacks was not there when it was made: everything was done as by default.
_PROTOCOL = {field.name: field.default for field in dataclasses.fields(Protocol) if field.default is not MISSING}

# What depends on the machine's state: all but memory.
OF_STATE = frozenset(name for name, criterion in CRITERIA.items() if criterion.unit != "B")

# Standard deviation between runs of unchanged code, of logarithms, on a machine that was never tested and does nothing
# else. On two shared virtual cores it was 0.01 to 0.02 by benchmark, and 0.03 to 0.04 beside work of low priority.
UNTESTED = 0.03

# A factor beyond dispute: single processes of unchanged code have never differed so much without other load.
_BEYOND_DISPUTE = 2.0

_HIDDEN = (
    "the allocator's peak is from before the step, and hides the step's own: judge by program_memory, which the "
    "compiler states"
)
_ALONE = "one process a side says nothing about the spread between processes, so that only a factor of 2 counts"


@dataclass(frozen=True)
class Benchmark:
    """A benchmark of one record.

    Attributes:
        name: its workload's id; of a plain benchmark its full name.
        values: by metric, one of each process.
        measurement: None of a plain benchmark.
        test: that measured it, where that is known.
    """

    name: str
    values: Mapping[str, Sequence[float]]
    measurement: Measurement | None = None
    test: str | None = None

    @property
    def asked(self) -> str:
        """The name under which it was asked for: another one where its batch did not fit into memory."""
        return self.measurement.asked.id if self.measurement else self.name


@dataclass(frozen=True)
class Difference:
    """Something besides the code that two sides do not share, each with its own value of it, as readers see it."""

    name: str
    base: str
    head: str


@dataclass(frozen=True)
class _Disturbed:
    """What disturbed the two sides.

    Attributes:
        base, head: by how much each can have become worse, of logarithms.
        happened: what it was.
        steps: what to do about it.
    """

    base: float = 0.0
    head: float = 0.0
    happened: str = ""
    steps: str = ""


@dataclass(frozen=True)
class _Compared:
    """A metric of a benchmark, before the suite is judged.

    Attributes:
        threshold: as a share of base.
        state: standard deviation between runs of unchanged code, of logarithms.
        exact: whether one value a side decides.
        ours: whether fwbench measured it, so that its options apply.
        program: what to know of a program that did not change.
        degrees: of freedom of `state`: infinitely many where it is known from elsewhere.
        best: base is not the baseline but this level of earlier runs.
    """

    name: str
    metric: str
    base: Sequence[float]
    head: Sequence[float]
    threshold: float
    state: float
    exact: bool
    disturbed: _Disturbed = _Disturbed()
    ours: bool = True
    program: str = ""
    degrees: float = math.inf
    best: Best | None = None

    @property
    def alone(self) -> bool:
        """Whether there is one process a side, and so no test."""
        return not self.best and len(self.base) + len(self.head) == 2

    @property
    def certain(self) -> float:
        """The difference that is left if what disturbed head explains as much of it as it can."""
        return self.difference - self.disturbed.head

    @property
    def difference(self) -> float:
        """Logarithm of the ratio, above zero where head is worse."""
        found = level(self.head) - level(self.base)
        return found if CRITERIA[self.metric].direction == "lower" else -found

    def worse_by(self, share: float) -> float:
        """The difference that a change for the worse by this share of base makes."""
        if CRITERIA[self.metric].direction == "lower":
            return math.log1p(share)
        return -math.log1p(-share) if share < 1 else math.inf

    @property
    def spread(self) -> tuple[float, float]:
        """Standard error of the difference and its degrees of freedom.

        Processes average out, the states of two runs do not. The degrees are those of the sum (Welch 1947, Biometrika
        34, 28-35; Satterthwaite 1946).
        """
        if self.best:
            # Runs of a level may share a state, so that they are one.
            return math.sqrt(2) * self.state, self.degrees
        degrees = len(self.base) + len(self.head) - 2
        between = (_squares(self.base) + _squares(self.head)) / degrees * (1 / len(self.base) + 1 / len(self.head))
        variance = between + 2 * self.state**2
        known = between**2 / degrees + (2 * self.state**2) ** 2 / self.degrees
        return math.sqrt(variance), variance**2 / known if known else math.inf


def level(side: Sequence[float]) -> float:
    """Mean of the logarithms."""
    return statistics.fmean(map(math.log, side))


def _squares(side: Sequence[float]) -> float:
    middle = level(side)
    return math.fsum((math.log(value) - middle) ** 2 for value in side)


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
        allow_mismatch: compare what differs in more than the code.
        state: standard deviation between this machine's runs of unchanged code without other load, of logarithms.
        earlier: runs, whose best level head is held to as well.
    """
    base, head = _without_harness(base), _without_harness(head)
    refusal = "" if allow_mismatch else in_words((*mismatches(base.machine, head.machine), *_other_cpu(base, head)))
    theirs, ours = _sides(base), _sides(head)
    twice = {name for record in (base, head) for name in _twice(record)}
    absent = {m.workload.id: m.failure for m in head.measurements if m.failure}
    failed = {name: failure.message for name, failure in absent.items() if failure.kind != "unavailable"}
    pairs = _matched(theirs, ours)
    damaged = {
        one.name: f"{side} holds it, but damaged: {one.fault}"
        for side, record in (("the baseline", base), ("this run", head))
        for one in record.damaged
        if one.name not in left_out
    }
    if not refusal and not pairs and not failed and not damaged:
        refusal = _nothing_shared(theirs, ours)
    if refusal:
        return Outcome(str(base.path), str(head.path), [Finding(ALL, "incomparable", note=refusal)])
    findings = [Finding(name, "failed", note=message) for name, message in failed.items()]
    findings += [Finding(name, "incomparable", note=why) for name, why in damaged.items()]
    cases: list[_Compared] = []
    series = _by_workload(earlier, head.machine)
    for one, other in pairs:
        if damaged.keys() & {one.name, other.name}:
            continue
        if twice & {one.name, other.name}:
            findings.append(Finding(other.name, "incomparable", note="one of the two records holds it twice"))
            continue
        different = () if allow_mismatch else tuple(differences(one.measurement, other.measurement))
        if different:
            findings.append(Finding(other.name, "incomparable", note=in_words(different)))
        else:
            told, judged = _paired(one, other, {**thresholds, **(own or {}).get(other.asked, {})}, state)
            findings += told
            alike = [run for run in series.get(other.name, ()) if not any(differences(run[0], other.measurement))]
            for case in judged:
                cases += _in_the_series(case, _earlier(case, alike))
    findings += _judged(cases)
    known = {*(one.name for one, _ in pairs), *failed, *left_out, *damaged}
    for name, one in theirs.items():
        if not known & {name, one.asked}:
            why = f"not available here: {absent[name].message}" if name in absent else "not measured"
            findings.append(Finding(name, "missing", note=f"in the baseline, {why}"))
    compared = {*(other.name for _, other in pairs), *damaged}
    findings += [Finding(name, "new", note="not in the baseline") for name in ours if name not in compared]
    notes = [f"{record.path}: {note}" for record in (base, head) for note in record.notes]
    unjudged = [metric for metric in thresholds if not any(case.metric == metric for case in cases)]
    if unjudged:
        notes.append(f"not judged, as no benchmark has it on both sides: {', '.join(unjudged)}")
    return Outcome(str(base.path), str(head.path), findings, notes=[*notes, *_versions(pairs)])


def _without_harness(record: Record) -> Record:
    """The record less what prices the harness: its nanoseconds are the machine's."""
    internal = {lane.name for lane in LANES.values() if lane.internal}
    kept = tuple(m for m in record.measurements if m.workload.lane not in internal)
    return dataclasses.replace(record, measurements=kept)


def _paired(
    base: Benchmark, head: Benchmark, thresholds: Mapping[str, Threshold], state: float
) -> tuple[list[Finding], list[_Compared]]:
    """What can be told of one benchmark, and what the suite's statistics must judge."""
    untold = any(side.measurement and hidden(side.measurement) for side in (base, head))
    unsure = [Finding(head.name, "inconclusive", "peak_memory", note=_HIDDEN)] if untold else []
    known = {metric: limit for metric, limit in thresholds.items() if not (untold and metric == "peak_memory")}
    limits = {metric: limit for metric, limit in known.items() if base.values.get(metric)}
    if not limits:
        return [Finding(head.name, "incomparable", note="the baseline has no value that could be judged")], []
    # A record against itself.
    alike = (base.values, base.measurement) == (head.values, head.measurement)
    changed, same = _program(base.measurement, head.measurement)
    findings = [Finding(head.name, "program", note=changed)] if changed else []
    findings += unsure if "peak_memory" in thresholds else []
    cases = []
    for metric, threshold in limits.items():
        before, now = base.values[metric], head.values.get(metric)
        if now:
            limit = threshold.of(math.exp(level(before)))
            moved = state if metric in OF_STATE else 0.0
            ours = head.measurement
            exact = alike or (ours is not None and CRITERIA[metric].decided_by_one(ours.workload.device))
            met = _disturbed(base, head) if metric in OF_STATE else _Disturbed()
            cases.append(_Compared(head.name, metric, before, now, limit, moved, exact, met, ours is not None, same))
        else:
            findings.append(Finding(head.name, "missing", metric, note="the baseline has it, this run has not"))
    return findings, cases


def _by_workload(earlier: Sequence[Record], machine: Machine | None) -> dict[str, list[tuple[Measurement, str]]]:
    """What earlier runs on such a machine have measured, oldest first, each with its run for readers."""
    found: dict[str, list[tuple[Measurement, str]]] = {}
    for record in sorted(earlier, key=lambda record: record.made):
        if not mismatches(record.machine, machine):
            twice, where = _twice(record), _told_of(record)
            for m in without_repeats(record):
                if m.workload.id not in twice:
                    found.setdefault(m.workload.id, []).append((m, where))
    return found


def _in_the_series(case: _Compared, runs: Sequence[Earlier]) -> Iterator[_Compared]:
    """The case, knowing how far earlier runs differ; then the same metric beside their best level, if there is one."""
    found, degrees = bests.state(runs)
    if case.metric in OF_STATE and found > case.state:
        # What is known from elsewhere is certain, what the series adds to it is not.
        added = (found**2 - case.state**2) / found**2
        case = dataclasses.replace(case, state=found, degrees=degrees / added**2)
    yield case
    chosen = bests.best(runs, CRITERIA[case.metric].direction, 1 if case.exact else bests.RUNS)
    if chosen:
        met = dataclasses.replace(case.disturbed, base=0.0)
        beside = dataclasses.replace(case, base=(chosen.value,), disturbed=met, best=chosen)
        yield beside if case.metric in OF_STATE else dataclasses.replace(beside, state=found, degrees=degrees)


def _earlier(case: _Compared, series: Sequence[tuple[Measurement, str]]) -> list[Earlier]:
    """What earlier runs found while nothing disturbed them: of no more processes than head has."""
    if case.exact and not CRITERIA[case.metric].exact:
        # A record against itself.
        return []
    found = []
    for m, where in series:
        of_processes = [process[case.metric] for process in m.processes or [values(m)] if case.metric in process]
        if of_processes and (case.metric not in OF_STATE or lengthening([m]) == 1):
            found.append(Earlier(math.exp(level(of_processes[: len(case.head)])), where))
    return found


def _told_of(record: Record) -> str:
    commit = str(record.commit.get("id") or "")[:10]
    return f"{record.made:%Y-%m-%d %H:%M}{f' (commit {commit})' if commit else ''}"


def _disturbed(base: Benchmark, head: Benchmark) -> _Disturbed:
    where: dict[Cause, list[str]] = {}
    factors: list[float] = []
    for name, side in (("the baseline", base), ("this run", head)):
        measured = [side.measurement] if side.measurement else []
        factors.append(math.log(lengthening(measured)))
        for one in disturbances(measured):
            most = f", up to {one.factor:.2g}x" if math.isfinite(one.factor) else ""
            where.setdefault(one.cause, []).append(f"in {name} ({one.detail}{most})")
    happened = "; ".join(f"{cause.happened} {' and '.join(places)}" for cause, places in where.items())
    steps = ". ".join(cause.next_step for cause in where)
    return _Disturbed(factors[0], factors[1], happened, steps)


def in_words(differences: Iterable[Difference], base: str = "in the baseline", head: str = "here") -> str:
    """Half a sentence on differences, with the words that say where each side's values were found."""
    return "; ".join(f"{each.name} differs: {each.base} {base}, {each.head} {head}" for each in differences)


def mismatches(base: Machine | None, head: Machine | None) -> tuple[Difference, ...]:
    """Why numbers of the one machine say nothing of the other's."""
    if base is None or head is None:
        return ()
    return tuple(Difference(name, _of_machine(base, name), _of_machine(head, name)) for name in base.differences(head))


def _other_cpu(base: Record, head: Record) -> tuple[Difference, ...]:
    """What pytest-benchmark says of the CPUs of two records, of which fwbench knows not both machines."""
    if base.machine and head.machine:
        return ()
    infos = [record.machine_info.get("cpu") for record in (base, head)]
    names = [info.get("brand_raw") if isinstance(info, Mapping) else None for info in infos]
    if None in names or names[0] == names[1]:
        return ()
    return (Difference("cpu", str(names[0]), str(names[1])),)


def _of_machine(machine: Machine, name: str) -> str:
    return f"{getattr(machine, name)}{' W' if name == 'power_limit' else ''}"


def _sides(record: Record) -> dict[str, Benchmark]:
    medians = {name: plain.stats["median"] for name, plain in record.plain.items()}
    found = {name: Benchmark(name, {"latency": [median]} if median > 0 else {}) for name, median in medians.items()}
    for measurement in without_repeats(record):
        name = measurement.workload.id
        of_processes = measurement.processes or [values(measurement)]
        metrics = {metric for process in of_processes for metric in process}
        found[name] = Benchmark(
            name,
            {metric: [process[metric] for process in of_processes if metric in process] for metric in metrics},
            measurement,
            record.names.get(measurement.workload),
        )
    return found


def without_repeats(record: Record) -> list[Measurement]:
    """What has numbers, less larger batches that were halved to one that the run has measured anyhow."""
    found = [m for m in record.measurements if not m.failure]
    others = [(m.workload.id, m.unfit) for m in found]
    return [
        m
        for place, m in enumerate(found)
        if not m.unfit
        or not any(
            name == m.workload.id and (not unfit or (unfit != m.unfit and at < place))
            for at, (name, unfit) in enumerate(others)
        )
    ]


def _twice(record: Record) -> set[str]:
    """What one record has measured more than once, so that nobody can tell which of them counts."""
    counts = Counter(m.workload.id for m in without_repeats(record))
    return {name for name, count in counts.items() if count > 1}


def _matched(base: Mapping[str, Benchmark], head: Mapping[str, Benchmark]) -> list[tuple[Benchmark, Benchmark]]:
    """By workload; what is left, by the test that measured it or the batch that was asked for, so that it can be told
    why they cannot be compared."""
    pairs = [(side, head[name]) for name, side in base.items() if name in head]
    left = {key: side for name, side in head.items() if name not in base for key in (side.test, side.asked) if key}
    for name, side in base.items():
        key = next((key for key in (side.test, side.asked) if key in left), None)
        if name not in head and key:
            pairs.append((side, left[key]))
    return pairs


def differences(base: Measurement | None, head: Measurement | None) -> Iterator[Difference]:
    """What differs besides the code and the frameworks' versions."""
    if base is None or head is None:
        return
    for what, one, other in (
        ("", _told(base.workload), _told(head.workload)),
        ("profile: ", _PROTOCOL | dict(base.protocol), _PROTOCOL | dict(head.protocol)),
        ("lane setting: ", _chosen(base.settings), _chosen(head.settings)),
        ("", _began(base.parity, head.parity), _began(head.parity, base.parity)),
    ):
        for name in sorted(one.keys() | other.keys()):
            if one.get(name) != other.get(name):
                yield Difference(f"{what}{name}", repr(one.get(name)), repr(other.get(name)))


def _began(own: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Weights and arithmetic, as far as both records tell them."""
    found = {"digest of the weights": own.get("weights")} if own.get("weights") and other.get("weights") else {}
    probes = own.get("probe") or {}
    return found | {
        f"arithmetic of the {name}": probe.get("arithmetic")
        for name, probe in probes.items()
        if name in (other.get("probe") or {})
    }


def _told(workload: Workload) -> dict[str, Any]:
    # Where this machine keeps the data makes no other benchmark.
    return dataclasses.replace(workload, data_path=None).to_json()


def _chosen(settings: Mapping[str, Any]) -> dict[str, Any]:
    # How many cores a run was given is the machine's `threads`; what its networks import is a change of the code.
    left_out = (*PLACES, "cpus", ALSO_IMPORTED)
    return {name: value for name, value in settings.items() if name not in left_out}


def _nothing_shared(base: Mapping[str, Benchmark], head: Mapping[str, Benchmark]) -> str:
    """Why two records have no benchmark in common."""
    if not base or not head:
        return f"{'the baseline' if not base else 'this run'} holds no measured benchmark"
    for name in ("precision", "batch_size", "mode", "model", "lane"):
        one, other = (
            {getattr(side.measurement.workload, name) for side in sides.values() if side.measurement}
            for sides in (base, head)
        )
        if one and other and not one & other:
            told = [", ".join(map(str, sorted(found))) for found in (one, other)]
            return f"no benchmark is in both: {name} is {told[0]} in the baseline, {told[1]} here"
    return "no benchmark is in both"


def _program(base: Measurement | None, head: Measurement | None) -> tuple[str, str]:
    """What changed in a program; and what to know of one that did not, where something is known."""
    if base is None or head is None or base.program is None or head.program is None:
        return "", ""
    found = programs.compare(base.program, head.program, head.workload.device)
    changed = programs.changes(found)
    return changed, "" if changed else programs.facts(found)


def _judged(cases: Sequence[_Compared]) -> list[Finding]:
    """Verdicts over the whole suite: a test each, and Holm's correction over all of them."""
    p_values = {}
    for at, case in enumerate(cases):
        if not case.exact and not case.alone and math.isfinite(case.certain):
            excess = case.certain - case.worse_by(_TOLERATED * case.threshold)
            p_values[at] = min(1.0, (case.best.choices if case.best else 1) * _p_value(excess, *case.spread))
    fallen = holm(p_values)
    found = [(case, _finding(case, p_values.get(at), at in fallen)) for at, case in enumerate(cases)]
    # Beside the best only what is worse counts; it then stands for what was found beside the baseline.
    worse = {(f.benchmark, f.metric): f for case, f in found if case.best and f.kind == "regressed"}
    return [
        finding if finding.kind == "regressed" else worse.get((finding.benchmark, finding.metric), finding)
        for case, finding in found
        if not case.best
    ]


def _p_value(excess: float, error: float, degrees: float) -> float:
    """One-sided, of Student's t; with infinitely many degrees of freedom it is the normal distribution."""
    if not error:
        return 0.0 if excess > 0 else 1.0
    return float(special.stdtr(degrees, -excess / error))


def _finding(case: _Compared, p: float | None, significant: bool) -> Finding:
    difference, limit = case.difference, case.worse_by(case.threshold)
    interval = _interval(case)
    kind: Decision
    if case.exact:
        kind = "regressed" if difference > limit else "improved" if difference < -limit else "unchanged"
    elif case.alone:
        beyond = max(limit, math.log(_BEYOND_DISPUTE))
        better = difference + case.disturbed.base < -beyond
        kind = "regressed" if case.certain > beyond else "improved" if better else "inconclusive"
    elif significant and case.certain > limit:
        kind = "regressed"
    elif interval[1] < -limit:
        kind = "improved"
    elif interval[1] <= limit:
        kind = "unchanged"
    else:
        kind = "inconclusive"
    happened = f"{case.disturbed.happened}; the change is beyond that" if case.disturbed.happened else ""
    beside = (
        f"beside the best of the earlier runs, from {case.best.where} on; `fwbench history` shows when it became worse"
        if case.best
        else ""
    )
    notes = {"regressed": "; ".join(filter(None, (beside, happened, case.program))), "inconclusive": _unsure(case)}
    sign = 1 if CRITERIA[case.metric].direction == "lower" else -1
    low, high = sorted(math.exp(sign * end) for end in interval)
    verdict = Verdict(
        kind,
        math.exp(sign * difference),
        (low, high),
        1.0 if case.exact else _CONFIDENCE,
        min(len(case.base), len(case.head)),
        p,
    )
    return Finding(
        case.name,
        kind,
        case.metric,
        math.exp(level(case.base)),
        math.exp(level(case.head)),
        _replicates(case),
        verdict,
        notes.get(kind, ""),
    )


def _replicates(case: _Compared) -> str:
    processes = f"{len(case.head)} process{'es' * (len(case.head) > 1)}"
    if case.best:
        return f"{case.best.runs} run{'s' * (case.best.runs > 1)} and {processes}"
    return f"{len(case.base)} and {processes}"


def _unsure(case: _Compared) -> str:
    """Why nothing can be told, and what to do."""
    met = case.disturbed
    if met.happened:
        return (
            f"{met.happened}: that can lengthen any time. {met.steps}, and measure again, or in a duet "
            "(--fwbench-against)"
        )
    if case.alone:
        return f"{_ALONE}: --fwbench-set=processes=5 on both sides" if case.ours else _ALONE
    return (
        f"the differences between processes and between runs hide changes of {case.threshold:.0%}: more processes "
        "(--fwbench-set=processes=5), `fwbench selftest` here when it is quiet, or a duet (--fwbench-against)"
    )


def _interval(case: _Compared) -> tuple[float, float]:
    """Of the difference, and what disturbed the two sides on top."""
    if case.exact:
        return case.difference, case.difference
    if case.alone:
        return -math.inf, math.inf
    error, degrees = case.spread
    width = error * float(special.stdtrit(degrees, 0.5 + _CONFIDENCE / 2))
    return case.difference - width - case.disturbed.head, case.difference + width + case.disturbed.base


def _versions(pairs: Sequence[tuple[Benchmark, Benchmark]]) -> list[str]:
    """Framework versions that differ: they may, and are often what is compared."""
    found = {
        f"{name} {before} in the baseline, {now} here"
        for one, other in pairs
        if one.measurement and other.measurement
        for name, (before, now) in versions_that_differ(one.measurement, other.measurement).items()
    }
    return sorted(found)


def versions_that_differ(base: Measurement, head: Measurement) -> dict[str, tuple[str, str]]:
    """The distributions whose versions differ, with both versions; those that only one side tells are left out."""
    return {
        name: (version, head.versions[name])
        for name, version in base.versions.items()
        if head.versions.get(name, version) != version
    }
