"""Accelerators that measure in parallel, one workload each: who measures what, and what happens when one dies.

    pytest's items, one by one          the pool                        a slot: one accelerator of a node
      |                                   | -- start, describe ---------> |  as many as there are accelerators
      | -- submit all workloads --------> | -- measure the next one ----> |  whichever is free
      | -- take the first ---- waits ---> | <-- its measurement --------- |
      |                                   |    a slot dies: its workload goes to the next one that is free

What starts processes on other machines is an `Engine`, such as Ray (`fwbench.worker.ray`).
"""

import dataclasses
import itertools
import os
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import fwbench
from fwbench.errors import UserError
from fwbench.machine import Machine
from fwbench.record.lanes import LANES, PLACES, RECORDED
from fwbench.record.machine import Node
from fwbench.record.measurement import Failure, Measurement
from fwbench.record.workload import Workload
from fwbench.suite.profiles import Protocol
from fwbench.worker.slot import Setup

# Seconds for a slot to start: Ray starts a process and imports fwbench. Longer waits are for accelerators that somebody
# else holds.
START_DEADLINE = 180.0
# Seconds between two checks of the awaited slot, and seconds without an answer after which it counts as lost.
_LOOK = 1.0
_SILENT = 60.0
# Seconds for the slots to end their work when the run ends.
_ENDS = 10.0

# A workload on which so many processes were lost is given up.
MOST_LOST = 3
# A slot that dies so often in a row without measuring anything is given up.
_MOST_STARTS = 3


class LostError(Exception):
    """The process of a slot is gone."""


class NoSlotsError(UserError):
    """No accelerator of the pool is left."""


@dataclass(frozen=True)
class Place:
    """Where a slot runs.

    Attributes:
        node: the engine's name of the node.
        host: the name of its machine; several nodes may share one machine.
        part, parts: which part of the host's cores it has, from 0, and of how many.
        gpu: whether its accelerator is a GPU; else it is the cores themselves.
    """

    node: str
    host: str
    part: int
    parts: int
    gpu: bool


class Engine(ABC):
    """What a pool needs from the library that starts processes on other machines.

    Attributes:
        name: for sentences.
        places: one for each accelerator; the engine never gives one to two slots.
    """

    name: str
    places: Sequence[Place]

    @abstractmethod
    def start(self, place: Place, arguments: Sequence[Any]) -> Any:
        """Start a `Slot` with these arguments at a place; return the engine's handle of it."""

    @abstractmethod
    def ask(self, handle: Any, method: str, *arguments: Any, aside: bool = False) -> Hashable:
        """Call a method of a slot; return the engine's handle of the answer.

        Args:
            aside: let the call run beside a call that has not returned.
        """

    @abstractmethod
    def wait(self, tickets: Collection[Hashable], seconds: float) -> Collection[Hashable]:
        """Wait until any answer has arrived, at most so long; return the tickets of those that have."""

    @abstractmethod
    def answer(self, ticket: Hashable) -> Any:
        """Read an answer that has arrived.

        Raises:
            LostError: the slot is gone.
        """

    @abstractmethod
    def alive(self, place: Place) -> bool:
        """Whether the place's node still exists."""

    @abstractmethod
    def kill(self, handle: Any) -> None:
        """End a slot's process at once."""

    @abstractmethod
    def close(self) -> None:
        """Give back what was started; no slot is called afterwards."""


@dataclass
class _Job:
    """A workload that was submitted.

    Attributes:
        arrived: is called with its measurement, and returns what is kept.
        lost: hosts on which its process was lost.
        error: an error of the slot's code, which is a bug of fwbench.
        told: how many of its stages have been reported to the caller.
    """

    workload: Workload
    protocol: Protocol
    arrived: Callable[[Measurement], Measurement]
    lost: list[str] = field(default_factory=list)
    found: Measurement | None = None
    error: Exception | None = None
    told: int = 0


