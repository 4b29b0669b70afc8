"""Results of asv (airspeed velocity), as records: its times in the place of plain benchmarks.

A results folder holds a folder for each machine, with `machine.json` and a file of version 2 for each commit and
environment. Other units than seconds are left out.
"""

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from fwbench.record import bounds, files, schema
from fwbench.record.journal import decoded
from fwbench.record.reading import LARGEST, parsed
from fwbench.record.storage import Plain, Record
from fwbench.text import line

_MACHINE = "machine.json"


class _Results(msgspec.Struct):
    """The fields that are read from a file of results; `date` is the commit's, in milliseconds."""

    commit_hash: bounds.TEXT
    date: Annotated[float, Meta(ge=0, le=4e12)]
    env_name: bounds.TEXT
    result_columns: list[str]
    results: dict[bounds.TEXT, list[Any] | None]


def holds_results(folder: Path) -> bool:
    """True if the folder is a results folder of asv's."""
    return any(folder.glob(f"*/{_MACHINE}"))


def series(folder: Path) -> tuple[list[Record], list[str]]:
    """All results in a folder, oldest commit first, and a sentence on each file that cannot be read."""
    records, faults = [], []
    for path in sorted(folder.glob("*/*.json")):
        if path.name == _MACHINE:
            continue
        try:
            records.append(_record(path))
        except OSError as error:
            faults.append(line(f"left out of the series: {path} cannot be read ({error.strerror})"))
        except ValueError as error:
            faults.append(line(f"left out of the series: {path} holds no results of asv's, version 2: {error}"))
    return sorted(records, key=lambda record: record.made), faults


def _record(path: Path) -> Record:
    of = schema.shaped(parsed(decoded(files.read(path, LARGEST))), _Results)
    texts = [of["commit_hash"], of["env_name"], *of["results"]]
    schema.sound(texts, "a name")
    made = datetime.fromtimestamp(of["date"] / 1000, UTC)
    rows = {name: dict(zip(of["result_columns"], row, strict=False)) for name, row in of["results"].items() if row}
    commit, machine = {"id": of["commit_hash"]}, {"node": f"{path.parent.name}, {of['env_name']}"}
    plain = {plain.fullname: plain for name, row in rows.items() for plain in _times(name, row)}
    return Record(path=path, made=made, commit=commit, machine_info=machine, plain=plain)


def _times(name: str, row: dict[str, Any]) -> Iterator[Plain]:
    """A benchmark's medians, one for each combination of its parameters, named as asv names them."""
    values, axes = row.get("result"), row.get("params") or []
    if not name.rpartition(".")[2].startswith("time") or not isinstance(values, list) or not isinstance(axes, list):
        return
    combinations = itertools.product(*(axis if isinstance(axis, list) else [] for axis in axes))
    for value, of in zip(values, combinations, strict=False):
        # A combination that failed is null, and one that was skipped is not a number.
        if isinstance(value, int | float) and not isinstance(value, bool) and bounds.LEAST <= value <= bounds.MOST:
            full = f"{name}({', '.join(map(str, of))})" if axes else name
            # Another version means other code of the benchmark, so asv does not compare times of two versions.
            yield Plain(full, None, (), {"median": value, "version": row.get("version")})
