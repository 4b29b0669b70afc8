"""A seat in a round, and the process that takes its turns."""

import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fwbench.compare.pair import Fault
from fwbench.errors import UserError
from fwbench.machine import Machine
from fwbench.record.lanes import Lane
from fwbench.record.measurement import Failure
from fwbench.worker import protocol
from fwbench.worker.client.conversation import Conversation
from fwbench.worker.client.ladder import Flags, added, compilers_fault
from fwbench.worker.client.scratch import Scratch
from fwbench.worker.client.server import Server
from fwbench.worker.client.starting import PACKAGE, environment
from fwbench.worker.turns.sides import Side


@dataclass(frozen=True)
class Seat:
    """A place in a round, whose process takes turns with those of the other seats; it runs what its side has.

    Attributes:
        name: different from all other names in the round.
        flags: fallback flags of its lane.
        cold: whether each program is compiled with empty caches.
        warm: whether a second process then starts with what the first one has left in the caches.
    """

    name: str
    side: Side
    lane: Lane
    flags: Flags = ()
    cold: bool = False
    warm: bool = False


class SideError(Exception):
    """A side could not be measured.

    Args:
        failure: of kind `unavailable` where the side cannot run the workload.
        lacking: whether the side has no such model or cannot run it at all, so that it matters whether the other can.

    Attributes:
        compilers: whether its compiler failed, or it died while it may have been compiling.
        fault: the fault that the judgement gets.
        shared: whether the other side's compiler failed, too.
    """

    def __init__(self, side: Side, failure: Failure, lacking: bool = False) -> None:
        super().__init__(failure.message)
        self.lacking = lacking or failure.kind == "unavailable"
        self.compilers = compilers_fault(failure)
        self.shared = False
        self.fault = Fault(side.name, side.title, failure)


class Partner:
    """The server of a seat for the workloads of its lane."""

    def __init__(self, seat: Seat, machine: Machine, device: str, deadline: float, noise: Mapping[str, str]) -> None:
        self.seat = seat
        self.side = side = seat.side
        lane = seat.lane
        self._deadline = deadline
        variables = {**environment({**os.environ, **side.variables}, machine.threads, device, lane), **noise}
        self._own = Scratch() if seat.cold else None
        self._caches = lane.cached(self._own.path if self._own else side.caches)
        variables |= {**({} if seat.cold and not seat.warm else lane.sharing), **self._caches}
        # Raised when the partner is first asked, so that it does not matter which side was started first.
        self._unstarted: SideError | None = None
        python = side.interpreter(lane.framework)
        try:
            self._server = Server(python, lane, machine.cpus, added(variables, seat.flags), package=side.package)
        except OSError as error:
            self._unstarted = SideError(side, Failure("unavailable", f"{python} cannot be started: {error.strerror}"))
            return
        self._conversation = Conversation(self._server.channel)

    def await_ready(self) -> None:
        """Return once the server can take a job; if it cannot, raise a SideError.

        If it is the base's, and its fwbench speaks another protocol than this one, a UserError says so.
        """
        if self._unstarted:
            raise self._unstarted
        if (self.side.package / Path(protocol.__file__).relative_to(PACKAGE)).is_file():
            if isinstance(answer := self._server.ready(), Failure):
                raise SideError(self.side, answer)
            if answer["protocol"] == protocol.VERSION:
                return
        sentence = (
            f"the fwbench of {self.side.title} is another than this run's and cannot be used by it: compare with a "
            "later revision"
        )
        if self.side.name == "base":
            raise UserError(f"{sentence}.")
        raise SideError(self.side, Failure("unavailable", sentence))

    def cool(self) -> None:
        """Empty a cold seat's caches, before each workload."""
        for folder in self._caches.values() if self.seat.cold else ():
            shutil.rmtree(folder, ignore_errors=True)

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message. If the process has ended, waiting for the answer shows it."""
        self._server.channel.send(message)

    def receive(self, answer: str) -> dict[str, Any]:
        """Wait for the answer of this name; if another one came, or none, raise a SideError.

        If every other workload would fail too, a UserError says what the user must do.
        """
        message = self._conversation.receive(time.monotonic() + self._deadline, self._deadline)
        if isinstance(message, Failure):
            raise SideError(self.side, message)
        if answer in message:
            return message
        if "failure" in message:
            told = Failure.from_json(message["failure"])
            raise SideError(self.side, replace(told, stage=self._conversation.stage), message["lacking"])
        if "stray" in message:
            raise self._stray(*message["stray"])
        raise SideError(self.side, self._conversation.died(message["exited"]))

    def _stray(self, name: str, file: str) -> SideError:
        """The error for a module of this name that comes from this file, which is none of the side's."""
        if self.side.has(name):
            raise self.side.unseen(name, file)
        sentence = f"its module {name!r} would come from {file}, which is none of its files"
        return SideError(self.side, Failure("error", sentence, "build"), lacking=True)

    def ask(self, message: Mapping[str, Any], answer: str) -> dict[str, Any]:
        """Send a message and wait for its answer."""
        self.send(message)
        return self.receive(answer)

    def close(self) -> None:
        """End the server and its job."""
        try:
            if self._unstarted is None:
                self._server.close()
        finally:
            if self._own:
                self._own.close()


class Measured(Partner):
    """The server of a lane whose process has measured a workload and stays; closing it ends the server.

    Args:
        deadline: as `Rounds` has it.
    """

    def __init__(self, seat: Seat, server: Server, deadline: float) -> None:
        self.seat, self.side = seat, seat.side
        self._deadline = deadline
        self._own = None
        self._unstarted = None
        self._server = server
        channel = server.hand_over()
        self._conversation = Conversation(channel, start=channel.position())
