"""pytest's side of a fork server: gives it jobs and survives their faults."""

import dataclasses
import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from fwbench.record.lanes import Lane
from fwbench.record.measurement import Failure, FailureKind, Measurement
from fwbench.record.workload import Workload
from fwbench.worker.client.channel import Channel, GarbledError
from fwbench.worker.client.conversation import Conversation
from fwbench.worker.client.scratch import Scratch
from fwbench.worker.client.starting import PACKAGE, SERVER, START_DEADLINE, command, configuration

# Seconds for a worker to free its memory and end: after its record has arrived, and after it was killed.
END_DEADLINE = 30.0
KILL_DEADLINE = 10.0


class Server:
    """A fork server, which takes one job after another through its `channel`, with the fwbench in the folder `package`.

    The folder `compiled` collects the outputs of jobs' compilers; without it each job removes its own.

    Attributes:
        staying: the last job's workload, whose process waits to take turns; its own `lane` is empty. None: none waits.

    Raises:
        OSError: the interpreter cannot be started.
        UserError: no interpreter can be started, or there is no room for temporary files.
    """

    def __init__(
        self,
        python: str,
        lane: Lane,
        cpus: tuple[int, ...],
        environment: Mapping[str, str],
        compiled: Path | None = None,
        package: Path = PACKAGE,
    ) -> None:
        self._compiled = compiled
        with ExitStack() as stack:
            folder = str(stack.enter_context(Scratch()).path)
            # Outside the jobs' own folder, which the server empties when a job ends, perhaps before this is collected.
            self._made = stack.enter_context(Scratch()).path / "compiled" if compiled else None
            if self._made:
                environment = {**environment, **lane.sharing, **lane.cached(self._made)}
            config = json.dumps(configuration(lane, cpus, folder))
            script = package / SERVER.relative_to(PACKAGE)
            self.channel = Channel(command(python, script, config, package=package), {**environment, "TMPDIR": folder})
            self._folders = stack.pop_all()
        self._starting = Conversation(self.channel, "it")
        self._python = python
        self._ready: dict[str, Any] | None = None
        # The last job's worker, and whether it still runs although its record has arrived.
        self._worker = 0
        self._ending = False
        self.staying: Workload | None = None

    @property
    def alive(self) -> bool:
        """True if the server can take another job."""
        return self.channel.alive

    @property
    def worker(self) -> int:
        """The number of the last job's process; 0 before it has started."""
        return self._worker

    def measure(
        self,
        job: Mapping[str, Any],
        workload: Workload,
        tell: Callable[[str], None],
        *,
        keeps: bool = False,
    ) -> Measurement:
        """Run a workload's job until its record arrives; kill it at the protocol's deadline.

        Args:
            keeps: whether the next job finds what this one compiles.
        """
        try:
            if isinstance(answer := self.ready(), Failure):
                self.close()
                # A user who has named an interpreter wants it measured, so this is a failure and no skipped test.
                kind: FailureKind = "crashed" if answer.kind == "unavailable" else answer.kind
                sentence = f"no worker could be started with {self._python}: {answer.message}"
                return Measurement(workload, failure=dataclasses.replace(answer, kind=kind, message=sentence))
            measurement = self._converse({**job, "caches": self._made is not None}, workload, tell)
            if self._made and self._compiled and not (keeps and measurement.failure is None):
                if measurement.failure is None and self._made.is_dir():
                    shutil.copytree(self._made, self._compiled, copy_function=shutil.move, dirs_exist_ok=True)
                # The next job's compilers must find empty caches.
                shutil.rmtree(self._made, ignore_errors=True)
            return measurement
        except BaseException:
            # Ctrl-C or a bug of fwbench: the worker must not go on by itself.
            self.close()
            raise

    def ready(self) -> dict[str, Any] | Failure:
        """Wait until the server can take a job; return its first message, or the reason if it cannot."""
        if self._ready is None:
            answer = self._starting.receive(time.monotonic() + START_DEADLINE, START_DEADLINE)
            if isinstance(answer, Failure):
                return answer
            if "failure" in answer:
                return Failure.from_json(answer["failure"])
            self._ready = answer
        return self._ready

    def settle(self) -> None:
        """Wait until the last job's worker, which ends while pytest goes on, has freed its memory."""
        if self.staying:
            self.staying = None
            self.channel.send({"end": True})
        if self._ending and self._exited(END_DEADLINE) is None:
            # The worker does not end. Its record has arrived, so killing it loses nothing.
            self._kill()
            if self._exited(KILL_DEADLINE) is None:
                self.close()
        if not self.channel.alive:
            self.close()

    def hand_over(self) -> Channel:
        """The channel by which the process that stays takes turns; whoever asks for it sees the process end."""
        self.staying, self._ending = None, False
        return self.channel

    def _exited(self, patience: float) -> int | None:
        """The worker's exit code, or the server's if it ended, too; None if neither ends within so many seconds."""
        deadline = time.monotonic() + patience
        with suppress(TimeoutError):
            while True:
                with suppress(GarbledError):
                    message = self.channel.receive(deadline)
                    if message is None or "exited" in message:
                        self._ending = False
                        return self.channel.wait() if message is None else int(message["exited"])
        return None

    def _converse(self, job: Mapping[str, Any], workload: Workload, tell: Callable[[str], None]) -> Measurement:
        limit = job["protocol"]["deadline"] + job["patience"]
        conversation = Conversation(self.channel, tell=tell, start=self.channel.position())
        self.channel.send(job)
        self._worker = 0
        while not isinstance(answer := conversation.receive(conversation.asked + limit, limit), Failure):
            if "started" in answer:
                self._worker, conversation.started = answer["started"], time.monotonic()
            elif "measurement" in answer:
                self._ending = True
                measurement = conversation.timed(answer["measurement"])
                if answer.get("stays"):
                    self.staying = measurement.workload.of_all
                return measurement
            elif "exited" in answer:
                answer = conversation.died(answer["exited"])
                break
        if conversation.code is None:
            self._kill()
            code = self._exited(KILL_DEADLINE)
            if code is None:
                # The server has not reported the worker's death either.
                self.close()
            elif answer.kind != "timed_out" and code not in (0, -signal.SIGKILL):
                # If the worker died within a message, its exit says more than the torn message.
                answer = conversation.died(code)
        if not self.channel.alive:
            # A killed server could not end what its worker had started.
            self.close()
        return Measurement(workload, failure=answer)

    def _kill(self) -> None:
        """Kill the worker and its helpers, or the server if no worker is known yet."""
        if not self._worker:
            self.channel.kill()
            return
        with suppress(ProcessLookupError):
            os.killpg(self._worker, signal.SIGKILL)

    def close(self) -> None:
        """End the server and, by closing its pipe, the job that may still run; a second call does nothing."""
        try:
            # Before it is ready, a server has no job to end, and does not read its pipe.
            if self._ready:
                self.channel.close()
            else:
                self.channel.close(patience=0.0)
        finally:
            self._ending, self.staying = False, None
            self._folders.close()
