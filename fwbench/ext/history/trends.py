"""Trends over many runs of one machine: a series for each workload and metric, and its changes.

One series holds only runs that a gate would compare: another machine, setting, profile or arithmetic begins another
series. A run without a value leaves a gap, which nothing fills.
"""

import dataclasses
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fwbench.compare.criteria import CRITERIA, Threshold, by_metric
from fwbench.compare.differences import Difference, differences, mismatches
from fwbench.compare.matching import distinct, without_harness, without_repeats
from fwbench.compare.testing import OF_STATE, level
from fwbench.ext.history.changes import Change, find
from fwbench.machine import Machine
from fwbench.machine.disturbances import lengthening
from fwbench.record.measurement import Measurement
from fwbench.record.plain import PlainTest
from fwbench.record.storage import Plain, Record
from fwbench.record.workload import Workload

# The standard deviation between runs of unchanged code that is assumed at least, however steady a series looks. For
# metrics that depend on the machine's state it is the least seen on two shared cores; for memory it is next to nothing.
_FLOOR, _STEADY = 0.01, 0.001

# The number of undisturbed runs on either side with which a disturbed run is compared.
_BESIDE = 5

# Throughput has latency's threshold: it is the other side of latency, and a duet measures latency alone.
_STANDS_FOR = {"throughput": "latency"}


@dataclass(frozen=True)
class Run:
    """One run of the suite among those of its machine.

    Attributes:
        number: its place among them, from 0.
        commit: the commit that was measured; empty if the record lacks it, as a journal does.
        dirty: whether it was measured with changes that were not committed.
    """

    number: int
    record: Record

    @property
    def commit(self) -> str:
        return str(self.record.commit.get("id") or "")

    @property
    def dirty(self) -> bool:
        return bool(self.record.commit.get("dirty"))


@dataclass(frozen=True)
class Point:
    """The value of one run in a series.

    Attributes:
        measurement: the measurement; None for a plain benchmark.
        value: the geometric mean over processes, in the metric's SI unit.
        lengthened: the factor by which disturbances can have lengthened a time; 1 if there were none.
    """

    run: Run
    measurement: Measurement | None
    value: float
    lengthened: float = 1.0


@dataclass(frozen=True)
class Shift:
    """A change of a series.

    Attributes:
        before: the last point at the old level.
        after: the first one at the new level; of a drift, with points between the two.
        ratio: the new level over the old one.
        interval: the ratio's interval at 95 %, for a change at this place.
        worse: whether the metric changed in its worse direction.
    """

    before: Point
    after: Point
    ratio: float
    interval: tuple[float, float]
    drift: bool
    worse: bool


@dataclass(frozen=True)
class Series:
    """One workload and metric over the runs that can be compared.

    Attributes:
        workload: the workload without the data's path, or a plain benchmark.
        breaks: the differences from the end of the workload's previous series; empty for the first series.
        shifts: its changes, in the order of the runs.
        spikes: points that stand alone, and so are no change.
        unsure: points that were disturbed so much that they could lie on the level of those beside them.
    """

    workload: Workload | PlainTest
    metric: str
    points: tuple[Point, ...]
    breaks: tuple[Difference, ...] = ()
    shifts: tuple[Shift, ...] = ()
    spikes: tuple[Point, ...] = ()
    unsure: tuple[Point, ...] = ()


@dataclass(frozen=True)
class History:
    """All runs of one machine.

    Attributes:
        machine: the machine; None if fwbench's plugin had no part in the records.
        runs: oldest first.
        series: all series, workload by workload, in the order of their first runs.
    """

    machine: Machine | None
    runs: tuple[Run, ...]
    series: tuple[Series, ...]


def histories(records: Iterable[Record]) -> list[History]:
    """The histories of the records, one a machine; a measurement that a run and its journal hold counts once."""
    given = [without_harness(record) for record in records]
    plain = {(record.made, record.node): record for record in given if record.plain and not record.measurements}
    machines: list[list[Record]] = []
    for record in sorted([*distinct(given), *plain.values()], key=lambda record: record.made):
        alike = next((of for of in machines if _same(of[0], record)), None)
        if alike is None:
            machines.append([record])
        else:
            alike.append(record)
    made = []
    for of in machines:
        runs = tuple(Run(number, record) for number, record in enumerate(of))
        made.append(History(of[0].machine, runs, tuple(_series(runs))))
    return made


def _same(one: Record, other: Record) -> bool:
    if one.machine is None or other.machine is None:
        return one.machine is other.machine and one.node == other.node
    return not mismatches(one.machine, other.machine)


