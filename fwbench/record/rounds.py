"""Rounds in which lanes took turns: records of their own, which a run stores as soon as they are played."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fwbench.record.decoding import Amount, Decoded
from fwbench.record.measurement import Measurement
from fwbench.record.workload import Workload


@dataclass(frozen=True)
class PlayedRound(Decoded):
    """A round in which processes of a workload's lanes took turns.

    Attributes:
        workload: the workload of all lanes; its own `lane` is empty.
        begun: about when the round began, in seconds since 1970.
        turns: by lane and metric, one number for each block: the seconds of a `call` among calls back to back and of a
            synchronised call (`latency`); and one number for the peak `memory` in bytes, if it is known.
        pace: seconds in which two CPUs hand a number to each other (`fwbench.machine.pace`); 0: unknown.
    """

    workload: Workload
    begun: Amount
    turns: Mapping[str, Mapping[str, Sequence[float]]]
    pace: Amount = 0.0

    def to_json(self) -> dict[str, Any]:
        """The record as JSON primitives."""
        return {**dataclasses.asdict(self), "workload": self.workload.to_json()}


def with_rounds(measurements: Iterable[Measurement], rounds: Iterable[PlayedRound]) -> list[Measurement]:
    """The measurements with the turns of their lanes; a failed measurement gets none."""
    by_workload: dict[Workload, dict[float, PlayedRound]] = {}
    for each in rounds:
        by_workload.setdefault(each.workload, {})[each.begun] = each
    joined = []
    for m in measurements:
        own = {} if m.failure else by_workload.get(m.workload.of_all, {})
        turns = [
            {"begun": each.begun, "pace": each.pace, **each.turns[m.workload.lane]}
            for each in own.values()
            if m.workload.lane in each.turns
        ]
        joined.append(dataclasses.replace(m, turns=(*m.turns, *turns)) if turns else m)
    return joined
