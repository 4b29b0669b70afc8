"""A duet: base and head measured side by side, by pairs of processes that are alive together and take turns.

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
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from fwbench.compare.criteria import CRITERIA, Threshold
from fwbench.compare.statistics import Confirmation, Suspect, Verdict, cleared, screen, screening_pairs
from fwbench.machine import Machine
from fwbench.models import CATALOG
from fwbench.record.lanes import LANES
from fwbench.record.measurement import FailureKind
from fwbench.record.workload import Workload
from fwbench.worker import turns
from fwbench.worker.channel import Channel, describe_exit
from fwbench.worker.client import START_DEADLINE, command, environment
from fwbench.worker.sides import Side

Kind = Literal[
    "regressed", "improved", "unchanged", "inconclusive", "new", "missing", "unavailable", "incomparable", "failed"
]
Progress = Callable[[str], None]

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
# Trend over a placing's blocks beyond which the warm-up was too short.
_DRIFT = 0.02


class SideError(Exception):
    """A side that has no numbers.

    Args:
        kind: as in `Failure`; `unavailable`: it cannot run the workload.
        detail: a traceback, or the end of standard error.

    Attributes:
        lost: of an unavailable head: whether base is available.
    """

    lost = False

    def __init__(self, side: Side, kind: FailureKind, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.side, self.kind, self.message, self.detail = side, kind, message, detail


@dataclass(frozen=True)
class Pair:
    """What one pair of processes found.

    Attributes:
        differences: by metric, logarithm of head over base.
        rounds: seconds of each round that counts, by side.
        values: typical ones by metric, in its SI unit, by side.
        drift: change of both sides' time from the first to the last block of a placing, as a logarithm.
        seconds: that the pair took, its processes' start included.
    """

    differences: Mapping[str, float]
    rounds: Mapping[str, Sequence[float]]
    values: Mapping[str, Mapping[str, float]]
    drift: float
    seconds: float


@dataclass(frozen=True)
class Comparison:
    """What became of a benchmark.

    Attributes:
        kind: the gravest of its verdicts; `new`: base cannot build it; `missing`: head cannot run it, and base can;
            `unavailable`: neither can; `incomparable`: something else was in the way; `failed`: head fell.
        verdicts: by metric.
        screening, confirmation: the pairs of both stages.
        described: settings, versions and the program's fingerprint, by side.
        note: one sentence on what stands in the way of a verdict, or on what to know of it.
        error: of the side that failed, for a kind that is no verdict.
    """

    workload: Workload
    kind: Kind
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    screening: Sequence[Pair] = ()
    confirmation: Sequence[Pair] = ()
    described: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""
    error: SideError | None = None

    @property
    def samples(self) -> list[float]:
        """Seconds of head's rounds, of all pairs."""
        return [seconds for pair in (*self.screening, *self.confirmation) for seconds in pair.rounds["head"]]

    @property
    def seconds(self) -> tuple[float, float]:
        """What screening and confirming it took."""
        return sum(pair.seconds for pair in self.screening), sum(pair.seconds for pair in self.confirmation)


