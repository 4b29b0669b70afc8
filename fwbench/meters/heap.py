"""Repeats of a pass in which the heap still grew, or the process got no CPU for a while."""

import dataclasses
import resource
from collections.abc import Callable

from fwbench.frameworks.contract import Program
from fwbench.meters.latency import Clock
from fwbench.record.measurement import Metric

# Most passes, the first included: a program that maps fresh memory at every call never settles.
PASSES = 4
_REASONS = ("", "memory grew", "the process got no CPU for a while")

# Page faults that may be ignored, per second and in all: 20 MiB of fresh memory, and 1 MiB. A fault took 6 us on a
# virtual machine, so 5,000 faults take 3 % of a second.
_FAULTS, _FEW = 5000, 256


def page_faults() -> int:
    """Minor page faults of this process so far: pages that it was given and had to wait for."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def settle(program: Program, measure: Callable[[], bool], clock: Clock, faults: Callable[[], int] = page_faults) -> str:
    """Measure, and measure again if the process's memory grew meanwhile, or the process got no CPU.

    On a CPU, XLA allocates a call's buffer when the call is enqueued, and frees it some time after the result is ready,
    so a process holds several buffers. glibc may not reuse a freed buffer for the next one, either: it cuts an aligned
    block out of a larger one, and the few bytes that remain lie in a thread's cache, so the two do not merge again. The
    heap grows by up to six buffers before it settles, and half a gigabyte of fresh memory can take as long as the call
    that computes in it.

    The last pass counts; `measure` returns whether the process got no CPU for a while in it. Returns the number of
    passes, and the reason for the last one, in words; empty if there was one pass alone.
    """
    passes, said = 0, ""
    while True:
        before, begun = faults(), clock()
        stood = measure()
        passes += 1
        grown = faults() - before > max(_FEW, _FAULTS * (clock() - begun))
        reason = _REASONS[int(program.agree(1 if grown else 2 if stood else 0))]
        if not reason or passes == PASSES:
            return said
        said = f"pass {passes + 1}, as {reason} before"


def noted(metric: Metric, said: str) -> Metric:
    """The metric, with the words that `settle` returned added to its source."""
    return dataclasses.replace(metric, source=f"{metric.source}, {said}") if said else metric
