"""Selects the rounds of a run that count, and estimates the scatter to expect of a workload's rounds."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fwbench.compare.ratios import (
    FEWEST_ROUNDS,
    ON_GPU,
    Scatter,
    as_usual,
    pooled_scatter,
    round_difference,
    usual_pace,
)
from fwbench.record.measurement import Measurement

# The least share of a call for which a GPU that sets the call's speed computes.
_BUSY = 0.75

# A lane's turns in one round (`fwbench.record.measurement.Measurement.turns`); and a workload's turns by lane, with the
# same rounds in each.
Turns = Mapping[str, Any]
OfLanes = Mapping[str, Sequence[Turns]]


def usual(turns: Iterable[Turns]) -> float:
    """The usual pace of a run, in seconds, from the turns of its lanes in each round; 0 if none is known."""
    return usual_pace([each["pace"] for each in turns if each.get("pace")])


def counted(turns: Iterable[Turns], usual: float) -> list[Turns]:
    """The turns of those rounds that were played at the usual pace; of all, where too few were for an interval."""
    given = list(turns)
    at_usual_pace = [each for each in given if as_usual(each.get("pace", 0.0), usual)]
    return at_usual_pace if len(at_usual_pace) >= FEWEST_ROUNDS else given


def differences(of_lanes: OfLanes) -> Iterator[list[float]]:
    """Yield each other lane's differences from the first lane, one for each round that both played."""
    first, *others = of_lanes.values()
    by_time = {each["begun"]: each["call"] for each in first}
    for turns in others:
        yield [round_difference(by_time[each["begun"]], each["call"]) for each in turns if each["begun"] in by_time]


def sets_speed(device: float, call: float) -> bool:
    """True if a GPU that computes for so many seconds of a call sets the call's speed, and not the host."""
    return device >= _BUSY * call


class Played(NamedTuple):
    """The counted rounds of a workload.

    Attributes:
        device: by lane, the seconds in which a GPU computes for a call, if they are known.
    """

    turns: OfLanes
    device: Mapping[str, float]

    @property
    def busy(self) -> frozenset[str]:
        """The lanes in whose calls a GPU computes most of the time, so that no host sets their speed."""
        fastest = {lane: min(min(each["call"]) for each in turns) for lane, turns in self.turns.items() if turns}
        return frozenset(lane for lane, call in fastest.items() if sets_speed(self.device.get(lane, 0.0), call))


def device_times(measurements: Iterable[Measurement]) -> dict[str, float]:
    """The seconds in which a GPU computes for a call, by lane."""
    return {m.workload.lane: seconds for m in measurements if (seconds := m.value("device_time"))}


def expected(own: Played, others: Iterable[Played]) -> dict[str, Scatter]:
    """The scatter to expect of a workload's rounds, by lane, from a run's other workloads.

    Rounds scatter less if a GPU is the limit than if the host is, so for each kind of lane it comes from lanes of the
    same kind. For two lanes of different kinds the `wider` scatter holds.
    """
    given = list(others)
    known = {}
    for kind, usual in ((True, ON_GPU), (False, Scatter())):
        turns = [_of_kind(each, kind) for each in given]
        known[kind] = _pooled(_of_kind(own, kind), turns, usual)
    return {lane: known[lane in own.busy] for lane in own.turns}


def wider(first: Scatter, second: Scatter) -> Scatter:
    """The larger of two scatters."""
    return max(first, second, key=lambda each: each.deviation)


def _of_kind(played: Played, busy: bool) -> OfLanes:
    """The turns of the lanes that are busy; or, for the other kind, of all lanes unless all are busy."""
    if busy:
        return {lane: turns for lane, turns in played.turns.items() if lane in played.busy}
    return {} if played.busy.issuperset(played.turns) else played.turns


def _pooled(own: OfLanes, others: Iterable[OfLanes], usual: Scatter) -> Scatter:
    if not own or not all(own.values()):
        return usual
    known = [(_call(other), each) for other in others if other and all(other.values()) for each in differences(other)]
    return pooled_scatter(known, _call(own), usual)


def _call(of_lanes: OfLanes) -> float:
    """Seconds of the slowest lane's call."""
    return max(float(min(each["call"])) for turns in of_lanes.values() for each in turns)
