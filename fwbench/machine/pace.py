"""The time in which two CPUs hand a number to each other, which shows where the host of a virtual machine put them.

A host moves them now and then, for tenths of seconds to minutes, to cores that share less cache or that others use.
A program with a thread on each then takes longer, one framework's program more so than another's (docs/method.md, "Slow
spells").
"""

import contextlib
import mmap
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

# Each reading is the fastest of this many batches of this many hand-overs there and back, a quarter of a millisecond in
# all. Further hand-overs before them wake the other CPU.
_BATCHES, _HANDED = 4, 50
_AWAKENING = 50
# The most looks at the number until it has come back: a tenth of a second.
_LOOKS = 1_000_000

# The program on the other CPU. Between readings it waits for a byte, without using its CPU.
_OTHER = """
import mmap, os, sys
file, cpu, turns = map(int, sys.argv[1:])
os.sched_setaffinity(0, {cpu})
memory = mmap.mmap(file, 1)
while os.read(0, 1):
    for turn in range(turns):
        asked = 2 * turn % 256 + 1
        for _ in range(1_000_000):
            if memory[0] == asked:
                break
        memory[0] = (asked + 1) % 256
"""


class Pace:
    """Measures how fast the first two of these CPUs hand a number to each other, within its context.

    If a process cannot choose its CPU, or has only one, nothing is measured. The process on the other CPU ends with
    this one.
    """

    def __init__(self, cpus: Sequence[int]) -> None:
        self._cpus = list(cpus[:2]) if hasattr(os, "sched_setaffinity") and len(cpus) > 1 else []
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> "Pace":
        if self._cpus:
            try:
                self._start()
            except OSError:  # no room, or no further process or descriptor: nothing depends on it
                self._stack.close()
                self._cpus = []
        return self

    def _start(self) -> None:
        file = self._stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 (closed with the stack)
        file.write(b"\0")
        file.flush()
        self._memory = self._stack.enter_context(mmap.mmap(file.fileno(), 1))
        turns = _AWAKENING + _BATCHES * _HANDED
        self._other = self._stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _OTHER, *map(str, (file.fileno(), self._cpus[1], turns))],
                stdin=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                pass_fds=[file.fileno()],
                bufsize=0,
                # The terminal's Ctrl-C is not for it.
                start_new_session=True,
            )
        )
        self._stack.callback(self._other.kill)

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def read(self) -> float | None:
        """Seconds of a hand-over there and back; None if they cannot be measured."""
        if not self._cpus:
            return None
        own = os.sched_getaffinity(0)
        try:
            os.sched_setaffinity(0, self._cpus[:1])
            assert self._other.stdin
            self._other.stdin.write(b"\n")
            self._hand(0, _AWAKENING)
            return min(self._hand(_AWAKENING + batch * _HANDED, _HANDED) for batch in range(_BATCHES)) / _HANDED
        except (OSError, TimeoutError):
            self._cpus = []
            return None
        finally:
            os.sched_setaffinity(0, own)

    def _hand(self, first: int, count: int) -> float:
        memory, begun = self._memory, time.perf_counter()
        for turn in range(first, first + count):
            asked = 2 * turn % 256 + 1
            memory[0] = asked
            answer = (asked + 1) % 256
            for _ in range(_LOOKS):
                if memory[0] == answer:
                    break
            else:
                raise TimeoutError
        return time.perf_counter() - begun
