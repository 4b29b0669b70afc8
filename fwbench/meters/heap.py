"""Passes that are made again: the heap still grew meanwhile, or the process got no CPU for a while."""

import dataclasses
import resource
from collections.abc import Callable

from fwbench.frameworks.contract import Program
from fwbench.meters.latency import Clock
from fwbench.record.measurement import Metric

# Most repeats of a pass: a program that maps fresh memory at every call never settles.
PASSES = 4
_REASONS = ("", "memory grew", "the process got no CPU for a while")

# Page faults that may be ignored, per second and in all: 20 MiB of fresh memory, and 1 MiB. A page took 6 us on a
# virtual machine, so 5,000 of them take 3 % of a second.
_FAULTS, _FEW = 5000, 256


def page_faults() -> int:
    """Pages that this process has been given so far and had to wait for."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def settle(program: Program, measure: Callable[[], bool], clock: Clock, faults: Callable[[], int] = page_faults) -> str:
    """Measure, and measure again if the process grew or stood still meanwhile.

    XLA takes a call's buffer on a CPU when the call is enqueued, and gives it back some time after its result is ready,
    so that a process holds several. glibc may not find the next one's place in what the last one left, either: it cuts
    an aligned block out of a larger one, and the few bytes that remain lie in a thread's cache, so that the two do not
    become one again. The heap grows by up to six buffers before it grows no more, and half a gigabyte of fresh memory
    can take as long as the call that computes in it.

    Args:
        program: compiled and warm.
        measure: a pass, of which the last one counts; returns whether the process stood still in it.
        clock: seconds.
        faults: page faults of this process so far.

    Returns:
        How many passes were made, and why, if there was more than one; else nothing.
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
    """The metric; its source says so if `settle` made more than one pass."""
    return dataclasses.replace(metric, source=f"{metric.source}, {said}") if said else metric
