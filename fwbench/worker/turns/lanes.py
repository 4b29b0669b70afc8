"""Rounds for the lanes of a workload: a process for each lane, which take turns."""

import dataclasses
import math
import statistics
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from itertools import pairwise

from fwbench.compare.pair import Fault
from fwbench.compare.ratios import as_usual, usual_pace
from fwbench.machine import Machine
from fwbench.machine.pace import Pace
from fwbench.models import Model
from fwbench.record.lanes import LANES
from fwbench.record.workload import Workload
from fwbench.worker.client.server import Server
from fwbench.worker.turns.partner import Measured, Partner, Seat, SideError
from fwbench.worker.turns.rounds import Rounds, take_turn
from fwbench.worker.turns.servers import Servers
from fwbench.worker.turns.sides import Side
from fwbench.worker.turns.taken import Amounts, Taken, gated

# Lanes are compared by the seconds of a call that is waited for, the seconds of a call among calls back to back, and
# the peak memory in bytes.
METRICS = ("latency", "call", "memory")

# Asks for a turn of one call, without a call before it that refills the caches.
_SINGLE = {"alone": 1, "together": 0}

# One placing, as rounds are the replicates, and each has new memory. Short turns, of slow programs as of fast ones:
# neighbours of a virtual machine make it slow for tenths of seconds to minutes, and of many turns some are not slowed
# in either lane. Where five agree of at least 16, the median workload's rounds scatter by 1.5 to 6 % on five machines
# (docs/evidence/turns.md). Half as many again are taken where the CPUs are not always at their usual pace.
# Two lanes with calls of 0.4 to 0.5 s have eight turns, whose rounds scatter by 2 to 4 % (the same page): an interval
# needs two rounds.
_ON_CPU = Amounts(placings=1, blocks=18, turn=0.02, seconds=8.0, single=0.02, fewest=16, enough=24)
# On a GPU a turn's queue is as full as that of the throughput pass: of two calls of 13 ms in JAX, 5 % were the start of
# the first one. Ten turns of a process lay within 0.5 % where the GPU is the limit (docs/gpu.md). Where the
# host is, rounds of an H200 differed by a fifth, and after 12 turns a round by at most 5 % from what it was after 24.
_ON_GPU = dataclasses.replace(_ON_CPU, single=math.inf, queue=40, fewest=4, enough=12, seconds=20.0)
AMOUNTS: Mapping[str, Amounts] = {"cpu": _ON_CPU, "gpu": _ON_GPU}
# The fewest turns where a GPU sets the speed of all lanes: in four rounds of an H200 the ratios of two turns of each
# lane lay within 0.5 % of those of four.
_BUSY = 2
# The most calls of a turn on a GPU that each wait.
_WAITING = 10


