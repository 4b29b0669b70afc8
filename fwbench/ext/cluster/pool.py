"""Hands workloads to the accelerators of an engine, and measures a workload again if its accelerator is lost."""

import dataclasses
import os
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

import fwbench
from fwbench.errors import UserError
from fwbench.ext.cluster import engine as engines
from fwbench.ext.cluster.engine import Engine, LostError, Place
from fwbench.ext.cluster.slot import Description
from fwbench.machine import Machine
from fwbench.models.project import Project
from fwbench.record.lanes import LANES, PLACES, recorded
from fwbench.record.machine import Node
from fwbench.record.measurement import Failure, Measurement
from fwbench.record.workload import Workload
from fwbench.suite.profiles import Protocol
from fwbench.suite.selection import Selection
from fwbench.worker.chain import twice

# Seconds for a slot to start: a process starts and imports fwbench. If it takes longer, somebody else holds the
# accelerator.
START_DEADLINE = 180.0
# Seconds between two looks at a measurement, and seconds without an answer after which its slot counts as lost.
_LOOK = 1.0
_SILENT = 60.0
# Seconds for the slots to end their work when the run ends.
_ENDS = 10.0
# A workload is given up after so many processes were lost while they measured it.
MOST_LOST = 3
# A slot is given up after so many starts in a row without a measurement. No single workload can cause so many, as it is
# itself given up after `MOST_LOST`.
_MOST_STARTS = MOST_LOST + 1


@dataclass(eq=False)
class _Running:
    """A slot of the pool.

    Attributes:
        handle: the engine's handle of the slot's process; None: there is no process, and the next workload starts one.
        starts: how many times in a row its process was started without finishing a measurement.
        described: the description that its process gave after the last start.
    """

    place: Place
    handle: Any = None
    starts: int = 0
    described: Description = field(init=False)


@dataclass(eq=False)
class _Job:
    """A workload that was submitted.

    Attributes:
        lost: hosts on which the measuring process was lost.
        said: messages for the user: the stages, and what happened to the measuring process.
        answer: gives the measurement, once a slot has made it.
        kept: the measurement with which `arrived` has replaced it; None: `arrived` has not been called yet.
    """

    workload: Workload
    protocol: Protocol
    arrived: Callable[[Measurement], Measurement]
    lost: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    answer: "Future[Measurement]" = field(init=False)
    kept: Measurement | None = None


def spread(name: str) -> "Pool":
    """The accelerators of an installed engine.

    Raises:
        UserError: the engine is not installed or cannot be used, or as for `Pool`.
    """
    return Pool(engines.load(name))


