"""The measured side's pipes to pytest's process: standard output carries messages and nothing else.

A server claims them before it imports anything else, so this uses only the standard library.
"""

import json
import os
from collections.abc import Mapping
from typing import Any


class Pipes:
    """Claims this process's standard input and output for messages, each a line of JSON.

    From then on, a library's output goes to standard error, and standard input is empty for all readers. The descriptor
    `incoming` is of the pipe from the client, open for as long as the client lives.
    """

    def __init__(self) -> None:
        self._lines = os.fdopen(os.dup(0), "rb")
        self.incoming = self._lines.fileno()
        self._outgoing = os.dup(1)
        os.dup2(2, 1)
        # Replaced, not closed, or a file that the measured code opens would become its children's standard input.
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message, after an empty line, as a process that shares this pipe may have died within a line.

        A pipe takes at least 512 bytes (`select.PIPE_BUF`) in one write that no other process's write interrupts.
        """
        left = f"\n{json.dumps(message)}\n".encode()
        while left:
            left = left[os.write(self._outgoing, left) :]

    def receive(self) -> dict[str, Any] | None:
        """The client's next message; None when it has closed the pipe."""
        # The client waits for each answer, so nothing is read ahead of a fork.
        line = self._lines.readline()
        return json.loads(line) if line else None
