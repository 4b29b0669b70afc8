"""The measured side of processes that take turns: builds a program, and runs turns of it on request.

`fwbench.worker.protocol` lists the messages.
"""

import dataclasses
import functools
import gc
import os
import statistics
import sys
import time
import timeit
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fwbench.errors import UnavailableError
from fwbench.frameworks.contract import Framework, Program
from fwbench.frameworks.faults import first_line
from fwbench.machine import versions
from fwbench.machine.holes import watched
from fwbench.machine.load import OtherLoad
from fwbench.meters import energy, memory
from fwbench.meters.heap import page_faults
from fwbench.meters.remembering import vary
from fwbench.meters.throughput import queue_depth
from fwbench.models import Model, ModelError, stateful
from fwbench.models.importing import INSTALLED
from fwbench.models.weights import canonical
from fwbench.record.lanes import Lane
from fwbench.record.measurement import Failure, compiling
from fwbench.record.workload import Workload
from fwbench.worker.process.checks import computed, fingerprinted
from fwbench.worker.process.faults import failure, load
from fwbench.worker.process.witness import HARNESS, Witness, changed, in_force

Send = Callable[[Mapping[str, Any]], None]
Receive = Callable[[], dict[str, Any] | None]

# At each placing a program is warm after so much time and three calls, or two once `_LONG` seconds have passed, if the
# kernel has given its last two calls no more fresh memory than a few pages; at the latest after `_LATEST` seconds.
_WARM_SECONDS, _LONG, _LATEST = 0.05, 1.0, 8.0
_WARM_CALLS = (3, 2)
_FEW_PAGES = 64

# Seconds for another lane's threads to stop spinning after its turn: at first they wait for work busily.
_SPUN = 0.005

# Seconds of calls without a wait between them, where energy is measured.
_QUEUED = 0.5

# A unit of extra work is timed in so many repeats of so many units; the fastest repeat counts.
_UNITS = 100

# The peaks of memory that a round compares.
_PEAKS = ("program_memory", "device_peak_memory", "host_peak_memory")


def play(lane: Lane, job: Mapping[str, Any], send: Send, receive: Receive) -> None:
    """Build a job's program and take its turns; never raises, whatever the measured code does."""
    # The user's modules lie in their own project.
    sys.path[:0] = job["path"]
    caches = (os.environ.get(name, "") for name in ("TMPDIR", *lane.caches))
    with Witness(job["root"], caches, own_package=True) as witness:
        send({"stage": "build"})
        if isinstance(framework := load(lane), Failure):
            send(stray(job) or {"failure": framework.to_json(), "lacking": False})
            return
        make = functools.partial(Built, framework, job, witness, send)
        take_turns(make, lane, framework, job, witness, send, receive)


def take_turns(
    make: Callable[[], "Player"],
    lane: Lane,
    framework: Framework,
    job: Mapping[str, Any],
    witness: Witness,
    send: Send,
    receive: Receive,
) -> None:
    """Make a job's player and let it take turns; never raises, whatever the measured code does."""
    try:
        player = make()
        send(stray(job) or {"built": player.described(lane.distributions)})
        send({"stage": "turns"})
        message = receive()
        while message is not None and "end" not in message:
            player.place(message["place"])
            with player.program.session():
                send({"placed": player.warm_up()})
                while (message := receive()) is not None and not message.keys() & {"place", "finish"}:
                    send(_answer(player, message, job))
                if message is not None and "finish" in message:
                    finished = player.finished(message["finish"], job["root"])
                    send({**finished, "edited": witness.edited(), "sources": witness.sources()})
                    return
    except BaseException as error:
        answer = {"failure": failure(error, framework).to_json(), "lacking": isinstance(error, ModelError)}
        send(stray(job) or answer)


def _answer(player: "Player", asked: Mapping[str, Any], job: Mapping[str, Any]) -> dict[str, Any]:
    if "rounds" in asked:
        return watched(player.usual, asked["rounds"], player.turn, asked["rounds"])
    if "alone" in asked:
        calls = asked["alone"], asked["together"]
        return watched(player.usual, sum(calls), player.alone_and_together, *calls)
    return stray(job) or {"modules": "own"}


