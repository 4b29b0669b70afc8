"""A process that talks JSON lines over its pipes: how it is started, asked, and ended."""

import json
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

# Of what a process said on standard error, characters that a failure quotes.
_DETAIL = 2000


class Channel:
    """A process in a session of its own, and the conversation with it.

    Raises:
        OSError: the command cannot be started.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the channel)
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                env=dict(environment),
                # Ctrl-C in a terminal goes to every process of the group; the client decides what ends.
                start_new_session=True,
            )
        except OSError:
            self._stderr.close()
            raise
        self._buffer = b""

    @property
    def pid(self) -> int:
        """Of the process, which is also its group's."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it can be asked anything more."""
        return self._process.poll() is None

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message.

        Raises:
            BrokenPipeError: the process has ended.
        """
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()

    def receive(self, deadline: float) -> dict[str, Any] | None:
        """The next message, or None when the process has closed its end.

        Raises:
            TimeoutError: no message came before the deadline (in `time.monotonic` seconds).
        """
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError
            data = os.read(descriptor, 1 << 20)
            if not data:
                return None
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

    def wait(self) -> int:
        """Its exit code, once it has ended."""
        return self._process.wait()

    def said(self, start: int = 0) -> str:
        """The end of what it wrote to standard error since the position `start`."""
        self._stderr.seek(start)
        return self._stderr.read().decode(errors="replace")[-_DETAIL:]

    def position(self) -> int:
        """Where standard error ends at this moment."""
        return os.fstat(self._stderr.fileno()).st_size

    def close(self) -> None:
        """End the process by its closed pipe; by force, with all of its group, where that does not do."""
        if self._process.stdin is not None:
            # It may have ended with a message of ours unread.
            with suppress(BrokenPipeError):
                self._process.stdin.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._stderr.close()


def describe_exit(code: int) -> str:
    """One sentence on how a process ended that had no result yet."""
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        hint = " (perhaps by the kernel, out of memory)" if name == "SIGKILL" else ""
        return f"the worker was killed by {name}{hint}"
    return f"the worker ended with exit code {code} before it had a result"
