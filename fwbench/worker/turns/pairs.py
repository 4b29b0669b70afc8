"""Pairs of processes, one of base and one of head: the rounds of a duet.

A turn counts by its fastest call, as base and head differ by less than the calls of either do.
"""

import dataclasses
import os
from collections.abc import Collection, Mapping

from fwbench.compare.pair import Fault, Pair
from fwbench.machine import Machine
from fwbench.models import Model
from fwbench.models.importing import split
from fwbench.record.lanes import LANES, Lane, networks
from fwbench.record.workload import Workload
from fwbench.worker.client.ladder import Flags, Ladder, milder, stated
from fwbench.worker.client.starting import environment
from fwbench.worker.turns.partner import Partner, Seat, SideError
from fwbench.worker.turns.rounds import ENVIRONMENT, PADDINGS, Rounds, take_turn
from fwbench.worker.turns.servers import LEAST, ROUNDS, STARTS, Servers
from fwbench.worker.turns.sides import Side
from fwbench.worker.turns.taken import SLOW, Amounts, Taken


class Pairs(Rounds[Pair]):
    """Plays pairs of a base and a head; see `Rounds`.

    Args:
        fit_batch: whether a batch that does not fit into memory is halved until it does.
        cold: workloads whose compiling is timed, so that each pair compiles them with empty caches.
        warm: workloads that a second process of each side starts, from the caches that the first one has filled.
        metered: workloads whose energy is measured in each pair.
    """

    amounts = Amounts(placings=4, blocks=4, turn=0.010, seconds=8.0)
    reads_outputs = True

    def __init__(
        self,
        base: Side,
        head: Side,
        models: Mapping[str, Model],
        machine: Machine,
        device: str,
        deadline: float,
        planted: Mapping[Workload, float] | None = None,
        seed: int | None = None,
        *,
        fit_batch: bool = False,
        cold: Collection[Workload] = (),
        warm: Collection[Workload] = (),
        metered: Collection[Workload] = (),
        profiled: bool = False,
        servers: Servers | None = None,
    ) -> None:
        super().__init__(models, machine, device, deadline, planted, seed, profiled=profiled, servers=servers)
        self._sides = (base, head)
        self._ladder = Ladder(self._rungs, fit_batch=fit_batch)
        self._cold, self._warm, self.metered = cold, warm, metered
        self._modules: dict[str, list[str]] = {}

    def seats(self, workload: Workload) -> tuple[Seat, ...]:
        lane, flags = LANES[workload.lane], self._ladder.flags(workload)[0]
        # On a CPU compiling always has the same result. On a GPU compilers choose kernels by timing them, and each pair
        # must draw its own choice.
        cold = self._device == "gpu" or workload in self._cold
        return tuple(Seat(side.name, side, lane, flags, cold, workload in self._warm) for side in self._sides)

    def _turn(self, partner: Partner, taken: Taken, placing: int, block: int) -> None:
        answer = take_turn(partner.ask, taken, {"rounds": taken.rounds}, "rounds")
        taken.turn(placing, block, partner.seat.name, answer["rounds"][1:], answer["cpu_time"])

    def _result(self, taken: Taken, seconds: float, starting: float) -> Pair:
        return taken.pair(self._device, seconds + starting, self.disturbed)

    def _play(self, workload: Workload, partners: Mapping[str, Partner]) -> Taken:
        taken = super()._play(workload, partners)
        flags, why = self._ladder.flags(workload)
        if flags:
            taken.flags = stated(flags)
            for described in taken.described.values():
                described["after_crash"] = why
        return taken

    def _failed(self, workload: Workload, error: SideError) -> Fault | None:
        """Choose flags or a batch with which both sides may succeed, so that the round is played again.

        If both sides' compilers fail on a GPU, both sides get the lane's next longer combination of fallback flags, in
        this pair and all later pairs of the workload. If only one side's compiler fails, the fault is that side's. If a
        side runs out of memory and `fit_batch` is set, both sides get half the batch from then on.
        """
        if super()._failed(workload, error) is None:
            return None
        failure, compilers = error.fault.failure, self._device == "gpu" and error.shared
        if (compilers and self._ladder.climb(workload, failure)) or self._ladder.shrink(workload, failure):
            return None
        return dataclasses.replace(error.fault, failure=self._ladder.advised(workload, failure))

    def _rungs(self, lane: Lane) -> list[Flags]:
        """The combinations of fallback flags that both interpreters accept, the shortest first."""
        variables = environment(os.environ, self._machine.threads, self._device, lane)
        base, head = (list(milder(lane, side.interpreter(lane.framework), variables)) for side in self._sides)
        return [flags for flags in head if flags in base]

    def _own(self, name: str) -> list[str]:
        """The modules named by this model that the user's repository has on either side."""
        if self._sides[0].tree is None:
            return []
        if name not in self._modules:
            model = self._models[name]
            paths = [*model.paths, *networks(name).values()]
            paths += [path for framework in model.networks for path in model.functions(framework)]
            paths += [model.weights] if isinstance(model.weights, str) else []
            named = dict.fromkeys(split(path)[0] for path in paths)
            self._modules[name] = [module for module in named if any(side.has(module) for side in self._sides)]
        return self._modules[name]


# Parameters on which the verdict rests, besides the thresholds and the looks.
PARAMETERS = (Pairs.amounts, SLOW, PADDINGS, ENVIRONMENT, ROUNDS, STARTS, LEAST)
