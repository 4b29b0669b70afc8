"""A seat in a round, and the process that takes its turns."""

import json
import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fwbench.compare.pair import Fault
from fwbench.errors import UserError
from fwbench.machine import Machine, oom
from fwbench.record import files
from fwbench.record.lanes import Lane
from fwbench.record.measurement import Failure, FailureKind
from fwbench.worker.client.channel import Channel
from fwbench.worker.client.conversation import Conversation, crashed
from fwbench.worker.client.fallback import Flags, added
from fwbench.worker.client.starting import START_DEADLINE, command, configuration, environment
from fwbench.worker.memory import explained, told
from fwbench.worker.turns import player
from fwbench.worker.turns.sides import Side


@dataclass(frozen=True)
class Seat:
    """One of those who take turns.

    Attributes:
        name: different from all other names in the round.
        side: whose fwbench and modules it runs.
        flags: fallback flags of its lane.
    """

    name: str
    side: Side
    lane: Lane
    flags: Flags = ()


class SideError(Exception):
    """A side could not be measured.

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


class Partner:
    """The server of a seat for the workloads of its lane."""

    def __init__(self, seat: Seat, machine: Machine, device: str, deadline: float, noise: Mapping[str, str]) -> None:
        self.seat = seat
        self.side = side = seat.side
        lane = seat.lane
        self._deadline = deadline
        with files.temporary():
            side.caches.mkdir(exist_ok=True)
            self._own = Path(tempfile.mkdtemp(dir=side.caches))
            scratch = self._own / "tmp"
            scratch.mkdir()
        # A duet does not compare compiling. On a CPU its result is always the same, so caches are shared. On a GPU
        # compilers choose kernels by timing them, and each pair must draw its own choice.
        caches = side.caches if device == "cpu" else self._own
        own = {**lane.sharing, **lane.cached(caches), "TMPDIR": str(scratch)}
        variables = {**environment({**os.environ, **side.variables}, machine.threads, device, lane), **noise, **own}
        variables = added(variables, seat.flags)
        python = side.interpreter(lane.framework)
        config = json.dumps(configuration(lane, machine.cpus, str(scratch)))
        server = command(python, Path(player.__file__).resolve(), config, package=side.package)
        self._kills = oom.kills()
        # Raised when the partner is first asked, so that it does not matter which side was started first.
        self._unstarted: SideError | None = None
        try:
            self._channel = Channel(server, variables)
        except OSError as error:
            self._unstarted = SideError(side, "unavailable", f"{python} cannot be started: {error.strerror}")

    def await_ready(self) -> None:
        """Return once the server can take a job.

        Raises:
            SideError: it cannot take this one.
            UserError: it can take no job at all.
        """
        if self._unstarted:
            raise self._unstarted
        message = self._receive(START_DEADLINE)
        self._refuse(message)
        for why in ("refused", "undriven"):
            if why in message:
                raise SideError(self.side, "unavailable", message[why])

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message. If the process has ended, waiting for the answer shows it."""
        self._channel.send(message)

    def receive(self, answer: str) -> dict[str, Any]:
        """Wait for the answer of this name.

        Raises:
            SideError: another answer came, or none.
            UserError: every other workload would fail too, and the user must act.
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
            # An older fwbench on this side may not send this.
            sentence = told(message["out_of_memory"], message.get("asked"))
            raise SideError(self.side, "out_of_memory", sentence, message["detail"])
        for why in ("failed", "undriven"):
            if why in message:
                kind: FailureKind = "error" if answer == "built" else "crashed"
                compilers = message.get("compiler", False)
                raise SideError(self.side, kind, message[why], message["detail"], compilers=compilers)
        died = crashed(message.get("exited", 0), detail=self._channel.said())
        raise self._error(died, compilers=answer in ("built", "placed"))

    def _error(self, failure: Failure, compilers: bool = False) -> SideError:
        failure = explained(failure, self._kills)
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
        answer = Conversation(self._channel, stage="duet").receive(time.monotonic() + patience, patience)
        if isinstance(answer, Failure):
            raise self._error(answer)
        return answer
