"""Pairs of processes, one of base and one of head, that are alive together and take turns.

A pair is a fresh process of each side on the same CPUs. Both lay the program into fresh memory four times; at each
placing they take turns in blocks base-head-head-base, reversed at every other placing. Of a turn the fastest round
counts, of a block the difference of the sides' mean logarithms, of a pair the median over its blocks: one number, the
replicate that `fwbench.compare.statistics` decides over.

Duet benchmarking is Bulej et al.'s (ICPE 2020, "Duet benchmarking: improving measurement accuracy in the cloud");
repeating where the variance is, Kalibera and Jones's (ISMM 2013, "Rigorous benchmarking in reasonable time").
"""

import contextlib
import dataclasses
import json
import math
import os
import random
import shutil
import statistics
import tempfile
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from fwbench.compare.duet import Fault, Pair
from fwbench.errors import UserError
from fwbench.machine import Machine, oom
from fwbench.models import Model
from fwbench.models.importing import split
from fwbench.models.project import complete
from fwbench.record.lanes import LANES, Lane
from fwbench.record.measurement import FALLBACK, Failure, FailureKind
from fwbench.record.workload import Workload
from fwbench.worker import turns
from fwbench.worker.channel import Channel, GarbledError, describe_exit
from fwbench.worker.client import (
    START_DEADLINE,
    Flags,
    added,
    again,
    command,
    configuration,
    environment,
    milder,
    stated,
)
from fwbench.worker.memory import advised, explained, told, unfitting
from fwbench.worker.sides import Side

_PLACINGS = 4
_BLOCKS = 4
# A turn is at least this long, in seconds, and has at least two rounds that count; a slow program has one.
_TURN = 0.010
_SLOW = 0.1
# Rounds of a turn that a record keeps.
_KEPT = 20
# Seconds of turns in a pair: a slow program has fewer blocks.
_PAIR = 8.0
# Random blocks of memory before a program, in bytes, and a random length of the environment.
_PADDINGS = (1 << 18, 1 << 14, 1 << 10)
_ENVIRONMENT = 4096
# What a verdict rests on, besides the thresholds and looks.
PARAMETERS = (_PLACINGS, _BLOCKS, _TURN, _SLOW, _PAIR, _PADDINGS, _ENVIRONMENT)


@dataclass(frozen=True)
class Seat:
    """Who takes turns.

    Attributes:
        name: unlike that of all who take turns with it.
        side: whose fwbench and modules it runs.
        flags: fallback flags of its lane.
    """

    name: str
    side: Side
    lane: Lane
    flags: Flags = ()


Played = TypeVar("Played")


