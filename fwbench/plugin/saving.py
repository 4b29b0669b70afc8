"""Writes pytest-benchmark's own files of a run whole or not at all, with fwbench's fingerprint of the machine.

pytest-benchmark writes when the run is over, over an older file and under a number that it has just counted: a full
disk leaves half a file and a traceback, and two runs that end together can take one name. In a run that fwbench
measures, both of its writing functions are replaced here; the contents stay its own.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pytest_benchmark.storage.file import FileStorage
from pytest_benchmark.utils import safe_dumps

from fwbench.machine import Machine, versions
from fwbench.record import files
from fwbench.record.lanes import LANES
from fwbench.text import storable


def take_over(benchmarking: Any, failed: Callable[[str], None]) -> None:
    """Make pytest-benchmark's session write through `fwbench.record.files`; `failed` takes a sentence on a fault."""

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