def waiting(together: int, device: str) -> int:
    """The number of a turn's calls that each wait, beside so many back to back."""
    return max(1, min(together // 2, _WAITING) if device == "gpu" else together // 2)


def seconds_on_gpu(latency: float, call: float, *, busy: bool) -> float:
    """Expected seconds of a lane's turns in a round on a GPU.

    Args:
        latency, call: seconds of a call that is waited for, and of one back to back.
        busy: whether the GPU sets the speed of all lanes, whose turns then agree.
    """
    together = _ON_GPU.timed(call)
    turn = (1 + waiting(together, "gpu")) * latency + together * call
    return (_BUSY if busy else _ON_GPU.enough) * turn


# Turns are over when so many of each lane's fastest turns, or all, lie within this share of each other.
_ALIKE, _WITHIN = 5, 0.02

# The fewest blocks at the usual pace that make a round of them.
_FEW = 4


def settled(lanes: Iterable[Sequence[float]], amounts: Amounts) -> bool:
    """True if further turns would hardly find another speed, by each lane's scatter, whatever the ratio.

    Args:
        lanes: seconds of a call in each lane's turns that count.
        amounts: the fewest turns of each lane, and those that are enough.
    """

    def over(turns: Sequence[float]) -> bool:
        fastest = sorted(turns)[:_ALIKE]
        alike = len(turns) >= amounts.fewest and fastest[-1] <= fastest[0] * (1 + _WITHIN)
        return alike or len(turns) >= amounts.enough

    return all(map(over, lanes))


@dataclass(frozen=True)
class Round:
    """The result of a round.

    Attributes:
        begun: about when the round began, in seconds since 1970; all its lanes store the same number.
        values: by lane and metric (`METRICS`), one number for each turn; for memory one in all, or none if unknown.
        load: the share of the CPUs' time that other processes used during the turns.
        seconds: how long the round took, without its servers' start: they may stay for the next one.
        sources: by lane, the digests of the user's files that it has read, by name.
        programs: by lane, the digest of its program; only a workload's first round has them.
        held: whether a process was stopped, or held back by a quota, in each try of a turn.
        pace: the pace of the median block (`fwbench.machine.pace`), in seconds; 0: unknown.
        waited: on a GPU, the median turn's share of time for which threads waited for a CPU; None: unknown.
        disturbed: the other processes on the GPU, or the reasons for its low clocks; empty: none.
    """

    begun: float
    values: Mapping[str, Mapping[str, tuple[float, ...]]]
    load: float
    seconds: float
    programs: Mapping[str, str | None] = field(default_factory=dict)
    sources: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    held: bool = False
    pace: float = 0.0
    waited: float | None = None
    disturbed: str = ""


class Lanes(Rounds[Round]):
    """Plays rounds of the lanes of each workload; a workload's own `lane` is empty.

    Args:
        side: the side from which all lanes have fwbench, the user's modules and their interpreters.
        lanes: their names, by workload.
        models, machine, device, deadline, servers: as `Rounds` has them.
        busy: the workloads of which a GPU sets the speed of all lanes.
    """

    def __init__(
        self,
        side: Side,
        lanes: Mapping[Workload, Sequence[str]],
        models: Mapping[str, Model],
        machine: Machine,
        device: str,
        deadline: float,
        servers: Servers | None = None,
        busy: Container[Workload] = (),
    ) -> None:
        super().__init__(models, machine, device, deadline, servers=servers)
        self._busy = busy
        self.amounts = AMOUNTS[device]
        self._side = side
        self._lanes = lanes
        # All readings so far, as the usual pace is the run's.
        self._paces: list[float] = []

    def _amounts(self, workload: Workload) -> Amounts:
        return dataclasses.replace(self.amounts, fewest=_BUSY) if workload in self._busy else self.amounts

    def seats(self, workload: Workload) -> tuple[Seat, ...]:
        names = self._lanes[workload]
        return tuple(Seat(name, dataclasses.replace(self._side, title=name), LANES[name]) for name in names)

    def _turn(self, partner: Partner, taken: Taken, placing: int, block: int) -> None:
        name = partner.seat.name
        # A call's time in the lane's last turn gives the number of calls in the next: the warm-up's may have been slow.
        seconds = taken.turns_of("call", name)
        together = max(taken.rounds - 1, self.amounts.timed(seconds[-1]) if seconds else 1)
        asked = _SINGLE if taken.rounds == 1 else {"alone": waiting(together, self._device), "together": together}
        if not taken.paces:
            taken.paces.append(self._read_pace())
        answer = take_turn(partner.ask, taken, asked, "latency")
        for metric in METRICS[:2]:
            taken.keep(metric, placing, block, name, answer[metric])
        taken.cpu += answer["cpu"]
        taken.others += answer["others"]
        if answer["waited"] is not None:
            taken.waits.append(answer["waited"])

    def play(
        self, workloads: Sequence[Workload], arrived: Callable[[Workload, Round | Fault], None] = lambda *_: None
    ) -> dict[Workload, Round | Fault]:
        with self._pacing() as self._pace:
            return super().play(workloads, arrived)

    def play_measured(self, workload: Workload, servers: Mapping[str, Server]) -> Round | Fault:
        """Play a round of the processes that have measured a workload and stay.

        Args:
            servers: of these processes, by lane; ended if one fails.
        """
        seats = self.seats(workload)
        self._read_texts(seats)
        # They have told their programs.
        self._fingerprinted.add(workload)
        begun = time.monotonic()
        with ExitStack() as stack:
            partners: dict[str, Partner] = {
                seat.name: stack.enter_context(closing(Measured(seat, servers[seat.name], self._deadline)))
                for seat in seats
            }
            try:
                with self._pacing() as self._pace:
                    taken = self._play(workload, partners)
            except SideError as error:
                return error.fault
            stack.pop_all()
        return self._result(taken, time.monotonic() - begun, 0.0)

    def _pacing(self) -> Pace:
        # On a GPU rounds are long, and its programs have no threads that share caches.
        return Pace(() if self._device == "gpu" else self._machine.cpus)

    def _read_pace(self) -> float:
        """The CPUs' pace now, in seconds; 0: unknown."""
        if pace := self._pace.read():
            self._paces.append(pace)
        return pace or 0.0

    def _counted(self, taken: Taken) -> list[int]:
        """The numbers of the blocks before and after which the pace was as usual."""
        usual = usual_pace(self._paces)
        flags = [as_usual(pace, usual) for pace in taken.paces]
        return [block for block, around in enumerate(pairwise(flags)) if all(around)]

    def _over(self, taken: Taken) -> bool:
        taken.paces.append(self._read_pace())
        counted = self._counted(taken)
        return settled((taken.turns_of("call", name, counted) for name in taken.described), taken.amounts)

    def _result(self, taken: Taken, seconds: float, starting: float) -> Round:
        counted = self._counted(taken)
        if len(counted) < _FEW:
            # It keeps its own pace, which may yet turn out to be the run's usual one.
            counted = list(range(taken.blocks))
        values = {
            name: {metric: turns for metric in METRICS[:2] if (turns := taken.turns_of(metric, name, counted))}
            for name in taken.described
        }
        for name, memory in taken.memory.items():
            if peak := gated(memory, self._device).get("peak_memory"):
                values[name]["memory"] = (peak,)
        paces = [max(around) for block, around in enumerate(pairwise(taken.paces)) if block in counted]
        programs = {
            name: (told["program"] or {}).get("digest") for name, told in taken.described.items() if "program" in told
        }
        return Round(
            time.time() - seconds,
            values,
            taken.others / taken.cpu,
            seconds,
            programs,
            taken.sources,
            taken.held,
            statistics.median(paces),
            statistics.median(taken.waits) if taken.waits and self._device == "gpu" else None,
            self.disturbed,
        )
