"""Trends over many runs of one machine: a series for each workload and metric, and its changes.

One series holds only runs that a gate would compare: another machine, setting, profile or arithmetic begins another
series. A run without a value leaves a gap, which nothing fills.
"""

import dataclasses
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from fwbench.compare.cases import grouped
from fwbench.compare.criteria import CRITERIA, by_metric
from fwbench.compare.differences import Difference, differences, mismatches
from fwbench.compare.matching import distinct, without_harness, without_repeats
from fwbench.compare.testing import OF_STATE, level
from fwbench.ext.history.changes import Change, find
from fwbench.machine import Machine
from fwbench.machine.disturbances import lengthening
from fwbench.record.measurement import Measurement
from fwbench.record.plain import PlainTest
from fwbench.record.storage import Record
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
    """One run of the suite, and its place among those of its machine, from 0.

    The commit is empty if the record lacks it, as a journal does; it is dirty if some changes were not committed.
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
    """One run's geometric mean over processes, in the metric's SI unit; a plain benchmark has no measurement.

    Disturbances can have lengthened a time by the factor `lengthened`, which is 1 if there were none.
    """

    run: Run
    measurement: Measurement | None
    value: float
    lengthened: float = 1.0


@dataclass(frozen=True)
class Shift:
    """A change of a series, from the last point at the old level to the first one at the new; a drift has some between.

    The ratio is the new level over the old one, with an interval at 95 % for a change at this place.
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
    """All runs of one machine, oldest first, and their series, workload by workload.

    The machine is None if fwbench's plugin had no part in the records.
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
            machines.append(alike := [])
        alike.append(record)
    of_machines = [tuple(Run(number, record) for number, record in enumerate(of)) for of in machines]
    return [History(runs[0].record.machine, runs, tuple(_series(runs))) for runs in of_machines]


def _same(one: Record, other: Record) -> bool:
    if one.machine is None or other.machine is None:
        return one.machine is other.machine and one.node == other.node
    return not mismatches(one.machine, other.machine)


def _series(runs: Sequence[Run]) -> list[Series]:
    """Each workload's runs that can be compared with each other, metric by metric."""
    tracks: dict[Workload, list[list[tuple[Run, Measurement]]]] = {}
    for run in runs:
        for workload, same in grouped(without_repeats(run.record), lambda m: m.workload.anywhere).items():
            if len(same) == 1:
                of = tracks.setdefault(workload, [])
                track = next((each for each in reversed(of) if not any(differences(each[-1][1], same[0]))), None)
                if track is None:
                    of.append(track := [])
                track.append((run, same[0]))
    return [
        _judged(Series(workload, metric, points, tuple(differences(before[-1][1], track[0][1])) if before else ()))
        for workload, of in tracks.items()
        for metric in CRITERIA
        for before, track in pairwise([None, *of])
        if track and (points := tuple(_points(track, metric)))
    ] + _plain(runs)


def _plain(runs: Sequence[Run]) -> list[Series]:
    """Each plain benchmark's latency, over the runs of its last version where it has versions."""
    every = ((name, run, plain.stats) for run in runs for name, plain in run.record.plain.items())
    tracks = grouped((each for each in every if each[2]["median"] > 0), lambda each: each[0])
    series = []
    for name, track in tracks.items():
        newest = track[-1][2].get("version")
        points = tuple(Point(run, None, of["median"]) for _, run, of in track if of.get("version") == newest)
        series.append(_judged(Series(PlainTest(name), "latency", points)))
    return series


def _points(track: Sequence[tuple[Run, Measurement]], metric: str) -> list[Point]:
    return [
        Point(run, m, math.exp(level(of_processes)), lengthening([m]) if metric in OF_STATE else 1.0)
        for run, m in track
        if (of_processes := by_metric(m).get(metric))
    ]


def _judged(series: Series) -> Series:
    """The series with its changes, found from the points that no disturbance can explain."""
    values = {place: value for place in range(len(series.points)) if (value := _certain(series, place)) is not None}
    sure = [series.points[place] for place in values]
    unsure = tuple(point for place, point in enumerate(series.points) if place not in values)
    if not sure:
        return dataclasses.replace(series, unsure=unsure)
    floor = _FLOOR if series.metric in OF_STATE else _STEADY
    criterion = CRITERIA[_STANDS_FOR.get(series.metric, series.metric)]
    # A duet's threshold, where a duet measures the metric, else the gate's.
    threshold = criterion.duet or criterion.saved
    assert threshold is not None
    least = math.log1p(threshold.of(statistics.median(point.value for point in sure)))
    changes = find(list(map(math.log, values.values())), floor, least)
    shifts = tuple(_shift(series.metric, sure, change) for change in changes.changes)
    spikes = tuple(sure[place] for place in sorted(changes.spikes))
    return dataclasses.replace(series, shifts=shifts, spikes=spikes, unsure=unsure)


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
    before, after, ratio = points[change.before], points[change.after], math.exp(change.size)
    low, high = map(math.exp, change.interval)
    worse = (change.size > 0) == (CRITERIA[metric].direction == "lower")
    return Shift(before, after, ratio, (low, high), change.drift, worse)