class Duet:
    """Compares head with base.

    Args:
        machine: gives the CPUs and the thread count, the same for both sides.
        deadline: seconds after which a side that does not answer has failed.
        planted: shares by which a workload's head is slowed down on purpose, by real work.
        seed: of everything that is drawn.
    """

    def __init__(
        self,
        base: Side,
        head: Side,
        machine: Machine,
        device: str,
        deadline: float,
        planted: Mapping[Workload, float] | None = None,
        seed: int | None = None,
        progress: Progress = lambda _: None,
    ) -> None:
        self._sides = (base, head)
        self._machine = machine
        self._device = device
        self._deadline = deadline
        self._planted = planted or {}
        self._random = random.Random(seed)
        self._progress = progress

    def compare(self, workloads: Mapping[Workload, Mapping[str, Threshold]]) -> dict[Workload, Comparison]:
        """Both stages over these workloads, each with its thresholds by metric."""
        work = _Work(workloads)
        while wanted := work.to_screen():
            self._progress(f"screening {len(wanted)}, pair {1 + len(work.screening[wanted[0]])}")
            self._round(wanted, work, work.screening)
        confirmation = Confirmation(work.suspects())
        while confirmation.wanted:
            asked = tuple(dict.fromkeys(workload for workload, _ in confirmation.open))
            while wanted := work.to_confirm(asked, confirmation.wanted):
                self._progress(f"confirming {len(wanted)}, pair {1 + len(work.confirmation[wanted[0]])}")
                self._round(wanted, work, work.confirmation)
            for name in confirmation.open:
                if name[0] in work.failed:
                    confirmation.withdraw(name)
            confirmation.judge({name: work.differences(name, confirmation.wanted) for name in confirmation.open})
        return work.comparisons(confirmation.verdicts)

    def _round(self, workloads: Sequence[Workload], work: "_Work", into: dict[Workload, list[Pair]]) -> None:
        """One fresh pair of each workload, those of a framework forked from servers that they share."""
        by_framework: dict[str, list[Workload]] = {}
        for workload in self._random.sample(workloads, len(workloads)):
            by_framework.setdefault(LANES[workload.lane].framework, []).append(workload)
        for framework, pending in by_framework.items():
            while pending:
                self._share(framework, pending, work, into)

    def _share(self, framework: str, pending: list[Workload], work: "_Work", into: dict[Workload, list[Pair]]) -> None:
        """Pairs of the pending workloads from fresh servers, until one falls or all are done."""
        begun = time.monotonic()
        workload = pending[0]
        try:
            with ExitStack() as stack:
                partners = self._partners(framework, pending, stack)
                share = (time.monotonic() - begun) / len(pending)
                while pending:
                    workload = pending.pop(0)
                    begun = time.monotonic()
                    taken = self._play(workload, partners, work)
                    into[workload].append(taken.pair(self._device, share + time.monotonic() - begun))
        except SideError as error:
            work.failed[workload] = error
            if workload in pending:
                # A server that does not come up, and never will.
                work.failed.update(dict.fromkeys(pending, error))
                pending.clear()

    def _partners(self, framework: str, group: Sequence[Workload], stack: ExitStack) -> dict[str, "_Partner"]:
        lanes = tuple(dict.fromkeys(workload.lane for workload in group))
        noise = {
            "PYTHONHASHSEED": str(self._random.randrange(1 << 32)),
            "FWBENCH_PADDING": "x" * self._random.randrange(_ENVIRONMENT),
        }
        partners = {
            side.name: stack.enter_context(
                contextlib.closing(_Partner(side, framework, lanes, self._machine, self._device, self._deadline, noise))
            )
            for side in self._shuffled()
        }
        _both(partners, lambda partner: partner.await_ready())
        return partners

    def _play(self, workload: Workload, partners: Mapping[str, "_Partner"], work: "_Work") -> "_Taken":
        for side in self._shuffled():
            extra = self._planted.get(workload, 0.0) if side.name == "head" else 0.0
            partners[side.name].send(
                {
                    "workload": _fields(workload),
                    "model": CATALOG[workload.model].to_json(),
                    "path": [],
                    "extra": extra,
                }
            )
        built = _both(partners, lambda partner: partner.receive("built")["built"])
        work.described.setdefault(workload, built)
        taken = _Taken()
        order = self._random.sample(("base", "head"), 2)
        for placing in range(_PLACINGS):
            self._place(partners, taken, placing, order if placing % 2 == 0 else order[::-1])
        first = not work.screening[workload]
        for name, partner in partners.items():
            finished = partner.ask({"finish": {"program": first}}, "finished")
            taken.memory[name] = finished["finished"]
            if first:
                built[name]["program"] = finished.get("program")
            partner.receive("exited")
        return taken

    def _place(self, partners: Mapping[str, "_Partner"], taken: "_Taken", placing: int, order: Sequence[str]) -> None:
        for side in self._shuffled():
            partners[side.name].send({"place": [self._random.randrange(size) for size in _PADDINGS]})
        latency = max(partner.receive("placed")["placed"] for partner in partners.values())
        if not placing:
            taken.plan(latency)
        one, other = order
        for block in range(taken.blocks):
            for name in (one, other, other, one):
                answer = partners[name].ask({"rounds": taken.rounds}, "rounds")
                taken.turn(placing, block, name, answer["rounds"][1:], answer["cpu_time"])

    def _shuffled(self) -> list[Side]:
        return self._random.sample(self._sides, len(self._sides))


def _both(partners: Mapping[str, "_Partner"], ask: Callable[["_Partner"], Any]) -> dict[str, Any]:
    """What both sides answer. Head first: where it fails, base can only tell whether head has lost something.

    Raises:
        SideError: of the first side that has no answer.
    """
    try:
        head = ask(partners["head"])
    except SideError as error:
        if error.kind == "unavailable":
            with contextlib.suppress(SideError):
                ask(partners["base"])
                error.lost = True
        raise
    return {"head": head, "base": ask(partners["base"])}


