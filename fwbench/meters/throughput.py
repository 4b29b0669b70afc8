"""Throughput: samples per second when calls are enqueued back to back and waited for once."""

import math

from fwbench.frameworks.contract import Program
from fwbench.meters.latency import Clock
from fwbench.record.measurement import Metric

# Enough to fill any device's queue; more would only hold more outputs.
_MOST_CALLS = 1000


def queue_depth(latency: float, window: float) -> int:
    """How many calls to enqueue before waiting, so that they fill the window.

    Args:
        latency: of one call in seconds.
        window: seconds.
    """
    return min(_MOST_CALLS, max(2, math.ceil(window / max(latency, 1e-9))))


def throughput(program: Program, batch_size: int, calls: int, window: float, clock: Clock) -> Metric:
    """Pipeline calls and wait once, over and over until the window is full.

    Args:
        program: compiled and warm.
        batch_size: samples per call.
        calls: enqueued before each wait (`queue_depth`).
        window: seconds to measure for, at least; at least so many calls are made in any case.
        clock: seconds.

    Returns:
        Samples per second.
    """
    step, wait = program.step, program.wait
    done, elapsed = 0, 0.0
    begun = clock()
    while True:
        start = clock()
        for _ in range(calls):
            step()
        wait()
        elapsed += clock() - start
        done += calls
        # Ranks' agreement is not timed, but the window includes it.
        if program.agree(clock() - begun >= window):
            return Metric(done * batch_size / elapsed, f"{done} calls, one wait every {calls}")
