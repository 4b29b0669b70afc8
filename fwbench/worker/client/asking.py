"""Questions to other interpreters and programs: each has a deadline, and one sentence where there is no answer."""

import os
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from fwbench.errors import UserError
from fwbench.processes import finished
from fwbench.text import line
from fwbench.worker.client.channel import Channel, GarbledError
from fwbench.worker.client.conversation import ended
from fwbench.worker.client.starting import START_DEADLINE

# Seconds for an interpreter to start and to list what it has installed: from a cold disk this takes long.
DEADLINE = START_DEADLINE
# Seconds for a program that downloads: wheels of several gigabytes at a few megabytes a second.
DOWNLOAD_DEADLINE = 3600.0

# Lines of other output that are passed over before the answer.
_OTHERS = 100_000

# By the descriptor, as `sys.stdout` may be replaced, closed or in any encoding.
_ANSWER = """
import json, os
told = ("\\n" + json.dumps({{{key!r}: answer}}) + "\\n").encode()
while told:
    told = told[os.write(1, told):]
"""


class SilentError(UserError):
    """A process that gave no answer before its deadline."""


def ask(python: str, question: str) -> Any:
    """The answer of an interpreter to code that assigns JSON primitives to `answer`, whatever else it prints.

    Raises:
        SilentError: it gave none in time.
        UserError: it is no Python interpreter, or does not run.
    """
    key = uuid.uuid4().hex
    command = [python, "-P", "-c", question + _ANSWER.format(key=key)]
    return answer(command, key, DEADLINE, f"{python} does not say what it has, as a Python interpreter would")[key]


def answer(command: Sequence[str], key: str, deadline: float, unknown: str) -> dict[str, Any]:
    """The first message with this key that a process sends, whatever else it prints.

    Raises:
        SilentError: it sent none within `deadline` seconds.
        UserError: it cannot be started, or ends without one; `unknown` begins the sentence.
    """
    try:
        channel = Channel(command, os.environ)
    except OSError as error:
        raise UserError(f"{unknown}: it cannot be started ({error.strerror})") from None
    with ExitStack() as stack:
        # Once the answer is here, or not wanted any more, the process and all that it has started are killed.
        stack.callback(channel.close, patience=0.0)
        stack.callback(channel.kill)
        end = time.monotonic() + deadline
        for _ in range(_OTHERS):
            try:
                message = channel.receive(end)
            except GarbledError:
                continue
            except TimeoutError:
                place = channel.stacks().place
                raise SilentError(f"{unknown}: no answer within {deadline:g} s{f' {place}' if place else ''}") from None
            if message is None:
                failure = ended(channel, "it")
                last = line(channel.said().strip().rpartition("\n")[2], 300)
                raise UserError(f"{unknown}: {failure.message}{f' ({last})' if last else ''}")
            if key in message:
                return message
        raise UserError(f"{unknown}: it prints more than {_OTHERS} lines of something else")


def run(
    command: Sequence[str], deadline: float, *, given: str = "", environment: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run a program with this standard input and environment (None: this process's); kill it after `deadline` seconds.

    Raises:
        SilentError: it did not end in time.
        OSError: it cannot be started.
    """
    try:
        done = finished(command, deadline, given.encode(), environment)
    except subprocess.TimeoutExpired:
        name = os.path.basename(command[0])
        raise SilentError(f"`{name}` did not end within {deadline:g} s and was killed") from None
    output, said = (stream.decode(errors="replace") for stream in (done.stdout, done.stderr))
    return subprocess.CompletedProcess(command, done.returncode, output, said)
