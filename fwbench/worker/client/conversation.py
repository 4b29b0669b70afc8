"""The messages of a process about one job, or a failure if no further message can come."""

import dataclasses
import signal
import time
from collections.abc import Callable, Mapping
from typing import Any

from fwbench.machine import oom
from fwbench.machine.oom import Kills
from fwbench.record.measurement import Failure, Measurement
from fwbench.worker.client.channel import Channel, GarbledError

# Written to standard error by C++ and by the compiler below XLA, where no exception can end the process.
_LAST_WORDS = ("std::bad_alloc", "LLVM ERROR: out of memory")


class Conversation:
    """A process's messages about one job, which begins at the position `start` in standard error.

    Sentences name the process `who`, and `tell` is called with each stage as it begins.

    Attributes:
        stage: the stage that began last; None: none has begun.
        asked, started: when the conversation began, and when the process reported that it had begun the job, if it has.
        code: the exit code of the process; None: it has not ended.
    """

    def __init__(
        self, channel: Channel, who: str = "the worker", tell: Callable[[str], None] = lambda _: None, start: int = 0
    ) -> None:
        self._channel = channel
        self._who = who
        self._tell = tell
        self._start = start
        self._kills = oom.kills()
        self.stage: str | None = None
        self.asked = time.monotonic()
        self.started: float | None = None
        self.code: int | None = None

    def receive(self, deadline: float, limit: float) -> dict[str, Any] | Failure:
        """The next message that is no stage, or the failure of a process that is late, sends garbage or has ended.

        `deadline` is in `time.monotonic` seconds; a failure states `limit`, the seconds until then.
        """
        while True:
            try:
                message = self._channel.receive(deadline)
                if message is not None and "measurement" in message:
                    message["measurement"] = _measurement(message["measurement"])
            except TimeoutError:
                return self.late(limit)
            except GarbledError as error:
                sentence = f"what {self._who} sent is no message: {error}; it was killed"
                return explained(Failure("crashed", sentence, self.stage, self.said()), self._kills)
            if message is None:
                self.code = self._channel.wait()
                return explained(ended(self._channel, self._who, self.stage, self.said()), self._kills)
            if "stage" not in message:
                return message
            self.stage = message["stage"]
            self._tell(message["stage"])

    def said(self) -> str:
        """The end of what the process has written to standard error about this job."""
        return self._channel.said(self._start)

    def late(self, limit: float) -> Failure:
        """Describe a process that has not answered within so many seconds, and so will be killed."""
        said, stacks = self.said(), self._channel.stacks()
        during = f"during {self.stage}" if self.stage else "before its first stage"
        where = f" {stacks.place}" if stacks.place else ", and did not tell where it was"
        sentence = f"no result within the deadline of {limit:.4g} s; {self._who} was killed {during}{where}"
        return Failure("timed_out", sentence, self.stage, "\n".join(filter(None, (said.strip(), stacks.text))))

    def died(self, code: int, who: str = "") -> Failure:
        """Describe a process that has ended with this exit code before it had a result; sentences name it `who`."""
        self.code = code
        return explained(crashed(code, self.stage, self.said(), who or self._who), self._kills)

    def timed(self, measurement: Measurement) -> Measurement:
        """The measurement that has arrived, with the seconds that the process boundary took."""
        overhead = time.monotonic() - self.asked - sum(measurement.stages.values())
        start = None if self.started is None else self.started - self.asked
        return dataclasses.replace(measurement, overhead_s=overhead, start_s=start)


def ended(channel: Channel, who: str, stage: str | None = None, detail: str = "") -> Failure:
    """The failure of a process that has closed its end of the pipe before it had a result."""
    code = channel.wait()
    if channel.killed:
        return Failure("crashed", f"{who} closed its output before it had a result, and was killed", stage, detail)
    return crashed(code, stage, detail, who)


def crashed(code: int, stage: str | None = None, detail: str = "", who: str = "the worker") -> Failure:
    """The failure of a process that ended with this exit code before it had a result."""
    if code >= 0:
        return Failure("crashed", f"{who} ended with exit code {code} before it had a result", stage, detail)
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return Failure("crashed", f"{who} was killed by {name}", stage, detail, signal=-code)


def explained(failure: Failure, before: Kills | None) -> Failure:
    """Recognise a crash for lack of memory by the process's last words and the kernel's counter.

    A process that SIGKILL ends says nothing. The kernel counts the processes that it kills for lack of memory; if its
    counter has not moved since `before`, when the process was started, somebody else sent the signal.
    """
    if failure.kind == "crashed" and (words := next((each for each in _LAST_WORDS if each in failure.detail), None)):
        return dataclasses.replace(
            failure, kind="out_of_memory", message=f"memory ran out ({failure.message}: {words})"
        )
    if failure.signal != signal.SIGKILL:
        return failure
    after, kind = oom.kills(), failure.kind
    if before is None or after is None:
        why = " (perhaps by the kernel, out of memory)"
    elif after.count > before.count:
        counted = f"oom_kill in {after.source} rose from {before.count} to {after.count}"
        kind, why = "out_of_memory", f", by the kernel, because memory ran out ({counted})"
    else:
        why = f", and not by the kernel for lack of memory (oom_kill in {after.source} stayed {after.count})"
    return dataclasses.replace(failure, kind=kind, message=f"{failure.message}{why}")


def _measurement(data: Mapping[str, Any]) -> Measurement:
    try:
        return Measurement.from_json(data)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise GarbledError(f"a measurement without its parts ({type(error).__name__}: {error})") from error