@dataclass
class _Running:
    """The state of a slot.

    Attributes:
        ticket: of the running call, `describe` or its job's `measure`; None: the slot is free.
        described: what the slot is; None until it has answered.
        begun: when its process was asked for.
        starts: how often in a row it has been started without measuring anything.
    """

    place: Place
    handle: Any = None
    ticket: Hashable | None = None
    job: _Job | None = None
    described: Mapping[str, Any] | None = None
    begun: float = 0.0
    starts: int = 0


class Pool:
    """The accelerators of an engine, which must all be of one kind.

    Args:
        engine: is closed with the pool.
        clock: seconds.

    Attributes:
        machine: the same for each: cores and threads are those of one accelerator's part.
        hosts: their names.

    Raises:
        UserError: there are none, they are not of one kind, or one cannot measure, or two are one device; one sentence.
    """

    def __init__(self, engine: Engine, clock: Callable[[], float] = time.monotonic) -> None:
        self._engine, self._clock = engine, clock
        self._waiting: deque[_Job] = deque()
        self._jobs: list[_Job] = []
        self._setup: Setup | None = None
        # The versions on the host that first measured each lane, and that host's name.
        self._versions: dict[str, tuple[Mapping[str, str], str]] = {}
        self._slots = [_Running(place) for place in engine.places]
        self._closed = False
        try:
            self.machine = self._begun()
        except BaseException:
            self.close()
            raise
        self.hosts = tuple(dict.fromkeys(slot.place.host for slot in self._slots))

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def told(self) -> str:
        """Half a sentence on what measures: how many accelerators, on which hosts."""
        count = len(self._slots)
        accelerators = "1 accelerator measures" if count == 1 else f"{count} accelerators measure at the same time"
        return f"{accelerators}, through {self._engine.name} ({', '.join(self.hosts)})"

    def _begun(self) -> Machine:
        """Start all slots and wait for their descriptions.

        Raises:
            UserError: see above.
        """
        asked = len(self._slots)
        for slot in self._slots:
            self._start(slot)
        while any(slot.described is None for slot in self._slots):
            self._step()
        if len(self._slots) < asked:
            raise UserError(
                f"{asked - len(self._slots)} of {asked} accelerators of {self._engine.name} did not come within "
                f"{START_DEADLINE:g} s: others hold them, or their nodes are ill; `ray status` tells which"
            )
        machines = [self._machine(slot) for slot in self._slots]
        for slot, machine in zip(self._slots, machines, strict=True):
            if names := machine.differences(machines[0]):
                one, other = ({name: getattr(of, name) for name in names} for of in (machines[0], machine))
                raise UserError(
                    f"the nodes of {self._engine.name} are not of one kind, and timings of different kinds are never "
                    f"compared: {_stated(one)} on {self._slots[0].place.host}, {_stated(other)} on {slot.place.host}; "
                    "leave one kind out"
                )
        owners: dict[tuple[str, str], Place] = {}
        for slot in self._slots:
            assert slot.described is not None
            key = slot.described["host"], slot.described["accelerator"]
            if owners.setdefault(key, slot.place) is not slot.place:
                raise UserError(
                    f"two nodes of {self._engine.name} on {key[0]} both count {key[1]} as theirs, and two benchmarks "
                    "on one device would disturb each other: let one of them have it"
                )
        return machines[0]

    @staticmethod
    def _machine(slot: _Running) -> Machine:
        assert slot.described is not None
        fields = dict(slot.described["machine"])
        return Machine(**{**fields, "cpus": tuple(fields["cpus"])})

    def equip(self, setup: Setup) -> None:
        """Set how everything is measured; called before the first measurement."""
        self._setup = setup

    def submit(
        self,
        workload: Workload,
        protocol: Protocol,
        arrived: Callable[[Measurement], Measurement] = lambda measurement: measurement,
    ) -> None:
        """Let the pool measure a workload as soon as an accelerator is free.

        Args:
            arrived: called with the measurement as soon as it is there, within any call of `take`; what it returns
                takes its place.
        """
        job = _Job(workload, protocol, arrived)
        self._jobs.append(job)
        self._waiting.append(job)

    def take(self, workload: Workload, protocol: Protocol, tell: Callable[[str], None]) -> Measurement:
        """Wait for the measurement of a workload, and submit the workload if nobody has.

        Args:
            tell: called with each stage, and with what happens to the process that measures.

        Raises:
            NoSlotsError: no accelerator is left.
        """
        job = self._job(workload, protocol)
        if job is None:
            self.submit(workload, protocol)
            job = self._jobs[-1]
        looking: tuple[_Running, Hashable, float] | None = None
        looked, lost = self._clock(), len(job.lost)
        for host in job.lost:
            tell(f"lost with its process on {host}")
        while job.found is None and job.error is None:
            self._hand_out()
            done = self._step(looking[1] if looking else None)
            if len(job.lost) > lost:
                tell(f"lost with its process on {job.lost[-1]}")
                lost, job.told = len(job.lost), 0
            slot = next((slot for slot in self._slots if slot.job is job), None)
            if looking and (slot is not looking[0] or looking[1] in done):
                if slot is looking[0]:
                    self._tell_stages(job, looking[1], tell)
                looking, looked = None, self._clock()
            elif looking and self._clock() - looking[2] > _SILENT:
                self._engine.kill(looking[0].handle)
                self._lost(looking[0])
                looking = None
            elif looking is None and slot and self._clock() - looked >= _LOOK:
                looking = slot, self._engine.ask(slot.handle, "stages", aside=True), self._clock()
        self._jobs.remove(job)
        # Give the slot its next workload now, while pytest writes this record.
        self._hand_out()
        if job.error:
            raise job.error
        assert job.found is not None
        assert job.found.node is not None
        tell(f"on {job.found.node.host}")
        return job.found

    def _job(self, workload: Workload, protocol: Protocol) -> _Job | None:
        return next((job for job in self._jobs if (job.workload, job.protocol) == (workload, protocol)), None)

    def _tell_stages(self, job: _Job, ticket: Hashable, tell: Callable[[str], None]) -> None:
        # If the slot is lost, the ticket of its own call says so.
        with suppress(LostError):
            stages = self._engine.answer(ticket)
            for stage in stages[job.told :]:
                tell(stage)
            job.told = max(job.told, len(stages))

    def _hand_out(self) -> None:
        """Give every free slot its next call."""
        for slot in self._slots:
            if slot.ticket is None and self._waiting:
                job = slot.job = self._waiting.popleft()
                assert self._setup is not None
                asked = self._setup, job.workload.to_json(), job.protocol.to_json()
                slot.ticket = self._engine.ask(slot.handle, "measure", *asked)

    def _step(self, besides: Hashable | None = None) -> Collection[Hashable]:
        """Wait a moment for any answer, and handle those that have arrived.

        Args:
            besides: another ticket that is waited for.

        Raises:
            NoSlotsError: no accelerator is left.
            UserError: a node cannot measure.
        """
        if not self._slots:
            raise NoSlotsError(
                f"every accelerator of {self._engine.name} is lost; what was measured is in the journal, from which "
                "--fwbench-resume goes on"
            )
        tickets = [slot.ticket for slot in self._slots if slot.ticket is not None]
        done = self._engine.wait([*tickets, *([besides] if besides is not None else [])], _LOOK)
        for slot in list(self._slots):
            if slot.ticket in done:
                try:
                    answer = self._engine.answer(slot.ticket)
                except LostError:
                    self._lost(slot)
                except Exception as error:
                    if slot.job is None:
                        raise
                    slot.job.error, slot.job, slot.ticket = error, None, None
                else:
                    self._answered(slot, answer)
            elif slot.described is None and self._clock() - slot.begun > START_DEADLINE:
                self._engine.kill(slot.handle)
                self._slots.remove(slot)
        return done

    def _answered(self, slot: _Running, answer: Mapping[str, Any]) -> None:
        job, slot.job, slot.ticket = slot.job, None, None
        if job is None:
            if answer["fault"]:
                raise UserError(f"{answer['host']}, a node of {self._engine.name}, {answer['fault']}")
            slot.described = answer
            return
        slot.starts = 0
        measurement = self._of_one_kind(Measurement.from_json(answer), slot.place.host)
        job.found = job.arrived(dataclasses.replace(measurement, node=self._node(slot, job)))

    def _node(self, slot: _Running, job: _Job) -> Node:
        assert slot.described is not None
        mine, ours = slot.described["machine"], self.machine.to_json()
        own = {name: value for name, value in mine.items() if name != "cpus" and value != ours[name]}
        return Node(slot.place.host, slot.described["accelerator"], slot.place.parts, own, tuple(job.lost))

    def _of_one_kind(self, measurement: Measurement, host: str) -> Measurement:
        """The measurement; a failure if its host's versions are not those of the host that first measured its lane."""
        if measurement.failure or not measurement.versions:
            return measurement
        lane = measurement.workload.lane
        versions, first = self._versions.setdefault(lane, (measurement.versions, host))
        if versions == measurement.versions:
            return measurement
        names = sorted(
            name
            for name in versions.keys() | measurement.versions.keys()
            if versions.get(name) != measurement.versions.get(name)
        )
        one, other = ({name: of.get(name) for name in names[:3]} for of in (versions, measurement.versions))
        sentence = (
            f"{LANES[lane].name} is of other versions on {host} ({_stated(other)}) than on {first} ({_stated(one)}), "
            "so their timings cannot be compared: install the same everywhere"
        )
        return dataclasses.replace(measurement, samples=(), failure=Failure("error", sentence))

    def _start(self, slot: _Running) -> None:
        place = slot.place
        niceness = os.getpriority(os.PRIO_PROCESS, 0) if hasattr(os, "getpriority") else 0
        arguments = (place.part, place.parts, place.gpu, variables(os.environ), niceness, fwbench.__version__)
        slot.handle = self._engine.start(place, arguments)
        slot.described, slot.begun, slot.starts = None, self._clock(), slot.starts + 1
        slot.ticket = self._engine.ask(slot.handle, "describe")

    def _lost(self, slot: _Running) -> None:
        """Handle the loss of a slot's process: the next free slot gets its workload, and its place is tried again."""
        job, slot.job, slot.ticket = slot.job, None, None
        if job:
            job.lost.append(slot.place.host)
            if len(job.lost) < MOST_LOST:
                self._waiting.appendleft(job)
            else:
                hosts = ", ".join(job.lost)
                sentence = f"the process that measured it was lost {len(job.lost)} times ({hosts}), so it is given up"
                failed = Measurement(job.workload, failure=Failure("crashed", sentence))
                job.found = job.arrived(dataclasses.replace(failed, node=self._node(slot, job)))
        if slot.starts < _MOST_STARTS and self._engine.alive(slot.place):
            self._start(slot)
        else:
            self._slots.remove(slot)

    def close(self) -> None:
        """End all measurements and give the accelerators back; a second call does nothing."""
        if self._closed:
            return
        self._closed = True
        try:
            ending = {self._engine.ask(s.handle, "end", aside=True) for s in self._slots if s.described is not None}
            deadline = self._clock() + _ENDS
            while ending and self._clock() < deadline:
                ending -= set(self._engine.wait(ending, _LOOK))
            for slot in self._slots:
                if slot.handle is not None:
                    self._engine.kill(slot.handle)
        finally:
            self._engine.close()


def places(nodes: Iterable[tuple[str, str, int]], gpu: bool) -> list[Place]:
    """The places of an engine. Nodes on one host get different parts of its cores.

    Args:
        nodes: each node's name, its host's name, and how many accelerators it has.
        gpu: whether these are GPUs.
    """
    found = sorted((host, node) for node, host, count in nodes for _ in range(count))
    return [
        Place(node, host, part, len(group), gpu)
        for host, group in ((host, list(group)) for host, group in itertools.groupby(found, lambda pair: pair[0]))
        for part, (_, node) in enumerate(group)
    ]


def variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of an environment that change measurements, and so must be the same on every node."""
    prefixes = (*RECORDED, *(prefix for lane in LANES.values() for prefix in lane.recorded))
    return {name: value for name, value in environment.items() if name.startswith(prefixes) and name not in PLACES}


def _stated(fields: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in fields.items())
