"""fwbench's part in pytest-benchmark's tables and files: measurements as rounds, and files that are written whole.

pytest-benchmark writes when the run is over, over an older file and under a number that it has just counted: a full
disk leaves half a file and a traceback, and two runs that end together can take one name. In a run that fwbench
measures, both of its writing functions are replaced here; the contents stay its own.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pytest_benchmark.stats import Stats
from pytest_benchmark.storage.file import FileStorage
from pytest_benchmark.utils import safe_dumps

from fwbench.machine import Machine, versions
from fwbench.record import files
from fwbench.record.lanes import LANES
from fwbench.record.measurement import Measurement
from fwbench.record.workload import Workload, shown
from fwbench.text import storable

# Options of pytest-benchmark that ask for its tables, and their defaults.
_ASKING: dict[str, Any] = {"sort": "min", "group_by": "group", "name": "normal"}
_ASKING |= dict.fromkeys(("columns", "time_unit", "cprofile", "compare_fail"), None)
_ASKING |= {"verbose": False, "histogram": [], "compare": []}


def take_over(benchmarking: Any, failed: Callable[[str], None]) -> None:
    """Make pytest-benchmark's session write through `fwbench.record.files`; `failed` gets a sentence on each fault."""

    def save_json(output_json: Mapping[str, Any]) -> None:
        path = Path(benchmarking.json)
        with _reporting(path, "--benchmark-json=FILE", failed):
            files.write(path, _text(output_json))
            benchmarking.logger.info(f"Wrote benchmark data in: {path}", purple=True)

    def save(output_json: Mapping[str, Any], name: str) -> None:
        # Makes the folder; if that fails, writing raises the error.
        folder = storage.get("")
        with _reporting(folder, "--benchmark-storage=DIR", failed):
            while True:
                path = storage.get(f"{storage._next_num}_{name}.json")
                # Another run may have taken this name.
                with contextlib.suppress(FileExistsError):
                    files.create(path, _text(output_json))
                    break
            storage.logger.info(f"Saved benchmark data in: {path}")

    storage: Any = benchmarking.storage
    benchmarking.save_json = save_json
    if isinstance(benchmarking.storage, FileStorage):
        storage.save = save


def describe(machine_info: dict[str, Any], machine: Machine) -> None:
    """Add accelerator, threads and this interpreter's versions; drop the momentary clock rate."""
    of_lanes = versions(name for lane in LANES.values() for name in lane.distributions)
    machine_info["fwbench"] = {**machine.to_json(), "versions": of_lanes}
    for key in ("hz_actual", "hz_actual_friendly"):
        machine_info.get("cpu", {}).pop(key, None)


def _text(output_json: Mapping[str, Any]) -> str:
    dumps: Any = safe_dumps
    return str(dumps(storable(output_json), ensure_ascii=True, indent=4))


@contextlib.contextmanager
def _reporting(path: Path, option: str, failed: Callable[[str], None]) -> Iterator[None]:
    """Report an error of writing instead of raising it."""
    try:
        yield
    except OSError as error:
        failed(f"{error.filename or path} cannot be written ({error.strerror}): free space, or choose another {option}")


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