class Rounds(ABC, Generic[Played]):
    """Plays rounds: a fresh process of each seat, alive together, which take turns.

    Args:
        models: by name.
        machine: gives the CPUs and the thread count, the same for all.
        deadline: seconds after which a process that does not answer has failed.
        planted: shares by which a workload is slowed down on purpose, by real work; not at the seat `base`.
        seed: of everything that is drawn.
    """

    placings = _PLACINGS
    # Seconds of a turn, at least.
    turn = _TURN

    def __init__(
        self,
        models: Mapping[str, Model],
        machine: Machine,
        device: str,
        deadline: float,
        planted: Mapping[Workload, float] | None = None,
        seed: int | None = None,
    ) -> None:
        self._models = models
        self._machine = machine
        self._device = device
        self._deadline = deadline
        self._planted = planted or {}
        self._random = random.Random(seed)
        self._fingerprinted: set[Workload] = set()
        # Of a workload, the batches that did not fit into memory.
        self._unfit: dict[Workload, tuple[int, ...]] = {}

    @abstractmethod
    def seats(self, workload: Workload) -> tuple[Seat, ...]:
        """Who takes turns at a workload."""

    @abstractmethod
    def _result(self, taken: "_Taken", seconds: float) -> Played:
        """The result of a round.

        Args:
            seconds: how long the round took.
        """

    def _failed(self, workload: Workload, error: "SideError") -> Fault | None:
        """What to keep in place of a round; None: it is to be played once more, in another way."""
        return error.fault

    def _own(self, model: str) -> list[str]:
        """The modules that must be the seat's own side's."""
        return []

    def play(
        self, workloads: Sequence[Workload], arrived: Callable[[Workload, Played | Fault], None] = lambda *_: None
    ) -> dict[Workload, Played | Fault]:
        """One fresh round of each workload, those with the same seats forked from servers that they share.

        Args:
            arrived: called with each result as soon as it is there.
        """
        shuffled = self._random.sample(workloads, len(workloads))
        played: dict[Workload, Played | Fault] = {}
        while left := [workload for workload in shuffled if workload not in played]:
            seats = self.seats(left[0])
            self._share(seats, [each for each in left if self.seats(each) == seats], played, arrived)
        return played

    def _share(
        self,
        seats: Sequence[Seat],
        pending: list[Workload],
        played: dict[Workload, Played | Fault],
        arrived: Callable[[Workload, Played | Fault], None],
    ) -> None:
        """Rounds of the pending workloads from fresh servers, until one process fails or all are done."""
        begun = time.monotonic()
        workload = pending[0]
        try:
            with ExitStack() as stack:
                partners = self._partners(seats, stack)
                share = (time.monotonic() - begun) / len(pending)
                while pending:
                    workload = pending.pop(0)
                    begun = time.monotonic()
                    taken = self._play(workload, partners)
                    result = played[workload] = self._result(taken, share + time.monotonic() - begun)
                    arrived(workload, result)
        except SideError as error:
            if workload in pending:
                # A server that does not come up, and never will.
                for each in pending:
                    played[each] = error.fault
                    arrived(each, error.fault)
                pending.clear()
            elif fault := self._failed(workload, error):
                played[workload] = fault
                arrived(workload, fault)
            else:
                # Another program, which has not been described.
                self._fingerprinted.discard(workload)

    def _partners(self, seats: Sequence[Seat], stack: ExitStack) -> dict[str, "_Partner"]:
        noise = {
            "PYTHONHASHSEED": str(self._random.randrange(1 << 32)),
            "FWBENCH_PADDING": "x" * self._random.randrange(_ENVIRONMENT),
        }
        partners = {
            seat.name: stack.enter_context(
                contextlib.closing(_Partner(seat, self._machine, self._device, self._deadline, noise))
            )
            for seat in self._random.sample(seats, len(seats))
        }
        _all(partners, lambda partner: partner.await_ready())
        return partners

    def _play(self, workload: Workload, partners: Mapping[str, "_Partner"]) -> "_Taken":
        unfit = self._unfit.get(workload, ())
        jobs = {}
        for name, partner in partners.items():
            side, played = partner.side, dataclasses.replace(workload, lane=partner.seat.lane.name)
            jobs[name] = {
                "workload": _fields(played.fitted(unfit)),
                "model": complete(self._models[workload.model]).to_json(),
                "path": [str(folder) for folder in side.path],
                "side": side.name,
                "root": str(side.root),
                "tree": str(side.tree) if side.tree else None,
                "own": self._own(workload.model),
                "extra": self._planted.get(played, 0.0) if name != "base" else 0.0,
            }
        taken = _Taken(self._ask(partners, jobs, "built"), unfit)
        order = self._random.sample(sorted(partners), len(partners))
        for placing in range(self.placings):
            self._place(partners, taken, placing, order if placing % 2 == 0 else order[::-1])
        # Once more, as a call may have imported something.
        _all(partners, lambda partner: partner.ask({"modules": None}, "modules"))
        first = workload not in self._fingerprinted
        for name, partner in partners.items():
            finished = partner.ask({"finish": {"program": first}}, "finished")
            taken.memory[name] = finished["finished"]
            if first:
                taken.described[name] |= {of: finished[of] for of in ("program", "settings", "sources")}
            if flags := partner.seat.flags:
                taken.described[name]["settings"][FALLBACK] = stated(flags)
            partner.receive("exited")
        self._fingerprinted.add(workload)
        return taken

    def _place(self, partners: Mapping[str, "_Partner"], taken: "_Taken", placing: int, order: Sequence[str]) -> None:
        paddings = {name: {"place": [self._random.randrange(size) for size in _PADDINGS]} for name in partners}
        latencies = self._ask(partners, paddings, "placed")
        if not placing:
            taken.plan(max(latencies.values()), self.placings, len(partners), self.turn)
        for block in range(taken.blocks):
            for name in (*order, *reversed(order)):
                self._turn(partners[name], taken, placing, block)

    def _turn(self, partner: "_Partner", taken: "_Taken", placing: int, block: int) -> None:
        answer = partner.ask({"rounds": taken.rounds}, "rounds")
        taken.turn(placing, block, partner.seat.name, answer["rounds"][1:], answer["cpu_time"])

    def _ask(self, partners: Mapping[str, "_Partner"], messages: Mapping[str, Any], answer: str) -> dict[str, Any]:
        """All answers of this name; on a GPU one partner is asked after the other, in random order.

        Compilers and libraries choose a GPU's kernels by timing them, and another process would disturb that.
        """
        shuffled = {name: partners[name] for name in self._random.sample(sorted(partners), len(partners))}
        if self._device == "gpu":
            return _all(shuffled, lambda partner: partner.ask(messages[partner.seat.name], answer)[answer])
        for name, partner in shuffled.items():
            partner.send(messages[name])
        return _all(shuffled, lambda partner: partner.receive(answer)[answer])


