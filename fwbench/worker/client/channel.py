"""A process that exchanges JSON lines over its pipes: its start, its messages, and its end."""

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

from fwbench.errors import UserError, exhausted
from fwbench.text import storable

# Standard error: the characters that a failure quotes, and the bytes that are kept.
_DETAIL = 2000
_KEPT = 1 << 18

# Bytes of the longest message; whatever is longer is not a message.
_LONGEST = 1 << 26
# Characters quoted from a line that is not a message.
_QUOTED = 60

# Seconds to wait for stacks: until the first line, from then on in all, and between two lines.
_BEGINS = 2.0
_TELLS = 1.0
_PAUSE = 0.2
# Characters of stacks that a failure shows, and frames of the main thread.
_STACKS = 4000
_FRAMES = 20

# This variable marks a process and all that it starts.
_MARK = "FWBENCH_CHANNEL"

# Seconds that a process has to end by itself after its pipe is closed; after a second Ctrl-C it has less.
_ENDS = 5.0
_HURRIES = 1.0

# faulthandler writes a line for each thread, and a line for each of its frames.
# The first line may follow half a line of other output.
_THREAD = re.compile(r"(?:Current thread|Thread) 0x[0-9a-f]+ .*\(most recent call first\):$")
_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)')


class GarbledError(Exception):
    """Something that came through the pipe is not a message; the text quotes it."""


class Channel:
    """A process in a session of its own, and the conversation with it.

    Raises:
        OSError: the command cannot be started.
        UserError: no command can be started, as the system has no files, processes or memory left.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        # All that the process starts inherits this variable, in whatever session.
        self._mark = f"{_MARK}={uuid.uuid4().hex}"
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                # A pipe, as a file would grow for as long as the process writes.
                stderr=subprocess.PIPE,
                env={**environment, _MARK: self._mark.partition("=")[2]},
                # Ctrl-C in a terminal goes to every process of the group; the client decides what ends.
                start_new_session=True,
            )
        except OSError as error:
            if advice := exhausted(error):
                raise UserError(f"no process can be started ({error.strerror}): {advice}") from None
            raise
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._stdin, self._outputs = self._process.stdin, (self._process.stdout, self._process.stderr)
        self._stdout = self._process.stdout.fileno()
        self._stderr: int | None = self._process.stderr.fileno()
        os.set_blocking(self._stderr, False)
        self._buffer = bytearray()
        # True if we have killed the process, so that its exit code says nothing about it.
        self.killed = False
        # The end of standard error, and how many bytes there were in all.
        self._said = b""
        self._length = 0

    @property
    def alive(self) -> bool:
        """True if the process still takes messages."""
        return self._process.poll() is None

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message. If the process has ended, waiting for the answer shows it."""
        with suppress(BrokenPipeError):
            self._stdin.write(json.dumps(message).encode() + b"\n")
            self._stdin.flush()

    def receive(self, deadline: float) -> dict[str, Any] | None:
        """The next message, or None when the process has closed its end.

        TimeoutError: none came before the deadline (in `time.monotonic` seconds). GarbledError: something else came.
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
        """Read what standard error holds; if it never ends, only as much as is there now."""
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
        """Wait until the process has closed its end, kill it if it does not end then, and return its exit code."""
        try:
            return self._process.wait(timeout=_ENDS)
        except subprocess.TimeoutExpired:
            self.kill()
            return self._process.wait()

    def said(self, start: int = 0) -> str:
        """The end of what the process wrote to standard error since the position `start`."""
        self._listen()
        length = self._length - start
        return self._said[-length:].decode(errors="replace")[-_DETAIL:] if length else ""

    def position(self) -> int:
        """The current end of standard error, in bytes since its start."""
        self._listen()
        return self._length

    def stacks(self, pid: int | None = None) -> "Stacks":
        """Ask the process, or `pid`, which has the same standard error, by a signal for the stacks of its threads."""
        self._listen()
        if sys.platform != "win32":
            with suppress(ProcessLookupError):
                os.kill(self._process.pid if pid is None else pid, signal.SIGUSR1)
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
            # The process may go on to write other things.
            stack_lines = [line for line in decoded if _FRAME.match(line) or _THREAD.search(line)]
            if stack_lines and not lines:
                end, pause = time.monotonic() + _TELLS, _PAUSE
            lines += stack_lines
        return Stacks(lines)

    def kill(self) -> None:
        """End the process and all that it has started, at once."""
        self.killed = self.killed or self.alive
        self._process.kill()
        for pid in _marked(self._mark):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def close(self, patience: float = _ENDS) -> None:
        """Close the pipe; kill the process and all that it has started if it does not end within `patience` seconds."""
        try:
            # The process may have ended before it read our last message.
            with suppress(BrokenPipeError):
                self._stdin.close()
            if self._process.wait(timeout=patience):
                # A process that was killed could not end what it had started.
                self.kill()
        except subprocess.TimeoutExpired:
            self.kill()
        except BaseException:
            # The user has pressed Ctrl-C again: leave little time.
            try:
                self._process.wait(timeout=_HURRIES)
            except subprocess.TimeoutExpired:
                self.kill()
            raise
        finally:
            # A process that waits in the kernel ends when the kernel releases it.
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=_ENDS)
            for output in self._outputs:
                output.close()
            self._stderr = None


class Stacks:
    """The stacks of a process's threads, made of faulthandler's lines.

    Attributes:
        place: the innermost frame of the main thread, as in `in f (file.py, line 3)`; empty if it was not reported.
        text: the stacks, the main thread's first, no longer than a screen; empty where there are none.
    """

    def __init__(self, lines: Sequence[str]) -> None:
        threads: list[list[str]] = []
        for line in lines:
            if not _FRAME.match(line):
                threads.append([])
            elif threads:
                threads[-1].append(line)
        # faulthandler lists the newest thread first.
        *others, main = threads or [[]]
        frame = _FRAME.match(main[0]) if main else None
        self.place = f"in {frame['function']} ({frame['file']}, line {frame['line']})" if frame else ""
        told = ["Main thread (most recent call first):", *main[:_FRAMES]] if main else []
        for other in others:
            told += ["Another thread (most recent call first):", *other[:_FRAMES]]
        self.text = "\n".join(told)[:_STACKS]


def _message(line: bytes) -> dict[str, Any]:
    try:
        message = json.loads(line)
    except ValueError:
        message = None
    if not isinstance(message, dict):
        text = line.decode(errors="replace")
        raise GarbledError(repr(text if len(text) <= _QUOTED else f"{text[:_QUOTED]}..."))
    # A message holds variables and paths as they are, and these may not be UTF-8.
    return storable(message) if b"\\ud" in line else message


def _marked(mark: str) -> list[int]:
    """The living processes that carry this variable; none on a system without /proc."""
    pids = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        # The process may have ended, or belong to another user.
        with suppress(OSError):
            if mark.encode() in environ.read_bytes().split(b"\0"):
                pids.append(int(environ.parent.name))
    return pids
