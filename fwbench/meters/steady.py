"""The start: the time for which a user waits until calls take their lasting time.

    |<-- compile -->|<-- call -->|<-- call -->|<- call ->|<- call ->|<- call ->| ...
                                              |<-- steady: three in a row
    |<--------------- time_to_steady ------------------->|

Frameworks divide this time differently: one tunes and records while it compiles, another in its first calls.
"""

import itertools
import statistics
from collections.abc import Sequence

from fwbench.frameworks.contract import CompileTimes, Program
from fwbench.meters.latency import MAX_ROUNDS, Clock
from fwbench.record.measurement import Metric, unavailable

# A steady call takes at most `_FACTOR` times the median of the latency pass. So must `_IN_A_ROW` calls in a row: a call
# before a CUDA graph is recorded may be fast, too.
_FACTOR = 2.0
_IN_A_ROW = 3


class Start:
    """Compiles a program and makes its first calls one by one; the time between them does not count."""

    def __init__(self, program: Program, clock: Clock) -> None:
        self._program = program
        self._clock = clock
        self._compiling = 0.0
        self._calls: list[float] = []
        # Number of the last call that compiled something, from 0; -1: none did.
        self._last_compiling = -1

    def compile(self) -> CompileTimes:
        """Compile the program."""
        begun = self._clock()
        times = self._program.compile()
        self._compiling = self._clock() - begun if times.total is None else times.total
        return times

    def call(self) -> float:
        """Make a call and wait for it; return the seconds that it took."""
        before = self._program.compilations()
        begun = self._clock()
        self._program.step()
        self._program.wait()
        seconds = self._clock() - begun
        if self._program.compilations() != before:
            self._last_compiling = len(self._calls)
        # A program of microseconds makes a million calls a second and is steady long before; the rest are not stored.
        if len(self._calls) < MAX_ROUNDS:
            self._calls.append(seconds)
        return seconds

    def time_to_steady(self, passes: Sequence[Sequence[float]]) -> Metric:
        """Seconds from the start of compiling to the end of the first steady call.

        A call is steady if it and the next two take at most twice the median latency, and neither they nor any later
        call before the latency pass compile anything. The latency passes, seconds of calls in order, follow the calls
        made here; the last pass gives the median.
        """
        limit = _FACTOR * statistics.median(passes[-1])
        calls = self._calls if len(self._calls) == MAX_ROUNDS else [*self._calls, *itertools.chain(*passes)]
        for first in range(self._last_compiling + 1, len(calls) - _IN_A_ROW + 1):
            if max(calls[first : first + _IN_A_ROW]) <= limit:
                source = f"compiling and {first + 1} calls, cold caches, fresh process"
                return Metric(self._compiling + sum(calls[: first + 1]), source)
        reason = f"no {_IN_A_ROW} calls in a row took at most {_FACTOR:g} times the median: look for other load"
        return unavailable("compiling and first calls, cold caches, fresh process", reason)