class Pairs(Rounds[Pair]):
    """Plays pairs of a base and a head.

    Args:
        fallback: whether lanes whose compilers fail on a GPU get their fallback flags.
        fit_batch: whether a batch that does not fit into memory is halved until it does.
        models, machine, device, deadline, planted, seed: as `Rounds` has them.
    """

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
        fallback: bool = True,
        fit_batch: bool = False,
    ) -> None:
        super().__init__(models, machine, device, deadline, planted, seed)
        self._sides = (base, head)
        self._fallback = fallback and device == "gpu"
        self._fit_batch = fit_batch
        # The fallback flags of each lane that both sides know.
        self._ladders: dict[str, list[Flags]] = {}
        # Of workloads that both sides' compilers fail on, and what the first such failure was.
        self._flags: dict[Workload, Flags] = {}
        self._crashes: dict[Workload, str] = {}
        self._modules: dict[str, list[str]] = {}

    def seats(self, workload: Workload) -> tuple[Seat, ...]:
        lane, flags = LANES[workload.lane], self._flags.get(workload, ())
        return tuple(Seat(side.name, side, lane, flags) for side in self._sides)

    def _result(self, taken: "_Taken", seconds: float) -> Pair:
        return taken.pair(self._device, seconds)

    def _play(self, workload: Workload, partners: Mapping[str, "_Partner"]) -> "_Taken":
        taken = super()._play(workload, partners)
        if flags := self._flags.get(workload, ()):
            taken.flags = stated(flags)
            for described in taken.described.values():
                described["after_crash"] = f"{self._crashes[workload]}, so {again(flags)}"
        return taken

    def _failed(self, workload: Workload, error: "SideError") -> Fault | None:
        """Play once more with flags, or a batch, that may help both sides.

        Where the compilers of both sides fail on a GPU, both get ever more of the lane's fallback flags, in this and
        all later pairs of the workload. Where that of one side fails, it is that side's fault. Where either side runs
        out of memory and the batch may be halved, both get the smaller one from then on.
        """
        if self._retreat(LANES[workload.lane], workload, error) or self._shrink(workload, error):
            return None
        return self._advised(workload, error.fault)

    def _retreat(self, lane: Lane, workload: Workload, error: "SideError") -> bool:
        """Whether there are more fallback flags, which the workload is played with from now on."""
        if not (self._fallback and error.shared):
            return False
        more = [flags for flags in self._ladder(lane) if len(flags) > len(self._flags.get(workload, ()))]
        if more:
            self._crashes.setdefault(workload, error.fault.failure.message)
            self._flags[workload] = more[0]
        return bool(more)

    def _ladder(self, lane: Lane) -> list[Flags]:
        if lane.name not in self._ladders:
            variables = environment(os.environ, self._machine.threads, self._device, lane)
            base, head = (list(milder(lane, side.interpreter(lane.framework), variables)) for side in self._sides)
            self._ladders[lane.name] = [flags for flags in head if flags in base]
        return self._ladders[lane.name]

    def _shrink(self, workload: Workload, error: "SideError") -> bool:
        """Whether there is a smaller batch, which the workload is played with from now on."""
        played = workload.fitted(self._unfit.get(workload, ()))
        if not self._fit_batch or error.fault.failure.kind != "out_of_memory" or played.halved() is None:
            return False
        self._unfit[workload] = (*self._unfit.get(workload, ()), played.batch_size)
        return True

    def _advised(self, workload: Workload, fault: Fault) -> Fault:
        """A side's fault with the next step where memory ran out."""
        if fault.failure.kind != "out_of_memory":
            return fault
        unfit = self._unfit.get(workload, ())
        tried = (*unfit, workload.fitted(unfit).batch_size)
        failure = unfitting(fault.failure, tried) if self._fit_batch else advised(fault.failure, workload)
        return dataclasses.replace(fault, failure=failure)

    def _own(self, name: str) -> list[str]:
        """Of the modules that the model of this name names, those that the user's repository has on either side."""
        if self._sides[0].tree is None:
            return []
        if name not in self._modules:
            model = self._models[name]
            paths = [*model.networks.values(), *(model.loss.values() if isinstance(model.loss, dict) else ())]
            paths += [model.weights] if isinstance(model.weights, str) else []
            named = dict.fromkeys(split(path)[0] for path in paths)
            self._modules[name] = [module for module in named if any(side.has(module) for side in self._sides)]
        return self._modules[name]


