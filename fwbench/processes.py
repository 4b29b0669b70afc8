"""Runs a program to its end, or to its deadline, at which all that it has started ends, too."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress


def finished(
    command: Sequence[str], deadline: float, given: bytes = b"", environment: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[bytes]":
    """Run a program in a session of its own: it cannot ask for a password, and its children can be killed with it.

    Children that outlive a program which ends by itself are left alone, as Git starts some for its next commands, such
    as `git fsmonitor--daemon`.

    Args:
        deadline: seconds after which it is killed.
        given: its standard input.
        environment: its environment; None: this process's.

    Raises:
        OSError: the program cannot be started.
        subprocess.TimeoutExpired: it did not end in time.
    """
    pipe = subprocess.PIPE
    started = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment, start_new_session=True)
    with started as process:
        try:
            output, said = process.communicate(given, timeout=deadline)
        except BaseException:
            # The program's children may outlive it.
            if sys.platform != "win32":
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, output, said)
