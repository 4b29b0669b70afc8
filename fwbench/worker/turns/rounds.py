"""Rounds of processes that are alive together and take turns.

A round runs a fresh process of each seat on the same CPUs. All place their program in fresh memory, once or several
times (a process that has measured leaves it where it is); after each placing they take turns in blocks A B C C B A,
reversed after every other placing. A turn yields one number for each metric, and a round one difference of two seats:
the replicate by which `fwbench.compare.statistics` decides. Base and head, which differ by little, are compared by
turns next to each other; lanes by their fastest turns.

Duets are from Bulej et al. (ICPE 2020, "Duet benchmarking: improving measurement accuracy in the cloud"); repeating
where the variance is, from Kalibera and Jones (ISMM 2013, "Rigorous benchmarking in reasonable time").
"""

import contextlib
import dataclasses
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Generic, TypeVar

from fwbench.compare.pair import Fault
from fwbench.machine import Machine, nvml
from fwbench.machine.disturbances import gravest, on_the_gpu
from fwbench.machine.watch import Watch
from fwbench.models import Model
from fwbench.models.project import complete
from fwbench.record.lanes import recorded
from fwbench.record.measurement import BEFORE, FALLBACK, Failure
from fwbench.record.workload import Workload
from fwbench.worker.client import starting
from fwbench.worker.client.ladder import Ladder, stated
from fwbench.worker.texts import Texts, edited, unlike
from fwbench.worker.turns.partner import Partner, Seat, SideError
from fwbench.worker.turns.servers import Servers
from fwbench.worker.turns.sides import Side
from fwbench.worker.turns.taken import Amounts, Taken

# Most bytes of each block of random size before a program, and most characters added to the environment.
PADDINGS = (1 << 18, 1 << 14, 1 << 10)
ENVIRONMENT = 4096

# Calls under the profiler: as many as take these seconds, but no fewer and no more than these limits.
_PROFILED_SECONDS, _FEWEST, _MOST = 1.0, 5, 12

# A turn does not count if the process got no CPU for more than so many seconds of it. It is tried so often at most.
_HELD, _TRIES = 0.001, 3

Played = TypeVar("Played")

# Sends a message to whoever takes turns, and waits for the answer of this name.
Ask = Callable[[Mapping[str, Any], str], dict[str, Any]]


