"""A worker's measurement as pytest-benchmark has it: its samples are replayed as a benchmark's rounds."""

import itertools
from typing import Any

from fwbench.record.measurement import Measurement
from fwbench.record.workload import Workload


class ReplayClock:
    """A timer that shows the time it was last set to, so that pytest-benchmark reads a worker's samples exactly."""

    __name__ = "fwbench_worker"

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def group(workload: Workload) -> str:
    """Lanes of one model, mode and size side by side in pytest-benchmark's table."""
    sizes = (f"{axis}{size}" for axis, size in workload.axes)
    devices = (f"d{workload.devices}",) if workload.devices > 1 else ()
    return " ".join((workload.model, workload.mode, f"b{workload.batch_size}", *sizes, *devices))


def rename(benchmark: Any, measurement: Measurement) -> None:
    """Call a benchmark what it is where its batch was too large, so that nothing takes it for the larger one."""
    asked, found = measurement.asked, measurement.workload
    if asked == found:
        return
    for name in ("name", "fullname", "param"):
        setattr(benchmark, name, getattr(benchmark, name).replace(asked.id, found.id))
    if benchmark.group == group(asked):
        benchmark.group = group(found)
    # Under its own name where the test has a parameter of that one.
    ours = next(name for name in ("fwbench_batch_size", "batch_size") if name in benchmark.params)
    benchmark.params = {**benchmark.params, ours: found.batch_size}


def replay(measurement: Measurement, benchmark: Any, clock: ReplayClock) -> None:
    """Make the samples (s) the rounds of a benchmark whose timer is this clock."""
    # Cycled, because cProfile makes a call more than there are rounds.
    samples = itertools.cycle(measurement.samples)

    def reset() -> None:
        clock.now = 0.0

    def show() -> None:
        clock.now = next(samples)

    benchmark.pedantic(show, setup=reset, rounds=len(measurement.samples))


def extra_info(measurement: Measurement) -> dict[str, Any]:
    """What is stored beside the rounds: all the rest of the record of a measurement that did not fail."""
    record = measurement.to_json()
    del record["samples"], record["failure"]
    return record
