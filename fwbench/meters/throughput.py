"""Throughput: samples per second when calls are enqueued back to back and waited for once."""

import math

from fwbench.frameworks.contract import Program
from fwbench.meters.latency import Clock
from fwbench.record.measurement import Metric

# Enough to keep any device's queue full; more would only hold more outputs.
_MOST_CALLS = 1000


def throughput(program: Program, batch_size: int, latency: float, window: float, clock: Clock) -> Metric:
    """Pipeline k calls and wait once, over and over until the window is full.

    Args:
        program: compiled and warm.
        batch_size: samples per call.
        latency: of one call in seconds, from which k is chosen so that one run of k calls fills the window.
        window: seconds to measure for, at least; at least k calls are made in any case.
        clock: seconds.

    Returns:
        Samples per second.
    """
    step, wait = program.step, program.wait
    calls = min(_MOST_CALLS, max(2, math.ceil(window / max(latency, 1e-9))))
    done = 0
    start = clock()
    while True:
        for _ in range(calls):
            step()
        wait()
        done += calls
        elapsed = clock() - start
        if elapsed >= window:
            return Metric(done * batch_size / elapsed, f"{done} calls, one wait every {calls}")