class Rounds(ABC, Generic[Played]):
    """Plays rounds: a fresh process of each seat, alive together, which take turns.

    Args:
        machine: gives the CPUs and the thread count, the same for all.
        deadline: seconds after which a process that does not answer has failed.
        planted: by workload, the share of a call's time that is added as real work, at every seat but `base`.
        profiled: whether a workload's first round ends with some calls under each framework's profiler.
        servers: keeps servers from round to round; None: each call of `play` starts its own.

    Attributes:
        amounts: the placings, blocks and turns of a round.
        reads_outputs: whether a workload's first round ends with the results of each seat's program.
        metered: workloads whose rounds end with the energy of their calls, one seat after another.
    """

    amounts: Amounts
    reads_outputs = False
    metered: Collection[Workload] = ()

    def __init__(
        self,
        models: Mapping[str, Model],
        machine: Machine,
        device: str,
        deadline: float,
        planted: Mapping[Workload, float] | None = None,
        seed: int | None = None,
        *,
        profiled: bool = False,
        servers: Servers | None = None,
    ) -> None:
        self._profiled = profiled
        self._servers = servers or Servers()
        self._models = models
        self._machine = machine
        self._device = device
        self._deadline = deadline
        self._planted = planted or {}
        self._random = random.Random(seed)
        self._fingerprinted: set[Workload] = set()
        self._watch = Watch("no round has begun")
        # By the folder of the user's repository.
        self._texts: dict[Path, Texts] = {}
        self._ladder = Ladder()
        # Workloads whose processes do not fit into a GPU's memory together: one after another takes all its turns.
        self._apart: set[Workload] = set()

    @abstractmethod
    def seats(self, workload: Workload) -> tuple[Seat, ...]:
        """The seats that take turns at a workload."""

    def _amounts(self, workload: Workload) -> Amounts:
        """The amounts of a workload's rounds."""
        return self.amounts

    @abstractmethod
    def _turn(self, partner: Partner, taken: Taken, placing: int, block: int) -> None:
        """Let a partner take a turn, and keep its result."""

    def _over(self, taken: Taken) -> bool:
        """True if the placing needs no further block of turns; called after each block."""
        return False

    @abstractmethod
    def _result(self, taken: Taken, seconds: float, starting: float) -> Played:
        """The result of a round of so many seconds; `starting` is its share of those in which servers started."""

    @property
    def disturbed(self) -> str:
        """The other processes on the GPU in the round so far, or the reasons for its low clocks; empty: none."""
        found = gravest(on_the_gpu(self._watch.moments))
        return ". ".join(f"{each.cause.happened} ({each.detail}). {each.cause.next_step}" for each in found)

    def _failed(self, workload: Workload, error: SideError) -> Fault | None:
        """The result of a failed round; None if the round is played again in another way.

        Processes that do not fit into a GPU's memory together play it again, one after another.
        """
        if self._device != "gpu" or error.fault.failure.kind != "out_of_memory" or workload in self._apart:
            return error.fault
        self._apart.add(workload)
        return None

    def _own(self, model: str) -> list[str]:
        """The modules that must come from the seat's own side."""
        return []

    def play(
        self, workloads: Sequence[Workload], arrived: Callable[[Workload, Played | Fault], None] = lambda *_: None
    ) -> dict[Workload, Played | Fault]:
        """Play a fresh round of each workload; those with the same seats share servers where these can fork.

        Each result is handed to `arrived` as soon as it is there.
        """
        shuffled = self._random.sample(workloads, len(workloads))
        played: dict[Workload, Played | Fault] = {}
        while left := [workload for workload in shuffled if workload not in played]:
            seats = self.seats(left[0])
            together = [each for each in left if self.seats(each) == seats] if starting.FORKS else left[:1]
            self._share(seats, together, played, arrived)
        return played

    def _share(
        self,
        seats: Sequence[Seat],
        pending: list[Workload],
        played: dict[Workload, Played | Fault],
        arrived: Callable[[Workload, Played | Fault], None],
    ) -> None:
        """Play rounds of the pending workloads from one set of servers, until a process fails or all are done."""
        begun = time.monotonic()
        workload = pending[0]
        self._read_texts(seats)
        try:
            with ExitStack() as stack:
                partners = self._servers.take(seats, self._random, stack) or self._partners(seats, stack)
                ready = time.monotonic()
                waited = ready - begun
                share = waited / len(pending)
                while pending:
                    workload = pending.pop(0)
                    begun = time.monotonic()
                    taken = self._play(workload, partners)
                    result = played[workload] = self._result(taken, time.monotonic() - begun, share)
                    arrived(workload, result)
                if starting.FORKS:
                    self._servers.keep(partners.values(), stack, waited, time.monotonic() - ready)
        except SideError as error:
            if workload in pending:
                # A server has not started, and never will.
                for each in pending:
                    played[each] = error.fault
                    arrived(each, error.fault)
                pending.clear()
            elif fault := self._failed(workload, error):
                played[workload] = fault
                arrived(workload, fault)
            else:
                # The batch or the flags have changed, so the program has not been described yet.
                self._fingerprinted.discard(workload)

    def _read_texts(self, seats: Sequence[Seat]) -> None:
        """Note the texts with which rounds begin."""
        for root in {seat.side.root.resolve() for seat in seats} - self._texts.keys():
            self._texts[root] = Texts(root)

    def _partners(self, seats: Sequence[Seat], stack: ExitStack) -> dict[str, Partner]:
        drawn = noise(self._random)
        partners: dict[str, Partner] = {}
        for seat in self._random.sample(seats, len(seats)):
            partner = Partner(seat, self._machine, self._device, self._deadline, drawn)
            partners[seat.name] = stack.enter_context(contextlib.closing(partner))
        _all(partners, lambda partner: partner.await_ready())
        return partners

    def _play(self, workload: Workload, partners: Mapping[str, Partner]) -> Taken:
        unfit = self._ladder.unfit(workload)
        jobs = {}
        for name, partner in partners.items():
            side, played = partner.side, dataclasses.replace(workload, lane=partner.seat.lane.name)
            jobs[name] = {
                "turns": True,
                "workload": played.fitted(unfit).to_json(),
                "model": complete(self._models[workload.model], played.lane).to_json(),
                "path": [str(folder) for folder in side.path],
                "side": side.name,
                "root": str(side.root),
                "tree": str(side.tree) if side.tree else None,
                "own": self._own(workload.model),
                "recorded": recorded([partner.seat.lane]),
                "extra": self._planted.get(played, 0.0) if name != "base" else 0.0,
            }
        taken = Taken(self._amounts(workload), unfit)
        order = self._random.sample(sorted(partners), len(partners))
        together = [[name] for name in order] if workload in self._apart else [order]
        gpu = nvml.find() if self._device == "gpu" else "the programs run on the CPU"
        self._watch = Watch(gpu, computing=len(together[0]))
        self._watch.note(BEFORE)
        for names in together:
            self._play_together(workload, {name: partners[name] for name in names}, jobs, taken)
        self._fingerprinted.add(workload)
        return taken

    def _play_together(
        self, workload: Workload, partners: Mapping[str, Partner], jobs: Mapping[str, Any], taken: Taken
    ) -> None:
        """Have these partners, in the order of their turns, build and take turns until their processes end."""
        taken.described |= (described := self._build(partners, jobs))
        for name, told in described.items():
            # A base of an older fwbench does not report it.
            seconds = told.pop("compiling", None)
            if seconds and partners[name].seat.cold:
                taken.once[name] = {"compile_time": seconds}
        order = list(partners)
        for placing in range(self.amounts.placings):
            self._place(partners, taken, placing, order if placing % 2 == 0 else order[::-1])
        # Checked again, as a call may have imported a module.
        _all(partners, lambda partner: partner.ask({"modules": None}, "modules"))
        first = workload not in self._fingerprinted
        for name, partner in partners.items():
            calls = max(_FEWEST, min(_MOST, int(_PROFILED_SECONDS / taken.latency)))
            asked = {"program": first, "spans": calls if first and self._profiled else 0}
            asked |= {"outputs": first and self.reads_outputs, "energy": workload in self.metered}
            finished = partner.ask({"finish": asked}, "finished")
            self._same_texts(partner.side, finished.pop("edited"), finished["sources"])
            if joules := finished.pop("energy", None):
                taken.once.setdefault(name, {})["energy"] = joules
            taken.memory[name], taken.sources[name] = finished.pop("finished"), finished["sources"]
            if first:
                taken.described[name] |= finished
            if flags := partner.seat.flags:
                taken.described[name]["settings"][FALLBACK] = stated(flags)
            if starting.FORKS:
                partner.receive("exited")
        # Elsewhere a server ends with its first job.
        for name, partner in partners.items() if starting.FORKS else ():
            if partner.seat.warm:
                taken.once.setdefault(name, {})["warm_start"] = _start_again(partner, jobs[name])

    def _same_texts(self, side: Side, changed: Sequence[str], sources: Mapping[str, str]) -> None:
        """See that a process has read the texts with which the rounds began, to its end; if not, its round is void."""
        differing = self._texts[side.root.resolve()].unlike(sources)
        if changed or differing:
            raise SideError(side, edited(changed) if changed else unlike(differing))

    def _place(self, partners: Mapping[str, Partner], taken: Taken, placing: int, order: Sequence[str]) -> None:
        # One partner after another: each measures its latency while no other runs.
        latencies = _all(partners, lambda partner: partner.ask(self._padding(), "placed")["placed"])
        if not placing:
            taken.plan(max(latencies.values()), len(partners))
        for block in range(taken.blocks):
            for name in (*order, *reversed(order)):
                self._turn(partners[name], taken, placing, block)
            self._watch.note("in turns", timed=True)
            if self._over(taken):
                break

    def _padding(self) -> dict[str, Any]:
        return {"place": [self._random.randrange(size) for size in PADDINGS]}

    def _build(self, partners: Mapping[str, Partner], jobs: Mapping[str, Any]) -> dict[str, Any]:
        """Have all partners build their programs, and return each one's description of its program.

        On a GPU, and where compiling is timed, they build one after another, in an order drawn by lot: compilers and
        libraries choose a GPU's kernels by timing them, which another process would disturb.
        """
        if self._device == "gpu" or any(partner.seat.cold for partner in partners.values()):

            def alone(partner: Partner) -> Any:
                partner.cool()
                return partner.ask(jobs[partner.seat.name], "built")["built"]

            order = self._random.sample(list(partners), len(partners))
            return _all({name: partners[name] for name in order}, alone)
        for name, partner in partners.items():
            partner.send(jobs[name])
        return _all(partners, lambda partner: partner.receive("built")["built"])