class Pool:
    """The accelerators of an engine, which must all be of one kind.

    Args:
        engine: the pool closes it at its own end.

    Attributes:
        machine: the machine that every accelerator has; its cores and threads are those of one accelerator's part.

    Raises:
        UserError: the accelerators are not of one kind, an accelerator does not come or cannot measure, or two of them
            are the same device; one sentence.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._slots = [_Running(place) for place in engine.places]
        self._jobs: list[_Job] = []
        # Slots that measure nothing now; None: no slot will come any more.
        self._free: SimpleQueue[_Running | None] = SimpleQueue()
        # The versions on the host that first measured each lane, and that host's name.
        self._versions: dict[str, tuple[Mapping[str, str], str]] = {}
        self._closed = False
        self._threads = ThreadPoolExecutor(len(self._slots))
        try:
            self.machine = self._of_one_kind(sum(self._threads.map(self._run, self._slots)))
        except BaseException:
            self.close()
            raise
        for slot in self._slots:
            self._free.put(slot)

    def __len__(self) -> int:
        """The number of accelerators at the start, lost ones included, so that a pool never becomes false."""
        return len(self._engine.places)

    @property
    def told(self) -> str:
        """Half a sentence on what measures: how many accelerators, on which hosts."""
        count, hosts = len(self), dict.fromkeys(place.host for place in self._engine.places)
        accelerators = "1 accelerator measures" if count == 1 else f"{count} accelerators measure at the same time"
        return f"{accelerators}, through {self._engine.name} ({', '.join(hosts)})"

    def _of_one_kind(self, started: int) -> Machine:
        """The machine that every slot has; a `UserError` if only some of them have `started`, or as for `Pool`."""
        name, asked = self._engine.name, len(self._slots)
        if started < asked:
            raise UserError(
                f"{asked - started} of {asked} accelerators of {name} did not come within {START_DEADLINE:g} s and "
                f"{_MOST_STARTS} starts: others hold them, or their nodes are ill; {self._engine.status} tells which"
            )
        first, owners = self._slots[0], set[tuple[str, str]]()
        for slot in self._slots:
            host, machine = slot.place.host, slot.described.machine
            if names := machine.differences(first.described.machine):
                one, other = (_stated(vars(each), names) for each in (first.described.machine, machine))
                raise UserError(
                    f"the nodes of {name} are not of one kind, and timings of different kinds are never compared: "
                    f"{one} on {first.place.host}, {other} on {host}; leave one kind out"
                )
            owner = host, slot.described.accelerator
            if owner in owners:
                raise UserError(
                    f"two nodes of {name} on {owner[0]} both count {owner[1]} as theirs, and two benchmarks on one "
                    "device would disturb each other: let one of them have it"
                )
            owners.add(owner)
        return first.described.machine

    def equip(self, selection: Selection, project: Project) -> None:
        """Set how everything is measured; called before the first measurement."""
        self._setup = selection, project

    def submit(
        self,
        workload: Workload,
        protocol: Protocol,
        arrived: Callable[[Measurement], Measurement] = lambda measurement: measurement,
    ) -> None:
        """Let the pool measure a workload as soon as an accelerator is free.

        Args:
            arrived: called with the measurement once it is made, during any call of `take` or `close`. What `arrived`
                returns replaces the measurement.
        """
        job = _Job(workload, protocol, arrived)
        again = twice(lambda *_: self._measured(job), lambda _: self._setup[0].patience > 0)
        job.answer = self._threads.submit(again, workload, protocol, job.said.append)
        self._jobs.append(job)

    def take(self, workload: Workload, protocol: Protocol, tell: Callable[[str], None]) -> Measurement:
        """Wait for the measurement of a workload, and submit the workload if nobody has.

        Args:
            tell: called with each stage, and with what happens to the process that measures.

        Raises:
            UserError: no accelerator is left.
        """
        if not any((job.workload, job.protocol) == (workload, protocol) for job in self._jobs):
            self.submit(workload, protocol)
        job = next(job for job in self._jobs if (job.workload, job.protocol) == (workload, protocol))
        told, done = 0, False
        while not done:
            done = bool(wait([job.answer], _LOOK).done)
            self._keep()
            for sentence in job.said[told:]:
                tell(sentence)
                told += 1
        self._jobs.remove(job)
        return job.kept or job.answer.result()

    def _keep(self) -> None:
        """Call `arrived` of each job whose measurement has been made."""
        for job in self._jobs:
            if job.kept is None and job.answer.done() and not job.answer.exception():
                job.kept = job.arrived(job.answer.result())

    def _measured(self, job: _Job) -> Measurement:
        """Measure a job on the next free slot, and on another slot if the process is lost; each slot has a thread."""
        while not self._closed and (slot := self._free.get()):
            try:
                if not self._run(slot):
                    self._slots.remove(slot)
                    continue
                measurement = self._of_one_version(self._watched(slot, job), slot.place.host)
                slot.starts = 0
                job.said.append(f"on {slot.place.host}")
            except LostError:
                slot.handle = None
                job.lost.append(slot.place.host)
                job.said.append(f"lost with its process on {slot.place.host}")
                if len(job.lost) < MOST_LOST:
                    continue
                hosts = ", ".join(job.lost)
                sentence = f"the process that measured it was lost {len(job.lost)} times ({hosts}), so it is given up"
                measurement = Measurement(job.workload, failure=Failure("crashed", sentence))
            finally:
                if slot in self._slots:
                    self._free.put(slot)
                elif not self._slots:
                    self._free.put(None)
            mine, ours = slot.described.machine.to_json(), self.machine.to_json()
            others = {name: value for name, value in mine.items() if name != "cpus" and value != ours[name]}
            place, accelerator = slot.place, slot.described.accelerator
            node = Node(place.host, accelerator, place.parts, others, tuple(job.lost))
            return dataclasses.replace(measurement, node=node)
        self._free.put(None)
        raise UserError(
            f"every accelerator of {self._engine.name} is lost; what was measured is in the journal, from which "
            "--fwbench-resume goes on"
        )

    def _run(self, slot: _Running) -> bool:
        """Start a slot unless it runs, and start it again if it dies while it starts; return whether it runs."""
        end = time.monotonic() + START_DEADLINE
        while slot.handle is None:
            late = time.monotonic() >= end
            if late or self._closed or slot.starts == _MOST_STARTS:
                return False
            slot.starts += 1
            slot.handle = self._engine.start(slot.place, variables(os.environ), fwbench.__version__)
            try:
                slot.described = self._answer(slot, "describe", end - time.monotonic())
            except LostError:
                slot.handle = None
        if fault := slot.described.fault:
            raise UserError(f"{slot.place.host}, a node of {self._engine.name}, {fault}")
        return True

    def _watched(self, slot: _Running, job: _Job) -> Measurement:
        """Let a slot measure a job, and follow its stages; a `LostError` if the slot is gone."""
        answer, told = self._engine.ask(slot.handle, "measure", *self._setup, job.workload, job.protocol), 0
        while not wait([answer], _LOOK).done:
            stages = self._answer(slot, "stages", _SILENT)
            job.said += stages[told:]
            told = len(stages)
        measurement: Measurement = answer.result()
        return measurement

    def _answer(self, slot: _Running, method: str, seconds: float) -> Any:
        """Call a slot's method and return its answer.

        A `LostError` says that the slot is gone, or was killed here as it did not answer in time or the pool is closed.
        """
        answer, end = self._engine.ask(slot.handle, method), time.monotonic() + seconds
        while not wait([answer], _LOOK).done:
            if self._closed or time.monotonic() > end:
                self._engine.kill(slot.handle)
                raise LostError
        return answer.result()

    def _of_one_version(self, measurement: Measurement, host: str) -> Measurement:
        """The measurement; a failure if its host's versions are not those of the host that first measured its lane."""
        if measurement.failure or not measurement.versions:
            return measurement
        lane = measurement.workload.lane
        versions, first = self._versions.setdefault(lane, (measurement.versions, host))
        names = sorted(dict(versions.items() ^ measurement.versions.items()))[:3]
        if not names:
            return measurement
        sentence = (
            f"{LANES[lane].name} is of other versions on {host} ({_stated(measurement.versions, names)}) than on "
            f"{first} ({_stated(versions, names)}), so their timings cannot be compared: install the same everywhere"
        )
        return dataclasses.replace(measurement, samples=(), failure=Failure("error", sentence))

    def close(self) -> None:
        """Keep what has arrived, end all measurements and give the accelerators back; a second call does nothing."""
        if self._closed:
            return
        self._closed = True
        try:
            self._keep()
            self._free.put(None)
            handles = [slot.handle for slot in self._slots if slot.handle is not None]
            wait([self._engine.ask(handle, "end") for handle in handles], _ENDS)
            for handle in handles:
                self._engine.kill(handle)
            self._threads.shutdown(cancel_futures=True)
        finally:
            self._engine.close()


def variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of an environment that change measurements, and so must be the same on every node."""
    prefixes = recorded(LANES.values())
    return {name: value for name, value in environment.items() if name.startswith(prefixes) and name not in PLACES}


def _stated(fields: Mapping[str, Any], names: Iterable[str]) -> str:
    return ", ".join(f"{name} {fields.get(name)}" for name in names)
