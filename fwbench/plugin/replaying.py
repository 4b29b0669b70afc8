"""A worker's measurement in pytest-benchmark: its samples are replayed as a benchmark's rounds."""

import itertools
from typing import Any

import pytest

from fwbench.record.measurement import Measurement
from fwbench.record.workload import Workload

_CLOCK = pytest.StashKey["ReplayClock"]()


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
    asked, measured = measurement.asked, measurement.workload
    if asked == measured:
        return
    for name in ("name", "fullname", "param"):
        setattr(benchmark, name, getattr(benchmark, name).replace(asked.id, measured.id))
    if benchmark.group == group(asked):
        benchmark.group = group(measured)
    # fwbench's parameter has the longer name if the test has a `batch_size` of its own.
    ours = next(name for name in ("fwbench_batch_size", "batch_size") if name in benchmark.params)
    benchmark.params = {**benchmark.params, ours: measured.batch_size}


def equip(item: pytest.Item, workload: Workload) -> None:
    """Give a test the clock by which its workload's samples are replayed, and its place in pytest-benchmark's table."""
    clock = item.stash[_CLOCK] = ReplayClock()
    # pytest-benchmark reads only the closest marker, so this one repeats what the test's own says.
    marker = item.get_closest_marker("benchmark")
    kwargs = {"group": group(workload), **(marker.kwargs if marker else {}), "timer": clock}
    item.add_marker(pytest.mark.benchmark(**kwargs), append=False)


def replay(measurement: Measurement, item: pytest.Item, benchmark: Any) -> None:
    """Replay the samples (s) as the rounds of the test's benchmark, and store the rest of the record beside them."""
    rename(benchmark, measurement)
    benchmark.extra_info.update(extra_info(measurement))
    clock = item.stash[_CLOCK]
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
