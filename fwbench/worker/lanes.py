"""Rounds for the lanes of a workload: a fresh process for each lane, which take turns."""

import dataclasses
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fwbench.machine import Machine
from fwbench.models import Model
from fwbench.record.lanes import LANES
from fwbench.record.workload import Workload
from fwbench.worker.partner import Partner, Seat
from fwbench.worker.rounds import Rounds
from fwbench.worker.sides import Side
from fwbench.worker.taken import Taken


@dataclass(frozen=True)
class Round:
    """The result of a round.

    Attributes:
        begun: when the round began, in seconds since 1970.
        calls: by lane the seconds of a call among calls back to back, one number a block of turns.
        load: the share of the CPUs that others took during the turns.
        seconds: how long the round took.
        programs: by lane the digest of its program; empty but in a workload's first round.
    """

    begun: float
    calls: Mapping[str, tuple[float, ...]]
    load: float
    seconds: float
    programs: Mapping[str, str | None] = field(default_factory=dict)


class Lanes(Rounds[Round]):
    """Plays rounds of the lanes of each workload; a workload's own `lane` is empty.

    Args:
        side: where all of them find fwbench, the user's modules and their interpreters.
        lanes: names, by workload.
        models, machine, device, deadline: as `Rounds` has them.
    """

    # Each round is a replicate with fresh memory, so it needs one placing.
    placings = 1
    # Long enough to notice other load by the kernel's clock, which counts hundredths of a second.
    turn = 0.1

    def __init__(
        self,
        side: Side,
        lanes: Mapping[Workload, Sequence[str]],
        models: Mapping[str, Model],
        machine: Machine,
        device: str,
        deadline: float,
    ) -> None:
        super().__init__(models, machine, device, deadline)
        self._side = side
        self._lanes = lanes

    def seats(self, workload: Workload) -> tuple[Seat, ...]:
        names = self._lanes[workload]
        return tuple(Seat(name, dataclasses.replace(self._side, title=name), LANES[name]) for name in names)

    def _turn(self, partner: Partner, taken: Taken, placing: int, block: int) -> None:
        name = partner.seat.name
        # A lane's last turn says how many calls fill the next; the few calls of the warm-up may have been slow.
        known = taken.blocks_of("call", name)
        calls = math.ceil(self.turn / known[-1]) if known else 1
        answer = partner.ask({"calls": max(calls, taken.rounds - 1)}, "calls")
        taken.keep("call", placing, block, name, answer["calls"])
        taken.cpu += answer["cpu"]
        taken.others += answer["others"]

    def _result(self, taken: Taken, seconds: float) -> Round:
        calls = {name: taken.blocks_of("call", name) for name in taken.described}
        programs = {
            name: (told["program"] or {}).get("digest") for name, told in taken.described.items() if "program" in told
        }
        return Round(time.time() - seconds, calls, taken.others / taken.cpu, seconds, programs)