def stray(job: Mapping[str, Any]) -> dict[str, Any]:
    """Name and file of a user's module that is not from this side's files; empty if there is none.

    An installed package, editable or not, would be the same on both sides, so that no change in it would be seen.
    """
    tree = job["tree"]
    if tree is None:
        return {}
    # Virtual environments in the working tree do not belong to it.
    environments = tuple(
        folder + os.sep
        for folder in map(os.path.realpath, (sys.prefix, sys.base_prefix))
        if folder.startswith(tree + os.sep)
    )
    resolved = functools.cache(os.path.realpath)
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        # A module made at run time may name anything as its file, as torch.ops does.
        if not isinstance(file, str) or not os.path.isabs(file) or file.startswith(job["root"] + os.sep):
            continue
        # `start` has decided which fwbench this is.
        if name.partition(".")[0] == "fwbench" or name in HARNESS:
            continue
        folder = resolved(os.path.dirname(file)) + os.sep
        in_tree = folder.startswith(tree + os.sep) and not folder.startswith(environments)
        in_tree = in_tree and not INSTALLED.intersection(Path(folder).parts)
        # The working tree is head's, and head's code may have resolved the link to it.
        if (in_tree and job["side"] == "base") or (name in job["own"] and not in_tree):
            return {"stray": [name, file]}
    return {}


class Turns:
    """A call that takes turns: it begins with `step`, and `wait` waits for its end.

    A planted slowdown, `extra`, is additional real work, as a share of a call's latency.

    Attributes:
        usual: seconds and CPU seconds of a call.
        device: `cpu` or `gpu`, whose energy is counted.
    """

    device = "cpu"

    def __init__(self, step: Callable[[], object], wait: Callable[[], object], extra: float = 0.0) -> None:
        self._step, self._wait, self._extra = step, wait, extra
        self._units = 0
        self._padding: list[bytes] = []
        self.usual = (0.0, 0.0)

    def pad(self, padding: list[int]) -> None:
        """Allocate blocks of these many bytes, behind which later allocations lie."""
        self._padding = [bytes(size) for size in padding]

    def turn(self, rounds: int) -> dict[str, Any]:
        """Run so many rounds; the first one only refills the caches after the other side, unless it is the only one.

        Returns `rounds`, seconds of each, and `cpu_time`, mean CPU seconds of those that count, of all threads.
        """
        timed = self._timed(rounds)
        first = [next(timed)] if rounds > 1 else []
        begun = self._computed()
        later = list(timed)
        return {"rounds": [*first, *later], "cpu_time": (self._computed() - begun) / len(later)}

    def energy(self) -> float | None:
        """Joules of a call, of calls back to back; None where no counter tells them."""
        return energy.of_a_call(energy.counter(self.device), self._spend, time.perf_counter).value

    def _spend(self, seconds: float) -> tuple[int, float]:
        """Make calls back to back for so many seconds or more; return how many, and the seconds that they took."""
        depth = queue_depth(self.usual[0], min(seconds, _QUEUED))
        calls, begun = 0, time.perf_counter()
        while (passed := time.perf_counter() - begun) < seconds:
            self._run_together(depth)
            calls += depth
        return calls, passed

    def _run_together(self, calls: int) -> None:
        """Make so many calls, and wait for the last."""
        for _ in range(calls):
            self._step()
            for _ in range(self._units):
                _unit()
        self._wait()

    def _computed(self) -> float:
        """CPU seconds of all threads in all calls so far."""
        return time.process_time()

    def _timed(self, rounds: int) -> Iterator[float]:
        step, wait, units, clock = self._step, self._wait, self._units, time.perf_counter
        for _ in range(rounds):
            start = clock()
            step()
            wait()
            for _ in range(units):
                _unit()
            yield clock() - start


