"""A process that talks JSON lines over its pipes: how it is started, asked, and ended."""

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from fwbench.record.measurement import Failure

# Of what a process said on standard error, characters that a failure quotes, and bytes that are kept at all.
_DETAIL = 2000
_KEPT = 1 << 18

# No message is longer, in bytes: what is, is none.
_LONGEST = 1 << 26
# Of what is no message, characters that are quoted.
_QUOTED = 60

# Seconds for a process that is asked for its stacks: until it begins, then in all, and without another word.
_BEGINS = 2.0
_TELLS = 1.0
_PAUSE = 0.2
# Characters of stacks that a failure shows, and frames of the main thread.
_STACKS = 4000
_FRAMES = 20

# A variable by which a process and all that it starts are known.
_MARK = "FWBENCH_CHANNEL"

# Seconds that a process has to end by itself once its pipe is closed, and where somebody is impatient.
_ENDS = 5.0
_HURRIES = 1.0

# What faulthandler writes: a line for each thread, and one for each of its frames.
# The first may follow upon half a line of something else.
_THREAD = re.compile(r"(?:Current thread|Thread) 0x[0-9a-f]+ .*\(most recent call first\):$")
_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)')


class GarbledError(Exception):
    """What came through the pipe is no message; the text says what it was."""


class Channel:
    """A process in a session of its own, and the conversation with it.

    Raises:
        OSError: the command cannot be started.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        # Which all that the process starts inherits, in whatever session.
        self._mark = f"{_MARK}={uuid.uuid4().hex}"
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # A file would grow for as long as a process writes.
            stderr=subprocess.PIPE,
            env={**environment, _MARK: self._mark.partition("=")[2]},
            # Ctrl-C in a terminal goes to every process of the group; the client decides what ends.
            start_new_session=True,
        )
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._stdout = self._process.stdout.fileno()
        self._stderr: int | None = self._process.stderr.fileno()
        os.set_blocking(self._stderr, False)
        self._buffer = bytearray()
        # The end of standard error, and how much there was of it.
        self._said = b""
        self._length = 0

    @property
    def pid(self) -> int:
        """Of the process, which is also its group's and its session's."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it can be asked anything more."""
        return self._process.poll() is None

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message; that a process has ended is noticed when its answer is awaited."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()

    def receive(self, deadline: float) -> dict[str, Any] | None:
        """The next message, or None when the process has closed its end.

        Raises:
            TimeoutError: no message came before the deadline (in `time.monotonic` seconds).
            GarbledError: something else came.
        """
        while (line := self._line(deadline)) is not None:
            if line:
                return _message(line)
        return None

    def _line(self, deadline: float) -> bytes | None:
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if searched > _LONGEST:
                self._buffer.clear()
                raise GarbledError(f"a line of more than {_LONGEST >> 20} MiB")
            both = [self._stdout] + ([] if self._stderr is None else [self._stderr])
            ready, _, _ = select.select(both, [], [], max(0.0, deadline - time.monotonic()))
            if self._stderr in ready:
                self._listen()
            if self._stdout in ready:
                data = os.read(self._stdout, 1 << 20)
                if not data:
                    return None
                self._buffer += data
            elif time.monotonic() >= deadline:
                raise TimeoutError
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line

    def _listen(self) -> bytes:
        """Take in what standard error holds, or as much of it as there is at once where it never ends."""
        taken = b""
        while self._stderr is not None and len(taken) < _KEPT:
            try:
                data = os.read(self._stderr, _KEPT)
            except BlockingIOError:
                break
            if not data:
                self._stderr = None
            taken += data
        self._said = (self._said + taken)[-_KEPT:]
        self._length += len(taken)
        return taken

    def wait(self) -> int:
        """Its exit code, once it has closed its end; it is killed where it does not end then."""
        try:
            return self._process.wait(timeout=_ENDS)
        except subprocess.TimeoutExpired:
            self.kill()
            return self._process.wait()

    def said(self, start: int = 0) -> str:
        """The end of what it wrote to standard error since the position `start`."""
        self._listen()
        length = self._length - start
        return self._said[-length:].decode(errors="replace")[-_DETAIL:] if length else ""

    def position(self) -> int:
        """Where standard error ends at this moment."""
        self._listen()
        return self._length

    def stacks(self, pid: int | None = None) -> "Stacks":
        """Where the process's threads are, or those of its job: it is asked by a signal.

        Args:
            pid: of another process that writes to its standard error.
        """
        self._listen()
        if sys.platform != "win32":
            with suppress(ProcessLookupError):
                os.kill(self.pid if pid is None else pid, signal.SIGUSR1)
        lines: list[str] = []
        rest = b""
        end, pause = time.monotonic() + _BEGINS, _BEGINS
        while self._stderr is not None and (left := end - time.monotonic()) > 0:
            ready, _, _ = select.select([self._stderr], [], [], min(left, pause))
            if not ready:
                break
            *whole, rest = (rest + self._listen()).split(b"\n")
            rest = rest[-_KEPT:]
            decoded = [line.decode(errors="replace") for line in whole]
            # The process may have more to say than that.
            found = [line for line in decoded if _FRAME.match(line) or _THREAD.search(line)]
            if found and not lines:
                end, pause = time.monotonic() + _TELLS, _PAUSE
            lines += found
        return Stacks(lines)

    def kill(self) -> None:
        """End the process at once, and all that it has started."""
        self._process.kill()
        for pid in _marked(self._mark):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def close(self, patience: float = _ENDS) -> None:
        """End the process by its closed pipe; by force, with all that it has started, where that does not do.

        Args:
            patience: seconds for it to end by itself.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        try:
            # It may have ended with a message of ours unread.
            with suppress(BrokenPipeError):
                self._process.stdin.close()
            if self._process.wait(timeout=patience):
                # It could not end those that it has started.
                self.kill()
        except subprocess.TimeoutExpired:
            self.kill()
        except BaseException:
            # A second Ctrl-C: it has little time left.
            try:
                self._process.wait(timeout=_HURRIES)
            except subprocess.TimeoutExpired:
                self.kill()
            raise
        finally:
            # One that the kernel holds fast ends when the kernel lets it.
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=_ENDS)
            self._process.stdout.close()
            self._process.stderr.close()
            self._stderr = None


class Stacks:
    """What a process told of its threads.

    Args:
        lines: faulthandler's.

    Attributes:
        place: the innermost frame of the main thread, as in `in f (file.py, line 3)`; empty where it did not tell.
        text: the stacks, the main thread's first, no longer than a screen; empty where there are none.
    """

    def __init__(self, lines: Sequence[str]) -> None:
        threads: list[list[str]] = []
        for line in lines:
            if not _FRAME.match(line):
                threads.append([])
            elif threads:
                threads[-1].append(line)
        # faulthandler begins with the newest thread.
        *others, main = threads or [[]]
        frame = _FRAME.match(main[0]) if main else None
        self.place = f"in {frame['function']} ({frame['file']}, line {frame['line']})" if frame else ""
        told = ["Main thread (most recent call first):", *main[:_FRAMES]] if main else []
        for other in others:
            told += ["Another thread (most recent call first):", *other[:_FRAMES]]
        self.text = "\n".join(told)[:_STACKS]

    @property
    def where(self) -> str:
        """The place as the end of a sentence that says how the process was ended."""
        return f" {self.place}" if self.place else ", and did not tell where it was"


def crashed(code: int, stage: str | None = None, detail: str = "", who: str = "the worker") -> Failure:
    """The failure of a process that ended with this exit code before it had a result."""
    if code >= 0:
        return Failure("crashed", f"{who} ended with exit code {code} before it had a result", stage, detail)
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return Failure("crashed", f"{who} was killed by {name}", stage, detail, signal=-code)


def _message(line: bytes) -> dict[str, Any]:
    try:
        message = json.loads(line)
    except ValueError:
        message = None
    if not isinstance(message, dict):
        text = line.decode(errors="replace")
        raise GarbledError(repr(text if len(text) <= _QUOTED else f"{text[:_QUOTED]}..."))
    return message


def _marked(mark: str) -> list[int]:
    """The living processes that were started with this variable; none on a system without /proc."""
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        # It may have ended, or be somebody else's.
        with suppress(OSError):
            if mark.encode() in environ.read_bytes().split(b"\0"):
                found.append(int(environ.parent.name))
    return found
