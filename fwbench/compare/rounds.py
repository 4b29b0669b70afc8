"""Which rounds of a run count, and how far those of a workload are expected to scatter."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from fwbench.compare.statistics import Scatter, as_usual, pooled_scatter, round_difference, usual_pace

# A lane's turns in one round (`fwbench.record.measurement.Measurement.turns`), and those of a workload by lane, with
# the same rounds in each.
Turns = Mapping[str, Any]
OfLanes = Mapping[str, Sequence[Turns]]


def usual(turns: Iterable[Turns]) -> float:
    """The usual pace of a run, in seconds, of a lane's turns in each of its rounds; 0 if none is known."""
    return usual_pace([each["pace"] for each in turns if each.get("pace")])


def counted(turns: Iterable[Turns], usual: float) -> list[Turns]:
    """The turns of those rounds in which the machine's CPUs lay as usual."""
    return [each for each in turns if as_usual(each.get("pace", 0.0), usual)]


def differences(of_lanes: OfLanes) -> Iterator[list[float]]:
    """Each other lane's differences from the first lane, round by round; of rounds that both played."""
    first, *others = of_lanes.values()
    by_time = {each["begun"]: each["call"] for each in first}
    for turns in others:
        yield [round_difference(by_time[each["begun"]], each["call"]) for each in turns if each["begun"] in by_time]


def expected(own: OfLanes, others: Iterable[OfLanes]) -> Scatter:
    """How far a workload's rounds are expected to scatter, given the counted rounds of a run's other workloads."""
    if not own or not all(own.values()):
        return Scatter()
    known = [(_call(other), rounds) for other in others if all(other.values()) for rounds in differences(other)]
    return pooled_scatter(known, _call(own))


def _call(of_lanes: OfLanes) -> float:
    """Seconds of the slowest lane's call."""
    return max(float(min(each["call"])) for turns in of_lanes.values() for each in turns)
