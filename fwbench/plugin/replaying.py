"""A worker's measurement in pytest-benchmark: its samples become a benchmark's rounds."""

from collections.abc import Iterable
from typing import Any

import pytest
from pytest_benchmark.stats import Stats

from fwbench.record.measurement import Measurement
from fwbench.record.workload import Workload, shown

# Options of pytest-benchmark that ask for its tables, and their defaults.
_ASKING: dict[str, Any] = {"sort": "min", "group_by": "group", "name": "normal"}
_ASKING |= dict.fromkeys(("columns", "time_unit", "cprofile", "compare_fail"), None)
_ASKING |= {"verbose": False, "histogram": [], "compare": []}


def hide(benchmarking: Any, config: pytest.Config, benchmarks: Iterable[Any], gated: bool) -> None:
    """Leave these benchmarks out of pytest-benchmark's tables, unless an option asks for those.

    Our own tables replace them; the factors in pytest-benchmark's consider neither disturbances nor evidence.

    Args:
        gated: whether --benchmark-compare is a gate's option.
    """
    asking = [name for name, usual in _ASKING.items() if config.getoption(f"benchmark_{name}") != usual]
    if config.get_verbosity() > 0 or asking not in ([], ["compare"] if gated else []):
        return
    ours = {benchmark.stats.fullname for benchmark in benchmarks}
    left = ((name, [each for each in of if each["fullname"] not in ours]) for name, of in benchmarking.groups or ())
    benchmarking.groups = [(name, of) for name, of in left if of]


def group(workload: Workload) -> str:
    """Group the lanes of one model, mode and size in pytest-benchmark's table."""
    sizes = (f"{axis}{shown(size)}" for axis, size in workload.axes)
    devices = (f"d{workload.devices}",) if workload.devices > 1 else ()
    return " ".join((workload.model, workload.mode, f"b{workload.batch_size}", *sizes, *devices))


def rename(benchmark: Any, measurement: Measurement) -> None:
    """Name a benchmark after the batch that was measured, if the one asked for was too large."""
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
    """Give a test its workload's place in pytest-benchmark's table."""
    # pytest-benchmark reads only the closest marker, so this one repeats what the test's own says.
    marker = item.get_closest_marker("benchmark")
    kwargs = {"group": group(workload), **(marker.kwargs if marker else {})}
    item.add_marker(pytest.mark.benchmark(**kwargs), append=False)


def replay(measurement: Measurement, benchmark: Any) -> None:
    """Turn a measurement into a benchmark of pytest-benchmark's."""
    rename(benchmark, measurement)
    # A first round gives the fixture its statistics.
    benchmark.pedantic(lambda: None)
    # The samples (s) are its rounds, and the rest of the record stands beside them.
    benchmark.extra_info.update(extra_info(measurement))
    benchmark.stats.stats = stats(measurement.samples)


def stats(samples: Iterable[float]) -> Any:
    """pytest-benchmark's statistics of samples (s)."""
    statistics: Any = Stats()  # type: ignore[no-untyped-call]
    for seconds in samples:
        statistics.update(seconds)
    return statistics


def extra_info(measurement: Measurement) -> dict[str, Any]:
    """The rest of a successful measurement's record, which is stored beside the rounds."""
    record = measurement.to_json()
    del record["samples"], record["failure"]
    return record
