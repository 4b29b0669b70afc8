"""A worker's measurement in pytest-benchmark: its samples are replayed as a benchmark's rounds."""

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
    """Group the lanes of one model, mode and size in pytest-benchmark's table."""
    sizes = (f"{axis}{size}" for axis, size in workload.axes)
    devices = (f"d{workload.devices}",) if workload.devices > 1 else ()
    return " ".join((workload.model, workload.mode, f"b{workload.batch_size}", *sizes, *devices))


def rename(benchmark: Any, measurement: Measurement) -> None:
    """Rename a benchmark whose batch was too large after the batch that was measured, to tell the two apart."""
    asked, found = measurement.asked, measurement.workload
    if asked == found:
        return
    for name in ("name", "fullname", "param"):
        setattr(benchmark, name, getattr(benchmark, name).replace(asked.id, found.id))
    if benchmark.group == group(asked):
        benchmark.group = group(found)
    # fwbench's parameter has the longer name if the test has a `batch_size` of its own.
    ours = next(name for name in ("fwbench_batch_size", "batch_size") if name in benchmark.params)
    benchmark.params = {**benchmark.params, ours: found.batch_size}


def replay(measurement: Measurement, benchmark: Any, clock: ReplayClock) -> None:
    """Replay the samples (s) as the rounds of a benchmark whose timer is this clock."""
    # Cycled, as cProfile makes one call more than there are rounds.
    samples = itertools.cycle(measurement.samples)

    def reset() -> None:
        clock.now = 0.0

    def show() -> None:
        clock.now = next(samples)

    benchmark.pedantic(show, setup=reset, rounds=len(measurement.samples))


def extra_info(measurement: Measurement) -> dict[str, Any]:
    """What is stored beside the rounds: the rest of a successful measurement's record."""
    record = measurement.to_json()
    del record["samples"], record["failure"]
    return record