class _Partner:
    """A side's server for the workloads of one framework."""

    def __init__(
        self,
        side: Side,
        framework: str,
        lanes: tuple[str, ...],
        machine: Machine,
        device: str,
        deadline: float,
        noise: Mapping[str, str],
    ) -> None:
        self.side = side
        self._deadline = deadline
        side.caches.mkdir(exist_ok=True)
        # Compiling is not what a duet compares, and on a CPU it is the same each time. On a GPU compilers choose by
        # measuring, and each pair must draw its own choice.
        caches = side.caches if device == "cpu" else Path(tempfile.mkdtemp(dir=side.caches))
        variables = environment(os.environ, machine.threads, device) | {
            **noise,
            "JAX_COMPILATION_CACHE_DIR": str(caches / "jax"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
            "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
            "TRITON_CACHE_DIR": str(caches / "triton"),
        }
        config = {"lanes": lanes, "cpus": machine.cpus, "fork": sys.platform == "linux"}
        python = side.interpreter(framework)
        server = command(python, Path(turns.__file__).resolve(), json.dumps(config), package=side.package)
        # Raised when it is asked, so that it does not matter which side was started first.
        self._fault: SideError | None = None
        try:
            self._channel = Channel(server, variables)
        except OSError as error:
            self._fault = SideError(side, "unavailable", f"{python} cannot be started: {error.strerror}")

    def await_ready(self) -> None:
        """Return once the server can take a job.

        Raises:
            SideError: it cannot.
        """
        if self._fault:
            raise self._fault
        message = self._receive(START_DEADLINE)
        if "refused" in message:
            raise SideError(self.side, "unavailable", message["refused"])

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message; a process that has ended is noticed when its answer is awaited."""
        with contextlib.suppress(BrokenPipeError):
            self._channel.send(message)

    def receive(self, answer: str) -> dict[str, Any]:
        """The answer of this name.

        Raises:
            SideError: there is another, or none.
        """
        message = self._receive(self._deadline)
        if answer in message:
            return message
        if "unavailable" in message:
            raise SideError(self.side, "unavailable", message["unavailable"])
        if "out_of_memory" in message:
            raise SideError(self.side, "out_of_memory", message["out_of_memory"], message["detail"])
        if "failed" in message:
            kind: FailureKind = "error" if answer == "built" else "crashed"
            raise SideError(self.side, kind, message["failed"], message["detail"])
        raise SideError(self.side, "crashed", describe_exit(message.get("exited", 0)), self._channel.said())

    def ask(self, message: Mapping[str, Any], answer: str) -> dict[str, Any]:
        """Send a message and wait for its answer."""
        self.send(message)
        return self.receive(answer)

    def close(self) -> None:
        """End the server and its job."""
        if self._fault is None:
            self._channel.close()

    def _receive(self, patience: float) -> dict[str, Any]:
        try:
            message = self._channel.receive(time.monotonic() + patience)
        except TimeoutError:
            raise SideError(self.side, "timed_out", f"no answer within the deadline of {patience:g} s") from None
        if message is None:
            raise SideError(self.side, "crashed", describe_exit(self._channel.wait()), self._channel.said())
        return message


class _Taken:
    """The turns of a pair."""

    def __init__(self) -> None:
        self.rounds = self.blocks = 0
        self.memory: dict[str, Mapping[str, float]] = {}
        self._kept: dict[str, list[float]] = {"base": [], "head": []}
        # By metric, placing and block, then by side: logarithms of each turn.
        self._turns: dict[tuple[str, int, int], dict[str, list[float]]] = {}

    def plan(self, latency: float) -> None:
        """Choose how many rounds a turn has, and how many blocks a placing, for calls of so many seconds."""
        self.rounds = 1 + max(1 if latency > _SLOW else 2, math.ceil(_TURN / latency))
        self.blocks = min(_BLOCKS, max(1, int(_PAIR / (_PLACINGS * 4 * self.rounds * latency))))

    def turn(self, placing: int, block: int, name: str, rounds: Sequence[float], cpu_time: float) -> None:
        """Keep a turn of the side of this name: seconds of its rounds, mean CPU seconds of one."""
        self._kept[name].extend(rounds[:_KEPT])
        for metric, value in (("latency", min(rounds)), ("cpu_time", cpu_time)):
            sides = self._turns.setdefault((metric, placing, block), {"base": [], "head": []})
            sides[name].append(math.log(max(value, 1e-9)))

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
        return Pair(differences, self._kept, values, self._drift(), seconds)

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


class _Work:
    """What is to do, and what was found."""

    def __init__(self, workloads: Mapping[Workload, Mapping[str, Threshold]]) -> None:
        self.thresholds = workloads
        self.screening: dict[Workload, list[Pair]] = {workload: [] for workload in workloads}
        self.confirmation: dict[Workload, list[Pair]] = {workload: [] for workload in workloads}
        self.failed: dict[Workload, SideError] = {}
        self.described: dict[Workload, Any] = {}

    def to_screen(self) -> list[Workload]:
        """The workloads that screening needs another pair of."""
        return [
            workload
            for workload, pairs in self.screening.items()
            if workload not in self.failed
            and len(pairs)
            < screening_pairs([p.differences["latency"] for p in pairs], self.threshold(workload, "latency", pairs))
        ]

    def to_confirm(self, asked: Sequence[Workload], pairs: int) -> list[Workload]:
        """Of the workloads asked for, those that have fewer confirming pairs than this."""
        return [
            workload for workload in asked if workload not in self.failed and len(self.confirmation[workload]) < pairs
        ]

    def threshold(self, workload: Workload, metric: str, pairs: Sequence[Pair]) -> float:
        """The smallest change that counts, as a share of base."""
        threshold = self.thresholds[workload][metric]
        if not threshold.amount or not pairs:
            return threshold.share
        return threshold.of(statistics.median(pair.values["base"][metric] for pair in pairs))

    def suspects(self) -> dict[tuple[Workload, str], Suspect]:
        """Whatever screening suspects; of exact metrics nothing, as they are decided at once."""
        found = {}
        for workload, metric in self._decided_by_pairs():
            pairs = self.screening[workload]
            suspect = screen([p.differences[metric] for p in pairs], self.threshold(workload, metric, pairs))
            if suspect:
                found[workload, metric] = suspect
        return found

    def differences(self, name: tuple[Workload, str], pairs: int) -> list[float]:
        """Of the first so many confirming pairs."""
        workload, metric = name
        return [pair.differences[metric] for pair in self.confirmation[workload][:pairs]]

    def comparisons(self, verdicts: Mapping[tuple[Workload, str], Verdict]) -> dict[Workload, Comparison]:
        """What became of each workload."""
        found = {}
        for workload in self.thresholds:
            pairs = self.screening[workload]
            error = self.failed.get(workload)
            if error:
                found[workload] = _failed(workload, error, built=workload in self.described)
                continue
            of_metrics = {
                metric: verdicts.get((workload, metric))
                or cleared([p.differences[metric] for p in pairs], self.threshold(workload, metric, pairs))
                for of, metric in self._decided_by_pairs()
                if of == workload
            }
            of_metrics |= self._exact(workload)
            drift = statistics.median(pair.drift for pair in pairs)
            found[workload] = Comparison(
                workload,
                max((verdict.kind for verdict in of_metrics.values()), key=_GRAVITY.index),
                of_metrics,
                pairs,
                self.confirmation[workload],
                self.described[workload],
                f"time still changes by {math.expm1(drift):+.1%} within a placing: the warm-up is too short for it"
                if abs(drift) > _DRIFT
                else "",
            )
        return found

    def _decided_by_pairs(self) -> Iterator[tuple[Workload, str]]:
        for workload, thresholds in self.thresholds.items():
            if workload in self.failed:
                continue
            for metric in thresholds:
                one = CRITERIA[metric].decided_by_one(workload.device)
                if not one and all(metric in p.differences for p in self.screening[workload]):
                    yield workload, metric

    def _exact(self, workload: Workload) -> dict[str, Verdict]:
        found = {}
        pairs = [*self.screening[workload], *self.confirmation[workload]]
        for metric in self.thresholds[workload]:
            one = CRITERIA[metric].decided_by_one(workload.device)
            if one and all(metric in pair.differences for pair in pairs):
                ratio = math.exp(statistics.median(pair.differences[metric] for pair in pairs))
                limit = 1 + self.threshold(workload, metric, pairs)
                kind: Literal["regressed", "improved", "unchanged"] = (
                    "regressed" if ratio > limit else "improved" if ratio < 1 / limit else "unchanged"
                )
                found[metric] = Verdict(kind, ratio, (ratio, ratio), 1.0, len(pairs))
        return found


# From what needs no attention to what needs most.
_GRAVITY = ("unchanged", "improved", "inconclusive", "regressed")


def _failed(workload: Workload, error: SideError, built: bool) -> Comparison:
    """What an error makes of a workload that both sides have built before, or not."""
    if error.kind == "out_of_memory":
        # Of which side is luck.
        note = f"{error.side.title}: {error.message}: memory must hold both sides at once, so choose a smaller batch"
        return Comparison(workload, "incomparable", note=note, error=error)
    if error.side.name == "head" and error.kind == "unavailable":
        kind: Kind = "missing" if error.lost else "incomparable" if built else "unavailable"
        return Comparison(workload, kind, note=f"{error.side.title} cannot run it: {error.message}", error=error)
    if error.side.name == "head":
        return Comparison(workload, "failed", note=error.message, error=error)
    if error.kind in ("unavailable", "error") and not built:
        return Comparison(workload, "new", note=f"{error.side.title} cannot build it: {error.message}", error=error)
    return Comparison(workload, "incomparable", note=f"{error.side.title}: {error.message}", error=error)


def _fields(workload: Workload) -> dict[str, Any]:
    """What differs from the defaults: an older base need not know the rest."""
    defaults = {field.name: field.default for field in dataclasses.fields(Workload)}
    return {name: value for name, value in workload.to_json().items() if value != defaults[name]}
