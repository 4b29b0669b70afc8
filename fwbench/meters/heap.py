"""A heap that still grows: measurements made meanwhile show no steady state."""

import dataclasses
import resource
from collections.abc import Callable
from typing import Any

from fwbench.frameworks.contract import Program
from fwbench.meters.latency import Clock
from fwbench.record.measurement import Metric

# Most repeats of a pass: a program that maps fresh memory at every call never settles.
PASSES = 4

# Page faults that may be ignored, per second and in all: 20 MiB of fresh memory, and 1 MiB. A page took 6 us on a
# virtual machine, so 5,000 of them take 3 % of a second.
_FAULTS, _FEW = 5000, 256


def page_faults() -> int:
    """Pages that this process has been given so far and had to wait for."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def settle(program: Program, measure: Callable[[], Any], clock: Clock, faults: Callable[[], int] = page_faults) -> int:
    """Measure, and measure again if the process grew meanwhile.

    XLA takes a call's buffer on a CPU when the call is enqueued, and gives it back some time after its result is ready,
    so that a process holds several. glibc may not find the next one's place in what the last one left, either: it cuts
    an aligned block out of a larger one, and the few bytes that remain lie in a thread's cache, so that the two do not
    become one again. The heap grows by up to six buffers before it grows no more, and half a gigabyte of fresh memory
    can take as long as the call that computes in it.

    Args:
        program: compiled and warm.
        measure: a pass, of which the last one counts.
        clock: seconds.
        faults: page faults of this process so far.

    Returns:
        How many passes were made.
    """
    passes = 0
    grown = True
    while grown and passes < PASSES:
        before, begun = faults(), clock()
        measure()
        passes += 1
        grown = bool(program.agree(faults() - before > max(_FEW, _FAULTS * (clock() - begun))))
    return passes


def noted(metric: Metric, passes: int) -> Metric:
    """The metric; its source says how many passes were made if there was more than one."""
    if passes == 1:
        return metric
    return dataclasses.replace(metric, source=f"{metric.source}, pass {passes}, as memory grew before")