def _series(runs: Sequence[Run]) -> list[Series]:
    """Each workload's runs that can be compared with each other, metric by metric."""
    tracks: dict[Workload, list[list[tuple[Run, Measurement]]]] = {}
    for run in runs:
        measured = without_repeats(run.record)
        counts = Counter(m.workload.anywhere for m in measured)
        for m in measured:
            if counts[m.workload.anywhere] == 1:
                _join(tracks.setdefault(m.workload.anywhere, []), run, m)
    return [
        _judged(Series(workload, metric, points, _breaks(of, number)))
        for workload, of in tracks.items()
        for metric in CRITERIA
        for number, track in enumerate(of)
        if (points := tuple(_points(track, metric)))
    ] + _plain(runs)


def _plain(runs: Sequence[Run]) -> list[Series]:
    """Each plain benchmark's latency, over the runs of its last version where it has versions."""
    tracks: dict[str, list[tuple[Run, Plain]]] = {}
    for run in runs:
        for name, plain in run.record.plain.items():
            if plain.stats["median"] > 0:
                tracks.setdefault(name, []).append((run, plain))
    series = []
    for name, track in tracks.items():
        newest = track[-1][1].stats.get("version")
        of = [(run, plain.stats["median"]) for run, plain in track if plain.stats.get("version") == newest]
        points = tuple(Point(run, None, median) for run, median in of)
        series.append(_judged(Series(PlainTest(name), "latency", points)))
    return series


def _join(tracks: list[list[tuple[Run, Measurement]]], run: Run, measurement: Measurement) -> None:
    for track in reversed(tracks):
        if not any(differences(track[-1][1], measurement)):
            track.append((run, measurement))
            return
    tracks.append([(run, measurement)])


def _breaks(tracks: Sequence[Sequence[tuple[Run, Measurement]]], number: int) -> tuple[Difference, ...]:
    return tuple(differences(tracks[number - 1][-1][1], tracks[number][0][1])) if number else ()


def _points(track: Sequence[tuple[Run, Measurement]], metric: str) -> list[Point]:
    points = []
    for run, m in track:
        if of_processes := by_metric(m).get(metric):
            factor = lengthening([m]) if metric in OF_STATE else 1.0
            points.append(Point(run, m, math.exp(level(of_processes)), factor))
    return points


def _judged(series: Series) -> Series:
    """The series with its changes, found from the points that no disturbance can explain."""
    certain = [_certain(series, place) for place in range(len(series.points))]
    sure = [point for point, value in zip(series.points, certain, strict=True) if value is not None]
    unsure = tuple(point for point, value in zip(series.points, certain, strict=True) if value is None)
    if not sure:
        return dataclasses.replace(series, unsure=unsure)
    floor = _FLOOR if series.metric in OF_STATE else _STEADY
    least = math.log1p(smallest(series.metric).of(statistics.median(point.value for point in sure)))
    changes = find([math.log(value) for value in certain if value is not None], floor, least)
    return dataclasses.replace(
        series,
        shifts=tuple(_shift(series.metric, sure, change) for change in changes.changes),
        spikes=tuple(sure[place] for place in sorted(changes.spikes)),
        unsure=unsure,
    )


def smallest(metric: str) -> Threshold:
    """The smallest change that counts in a history: a duet's, where a duet measures the metric, else the gate's."""
    criterion = CRITERIA[_STANDS_FOR.get(metric, metric)]
    threshold = criterion.duet or criterion.saved
    assert threshold is not None
    return threshold


def _certain(series: Series, place: int) -> float | None:
    """The point's value; None if it says nothing.

    A disturbed point is an interval; the end nearest to its undisturbed neighbours counts. It says nothing if it has no
    such neighbours, or if its interval overlaps their range or has no end.
    """
    point = series.points[place]
    if point.lengthened == 1:
        return point.value
    beside = [
        *[p.value for p in series.points[:place] if p.lengthened == 1][-_BESIDE:],
        *[p.value for p in series.points[place + 1 :] if p.lengthened == 1][:_BESIDE],
    ]
    lower = CRITERIA[series.metric].direction == "lower"
    undisturbed = point.value / point.lengthened if lower else point.value * point.lengthened
    low, high = sorted((point.value, undisturbed))
    if not beside or not math.isfinite(point.lengthened) or (low <= max(beside) and high >= min(beside)):
        return None
    return low if low > max(beside) else high


def _shift(metric: str, points: Sequence[Point], change: Change) -> Shift:
    low, high = change.interval
    return Shift(
        points[change.before],
        points[change.after],
        math.exp(change.size),
        (math.exp(low), math.exp(high)),
        change.drift,
        (change.size > 0) == (CRITERIA[metric].direction == "lower"),
    )
