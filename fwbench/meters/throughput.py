"""Throughput: samples per second when calls are enqueued back to back and waited for once."""

import math

from fwbench.frameworks.contract import Program
from fwbench.meters.latency import Clock, Lap
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


def throughput(
    program: Program, batch_size: int, calls: int, window: float, clock: Clock, lap: Lap = lambda calls: None
) -> Metric:
    """Pipeline calls and wait once, over and over until the window is full.

    Args:
        program: compiled and warm.
        batch_size: samples per call.
        calls: enqueued before each wait (`queue_depth`).
        window: seconds to measure for, at least; at least so many calls are made in any case.
        clock: seconds.
        lap: called after each wait.

    Returns:
        Samples per second.
    """
    done, elapsed, _ = queued(program, calls, window, clock, lap)
    return Metric(done * batch_size / elapsed, f"{done} calls, one wait every {calls}")


def queued(
    program: Program, calls: int, window: float, clock: Clock, lap: Lap = lambda calls: None
) -> tuple[int, float, float]:
    """Make calls until the window is full, enqueueing so many before each wait.

    Returns:
        The number of calls; the seconds that the calls took; the seconds from the first call to the end of the last,
        which include the time in which ranks agreed to go on.
    """
    step, wait = program.step, program.wait
    done, elapsed = 0, 0.0
    lap(0)
    begun = clock()
    while True:
        start = clock()
        for _ in range(calls):
            step()
        wait()
        end = clock()
        elapsed += end - start
        done += calls
        lap(calls)
        if program.agree(end - begun >= window):
            return done, elapsed, end - begun