def _all(partners: Mapping[str, "_Partner"], ask: Callable[["_Partner"], Any]) -> dict[str, Any]:
    """What all partners answer, asked in the order given.

    Raises:
        SideError: one has no answer; head, where neither side of a pair has.
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
    told = errors.get("head") or next(iter(errors.values()))
    told.shared = len(errors) == len(partners) and all(each.compilers for each in errors.values())
    if told.lacking and "base" in answers:
        # Head has lost something.
        told.fault = dataclasses.replace(told.fault, lost=True)
    raise told


class SideError(Exception):
    """A side has no numbers.

    Args:
        kind: as in `Failure`; `unavailable`: it cannot run the workload.
        message: one sentence.
        detail: a traceback, or the end of standard error.
        lacking: whether the side has no such model or cannot run it at all, so that it matters whether the other can.
        compilers: whether its compiler failed, or it died while it may have been compiling.

    Attributes:
        fault: what the judgement is told of it.
        shared: whether the other side's compiler failed, too.
    """

    def __init__(
        self,
        side: Side,
        kind: FailureKind,
        message: str,
        detail: str = "",
        lacking: bool = False,
        compilers: bool = False,
    ) -> None:
        super().__init__(message)
        self.lacking = lacking or kind == "unavailable"
        self.compilers = compilers
        self.shared = False
        self.fault = Fault(side.name, side.title, Failure(kind, message, "duet", detail))


class _Partner:
    """A seat's server for the workloads of its lane."""

    def __init__(self, seat: Seat, machine: Machine, device: str, deadline: float, noise: Mapping[str, str]) -> None:
        self.seat = seat
        self.side = side = seat.side
        lane = seat.lane
        self._deadline = deadline
        side.caches.mkdir(exist_ok=True)
        self._own = Path(tempfile.mkdtemp(dir=side.caches))
        scratch = self._own / "tmp"
        scratch.mkdir()
        # Compiling is not what a duet compares, and on a CPU it is the same each time. On a GPU compilers choose by
        # measuring, and each pair must draw its own choice.
        caches = side.caches if device == "cpu" else self._own
        folders = {variable: str(caches / name) for variable, name in lane.caches.items()} | {"TMPDIR": str(scratch)}
        variables = {**environment(os.environ, machine.threads, device, lane), **noise, **lane.sharing, **folders}
        variables = added(variables, seat.flags)
        python = side.interpreter(lane.framework)
        config = json.dumps(configuration(lane, machine.cpus, str(scratch)))
        server = command(python, Path(turns.__file__).resolve(), config, package=side.package)
        self._kills = oom.kills()
        # Raised when it is asked, so that it does not matter which side was started first.
        self._unstarted: SideError | None = None
        try:
            self._channel = Channel(server, variables)
        except OSError as error:
            self._unstarted = SideError(side, "unavailable", f"{python} cannot be started: {error.strerror}")

    def await_ready(self) -> None:
        """Return once the server can take a job.

        Raises:
            SideError: it cannot.
            UserError: nor could it take any other.
        """
        if self._unstarted:
            raise self._unstarted
        message = self._receive(START_DEADLINE)
        self._refuse(message)
        for why in ("refused", "undriven"):
            if why in message:
                raise SideError(self.side, "unavailable", message[why])

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message; a process that has ended is noticed when its answer is awaited."""
        self._channel.send(message)

    def receive(self, answer: str) -> dict[str, Any]:
        """The answer of this name.

        Raises:
            SideError: there is another, or none.
            UserError: so it would be for all other workloads, and the user must do something about it.
        """
        message = self._receive(self._deadline)
        if answer in message:
            return message
        self._refuse(message)
        if "unbuildable" in message:
            raise SideError(self.side, "error", message["unbuildable"], lacking=True)
        if "stray" in message:
            name, file = message["stray"]
            sentence = f"its module {name!r} would come from {file}, which is none of its files"
            raise SideError(self.side, "error", sentence, lacking=True)
        if "unavailable" in message:
            raise SideError(self.side, "unavailable", message["unavailable"])
        if "out_of_memory" in message:
            # Which a side may be too old to tell.
            sentence = told(message["out_of_memory"], message.get("asked"))
            raise SideError(self.side, "out_of_memory", sentence, message["detail"])
        for why in ("failed", "undriven"):
            if why in message:
                kind: FailureKind = "error" if answer == "built" else "crashed"
                compilers = message.get("compiler", False)
                raise SideError(self.side, kind, message[why], message["detail"], compilers=compilers)
        raise self._died(message.get("exited", 0), compilers=answer in ("built", "placed"))

    def _died(self, code: int, compilers: bool = False) -> SideError:
        failure = explained(Failure("crashed", describe_exit(code), detail=self._channel.said()), self._kills)
        compilers = compilers and failure.kind == "crashed"
        return SideError(self.side, failure.kind, failure.message, failure.detail, compilers=compilers)

    def _refuse(self, message: Mapping[str, Any]) -> None:
        if "undriven" in message and self.side.name == "base":
            raise UserError(
                f"the fwbench of {self.side.title} is another than this run's and cannot be used by it "
                f"({message['undriven']}): compare with a later revision."
            )
        if "stray" in message and self.side.has(message["stray"][0]):
            name, file = message["stray"]
            raise UserError(
                f"{self.side.title} has a module {name!r}, but it was imported from {file}, so no change in it could "
                "be seen: add the folder that holds it in the repository to pytest's configuration, as in "
                "`pythonpath = src`."
            )

    def ask(self, message: Mapping[str, Any], answer: str) -> dict[str, Any]:
        """Send a message and wait for its answer."""
        self.send(message)
        return self.receive(answer)

    def close(self) -> None:
        """End the server and its job."""
        try:
            if self._unstarted is None:
                self._channel.close()
        finally:
            shutil.rmtree(self._own, ignore_errors=True)

    def _receive(self, patience: float) -> dict[str, Any]:
        try:
            message = self._channel.receive(time.monotonic() + patience)
        except TimeoutError:
            stacks = self._channel.stacks()
            sentence = f"no answer within the deadline of {patience:g} s; it was killed{stacks.where}"
            raise SideError(self.side, "timed_out", sentence, stacks.text) from None
        except GarbledError as error:
            sentence = f"what it sent is no message: {error}"
            raise SideError(self.side, "crashed", sentence, self._channel.said()) from None
        if message is None:
            raise self._died(self._channel.wait())
        return message


class _Taken:
    """The turns of a round.

    Args:
        described: settings and versions by the seat's name.
        unfit: batches that did not fit before.

    Attributes:
        flags: of the fallback, that all ran with.
        cpu, others: CPU seconds that there were during the turns of lanes, and those that others took.
    """

    def __init__(self, described: dict[str, Any], unfit: tuple[int, ...] = ()) -> None:
        self.described = described
        self.flags = ""
        self.cpu = self.others = 0.0
        self._unfit = unfit
        self.rounds = self.blocks = 0
        self.memory: dict[str, Mapping[str, float]] = {}
        self._kept: dict[str, list[float]] = defaultdict(list)
        # By metric, placing and block, then by the seat's name: logarithms of each turn.
        self._turns: dict[tuple[str, int, int], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))

    def plan(self, latency: float, placings: int = _PLACINGS, seats: int = 2, turn: float = _TURN) -> None:
        """Choose how many calls a turn has, and how many blocks a placing, for calls of so many seconds."""
        self.rounds = 1 + max(1 if latency > _SLOW else 2, math.ceil(turn / latency))
        self.blocks = min(_BLOCKS, max(1, int(_PAIR / (placings * 2 * seats * self.rounds * latency))))

    def turn(self, placing: int, block: int, name: str, rounds: Sequence[float], cpu_time: float) -> None:
        """Keep a turn of the side of this name: seconds of its rounds, mean CPU seconds of one."""
        self._kept[name].extend(rounds[:_KEPT])
        for metric, value in (("latency", min(rounds)), ("cpu_time", cpu_time)):
            self.keep(metric, placing, block, name, value)

    def keep(self, metric: str, placing: int, block: int, name: str, value: float) -> None:
        """Keep what a turn found of a metric."""
        self._turns[metric, placing, block][name].append(math.log(max(value, 1e-9)))

    def blocks_of(self, metric: str, name: str) -> tuple[float, ...]:
        """By placing and block the geometric mean of a seat's turns."""
        return tuple(
            math.exp(statistics.mean(seats[name]))
            for (of, *_), seats in sorted(self._turns.items())
            if of == metric and name in seats
        )

    def pair(self, device: str, seconds: float) -> Pair:
        """What the turns say."""
        differences = {
            metric: statistics.median(
                statistics.mean(sides["head"]) - statistics.mean(sides["base"])
                for (of, _, _), sides in self._turns.items()
                if of == metric
            )
            for metric in ("latency", "cpu_time")
        }
        memory = {name: _gated(found, device) for name, found in self.memory.items()}
        for metric in memory["base"].keys() & memory["head"].keys():
            differences[metric] = math.log(memory["head"][metric] / memory["base"][metric])
        values = {name: self._times(name) | found for name, found in memory.items()}
        return Pair(differences, self._kept, values, self.described, self._drift(), seconds, self.flags, self._unfit)

    def _times(self, name: str) -> dict[str, float]:
        """The side's median round, and its median turn's CPU time, in seconds."""
        turns = [side for (of, _, _), sides in self._turns.items() if of == "cpu_time" for side in sides[name]]
        return {"latency": statistics.median(self._kept[name]), "cpu_time": math.exp(statistics.median(turns))}

    def _drift(self) -> float:
        def level(placing: int, block: int) -> float:
            return statistics.mean(value for side in self._turns["latency", placing, block].values() for value in side)

        return statistics.median(level(placing, self.blocks - 1) - level(placing, 0) for placing in range(_PLACINGS))


def _gated(found: Mapping[str, float], device: str) -> dict[str, float]:
    """A side's memory under the names that a gate uses."""
    names = {
        "program_memory": "program_memory",
        f"{'device' if device == 'gpu' else 'host'}_peak_memory": "peak_memory",
    }
    return {name: found[source] for source, name in names.items() if found.get(source)}


def _fields(workload: Workload) -> dict[str, Any]:
    """What differs from the defaults: an older base need not know the rest."""
    fields, defaults = workload.to_json(), Workload(workload.lane, workload.model).to_json()
    required = ("lane", "model")
    return {name: value for name, value in fields.items() if name in required or value != defaults[name]}