class Player(Turns):
    """A workload's compiled program that takes turns for the client's job."""

    def __init__(self, program: Program, job: Mapping[str, Any]) -> None:
        described, workload = Model.from_json(job["model"]), Workload.from_json(job["workload"])
        self.device = workload.device
        self._samples = workload.samples
        self.program = program
        vary(program, described, workload)
        super().__init__(program.step, program.wait, job["extra"])

    def described(self, distributions: tuple[str, ...]) -> dict[str, Any]:
        """Settings and versions of the lane's distributions."""
        return {"settings": dict(self.program.settings), "versions": versions((*distributions, "numpy"))}

    def place(self, padding: list[int]) -> None:
        """Place the program in fresh memory, behind blocks of these many bytes."""
        self.pad(padding)
        self.program.relocate()
        self._step, self._wait = self.program.step, self.program.wait
        gc.collect()

    def warm_up(self) -> float:
        """Run until the program is warm; return the latency of its fastest call in seconds."""
        self._units = 0
        begun, computing = time.perf_counter(), time.process_time()
        calls: list[float] = []
        pages = [page_faults()]
        while (
            (passed := time.perf_counter() - begun) < _WARM_SECONDS
            or len(calls) < _WARM_CALLS[passed > _LONG]
            or (pages[-1] - pages[-3] > _FEW_PAGES and passed < _LATEST)
        ):
            calls.append(next(self._timed(1)))
            pages.append(page_faults())
        self.usual = (min(calls), (time.process_time() - computing) / len(calls))
        if self._extra:
            units = min(timeit.repeat(_unit, timer=time.perf_counter, repeat=_UNITS, number=_UNITS))
            self._units = max(1, round(self._extra * min(calls) / (units / _UNITS)))
        return min(calls)

    def alone_and_together(self, alone: int, together: int) -> dict[str, float]:
        """Time calls that each wait for their end, and calls back to back with one wait after the last.

        A call before them refills the caches; but with no calls `together` none does, and waiting calls stand for both.

        Returns:
            `latency`: median seconds of those that wait; `call`: seconds of one back to back; `cpu`: CPU seconds
            available meanwhile; `others`: those that other processes took.
        """
        time.sleep(_SPUN)
        list(self._timed(1 if together else 0))
        load = OtherLoad()
        latency = call = statistics.median(self._timed(alone))
        if together:
            start = time.perf_counter()
            self._run_together(together)
            call = (time.perf_counter() - start) / together
        there, others = load.taken()
        return {"latency": latency, "call": call, "cpu": there, "others": others}

    def memory(self) -> dict[str, float]:
        """Peaks in bytes by metric, without those that this machine cannot report.

        A device's peak from before the step is left out, as it hides the step's own.
        """
        read = memory.memory(self.program, self.device, lambda: next(self._timed(1)))
        known = ((name, read[name].value) for name in _PEAKS if not read[name].at_most)
        return {name: value for name, value in known if value is not None}

    def energy(self) -> float | None:
        """Joules of a sample, from those of a call."""
        joules = super().energy()
        return None if joules is None else joules / self._samples

    def finished(self, asked: Mapping[str, Any], root: str) -> dict[str, Any]:
        """The memory of the program, and what else is asked for, after all turns."""
        told: dict[str, Any] = {"finished": self.memory()}
        if asked.get("energy"):
            told["energy"] = self.energy()
        return {**told, "spans": self.spans(calls, root)} if (calls := asked["spans"]) else told

    def spans(self, calls: int, root: str) -> list[list[Any]] | str:
        """Rows of spans, or why none. The first profile takes memory, so that calls wait; the second one counts."""
        try:
            recorded = (self.program.spans(calls) and self.program.spans(calls)) or []
        except Exception as error:
            return f"{type(error).__name__}: {first_line(error)}"
        rows = [[*dataclasses.astuple(span)[:-1], span.place.removeprefix(root + os.sep)] for span in recorded]
        return rows or "the lane has no profiler"


class Measured(Player):
    """A program whose process has measured it alone, and stays for a first round."""

    def place(self, padding: list[int]) -> None:
        """Do nothing: the program is warm, and chance has laid out its memory as it would lay out new memory."""

    def finished(self, asked: Mapping[str, Any], root: str) -> dict[str, Any]:
        """Nothing: the peaks of its memory are those of the measurement, which also tells the rest."""
        return {"finished": {}}


class Built(Player):
    """A program that is built and compiled for the round.

    If the workload cannot run here, an UnavailableError says why.
    """

    def __init__(self, framework: Framework, job: Mapping[str, Any], witness: Witness, send: Send) -> None:
        described, workload = Model.from_json(job["model"]), Workload.from_json(job["workload"])
        self._in_force = functools.partial(in_force, job["recorded"], framework, workload)
        self._before = self._in_force(building=True)
        with witness.building():
            if reason := framework.refusal(workload, described):
                raise UnavailableError(reason)
            shapes = framework.weight_shapes(described, stateful.sizes(described, workload))
            weights = functools.partial(canonical, workload.weights, described, shapes, workload.seed)
            program = framework.build(workload, described, weights())
        super().__init__(program, job)
        send({"stage": "compile"})
        self._start: float | None = None
        with program.session():
            begun = time.perf_counter()
            times = program.compile()
            if job.get("starting"):
                program.step()
                program.wait()
                self._start = time.perf_counter() - begun
        self._compiling = compiling(times.trace, times.compile)
        self._results: Callable[[], dict[str, Any]] = lambda: computed(program, described, workload, weights())

    def described(self, distributions: tuple[str, ...]) -> dict[str, Any]:
        """Also the seconds of tracing and compiling, or of the start."""
        told = {**super().described(distributions), "compiling": self._compiling}
        return told if self._start is None else {**told, "start": self._start}

    def settings(self) -> dict[str, Any]:
        """The settings with which this side has run, those included that its network has changed."""
        stated = dict(self.program.settings)
        return {**stated, **changed(self._before, self._in_force(), stated.get("caution", ""))}

    def finished(self, asked: Mapping[str, Any], root: str) -> dict[str, Any]:
        """Also the program and its results, if they are asked for."""
        told = super().finished(asked, root)
        if asked["program"]:
            told |= {"program": fingerprinted(self.program).to_json(), "settings": self.settings()}
        return {**told, "outputs": self._results()} if asked.get("outputs") else told


def _unit() -> None:
    """Work for about a microsecond."""
    sum(range(30))