def _start_again(partner: Partner, job: Mapping[str, Any]) -> float:
    """Seconds until a second process of a job has made its first call, with the caches that the first one filled."""
    seconds = partner.ask({**job, "starting": True}, "built")["built"].get("start")
    if seconds is None:
        raise SideError(partner.side, Failure("unavailable", "its fwbench is older and times no warm start"))
    partner.send({"end": True})
    partner.receive("exited")
    return float(seconds)


def _all(partners: Mapping[str, Partner], ask: Callable[[Partner], Any]) -> dict[str, Any]:
    """The answers of all partners, asked in the given order.

    A partner without one raises its SideError; if both sides of a pair fail, head's is raised.
    """
    answers: dict[str, Any] = {}
    errors: dict[str, SideError] = {}
    for name, partner in partners.items():
        try:
            answers[name] = ask(partner)
        except SideError as error:
            errors[name] = error
    if not errors:
        return answers
    raised = errors.get("head") or next(iter(errors.values()))
    raised.shared = len(errors) == len(partners) and all(each.compilers for each in errors.values())
    if raised.lacking and "base" in answers:
        # Base could do it, so head has lost something.
        raised.fault = dataclasses.replace(raised.fault, lost=True)
    raise raised


def noise(draw: random.Random) -> dict[str, str]:
    """Variables that lay out the memory of a round's processes by chance, alike in all of them."""
    return {"PYTHONHASHSEED": str(draw.randrange(1 << 32)), "FWBENCH_PADDING": "x" * draw.randrange(ENVIRONMENT)}


def take_turn(ask: Ask, taken: Taken, message: Mapping[str, Any], answer: str) -> dict[str, Any]:
    """Ask for a turn, and again if the process was stopped or held back in it; note if that happens in every try."""
    for _ in range(_TRIES):
        turn = ask(message, answer)
        if turn["held"] <= _HELD:
            return turn
    taken.held = True
    return turn
