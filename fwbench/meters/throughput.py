"""Throughput: samples per second when calls are enqueued back to back and waited for once."""

import math
from typing import NamedTuple

from fwbench.frameworks.contract import Program
from fwbench.meters.latency import Clock, Lap
from fwbench.record.measurement import Metric

# Most calls between two waits: enough to fill any device's queue; more would only hold more outputs.
_MOST_CALLS = 1000


def queue_depth(latency: float, window: float) -> int:
    """The number of calls of `latency` seconds to enqueue before a wait, so that they fill the window, in seconds."""
    return min(_MOST_CALLS, max(2, math.ceil(window / max(latency, 1e-9))))


class Queued(NamedTuple):
    """Calls that were pipelined.

    Attributes:
        depth: number of calls enqueued before each wait.
        elapsed: seconds of the calls.
        seconds: from the first call to the end of the last, including the time in which ranks agreed to go on.
    """

    calls: int
    depth: int
    elapsed: float
    seconds: float

    @property
    def told(self) -> str:
        """The calls in words, as a metric's source."""
        return f"{self.calls} calls, one wait every {self.depth}"

    def throughput(self, samples: int) -> Metric:
        """Samples per second, if a call computes so many."""
        return Metric(self.calls * samples / self.elapsed, self.told)


def queued(program: Program, depth: int, window: float, clock: Clock, lap: Lap = lambda calls: None) -> Queued:
    """Pipeline calls and wait once for each `depth` of them, over and over until the window, in seconds, is full."""
    step, wait = program.step, program.wait
    done, elapsed = 0, 0.0
    lap(0)
    begun = clock()
    while True:
        start = clock()
        for _ in range(depth):
            step()
        wait()
        end = clock()
        elapsed += end - start
        done += depth
        lap(depth)
        if program.agree(end - begun >= window):
            return Queued(done, depth, elapsed, end - begun)
