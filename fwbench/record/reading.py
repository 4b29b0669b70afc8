"""The one door to records: what a run of the suite has left on disk, checked before anything is made of it.

A record is a file of pytest-benchmark's (ours, or anybody's without our `extra_info`) or a journal. No framework is
imported.
"""

import dataclasses
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fwbench.errors import UserError
from fwbench.record.journal import SCHEMA
from fwbench.record.machine import Machine
from fwbench.record.measurement import Measurement
from fwbench.record.metrics import METRICS
from fwbench.record.workload import Workload

STORAGE = Path(".benchmarks")

# Where `fwbench selftest` keeps this machine's suites, which are no run.
SELFTEST = STORAGE / "selftest.jsonl"

# Where `fwbench prove` keeps the proofs of the project's models, which are none either.
PROOFS = STORAGE / "proofs"

# Where a repository may keep what its gates compare with; the newest run is never one of these.
BASELINES = STORAGE / "baselines"


_FIELDS = frozenset(field.name for field in dataclasses.fields(Measurement))

# Times, sizes and rates; energy less its idle share can be below zero, and so can a loss.
_NEVER_NEGATIVE = ("s", "B", "1/s")


@dataclass(frozen=True)
class Plain:
    """A benchmark that fwbench did not measure: somebody's function under pytest-benchmark.

    Attributes:
        samples: seconds of each round; empty where the file was saved without them.
        stats: pytest-benchmark's own (`median`, `mean`, `stddev`, `rounds`, ...), times in seconds.
    """

    fullname: str
    group: str | None
    samples: tuple[float, ...]
    stats: Mapping[str, Any]


@dataclass(frozen=True)
class Record:
    """What one run has left.

    Attributes:
        made: when it was saved, in UTC; of a journal, when the run began.
        schema: of fwbench's records; None in a file without any.
        commit: `id`, `branch`, `dirty`, ... of the tree that was measured; empty in a journal.
        machine: the fingerprint; None in a file that fwbench's plugin had no part in.
        machine_info: all that pytest-benchmark knows of the machine; empty in a journal.
        profile: of the measurements; None without any.
        measurements: in the order of measuring, failures included.
        names: full names of the tests that measured them; of a journal none.
        plain: benchmarks without a workload, by full name.
        notes: what a reader must know of the file itself.
    """

    path: Path
    made: datetime
    schema: int | None = None
    commit: Mapping[str, Any] = field(default_factory=dict)
    machine: Machine | None = None
    machine_info: Mapping[str, Any] = field(default_factory=dict)
    profile: str | None = None
    measurements: tuple[Measurement, ...] = ()
    names: Mapping[Workload, str] = field(default_factory=dict)
    plain: Mapping[str, Plain] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def read(path: Path) -> Record:
    """Read a record.

    Args:
        path: a file that pytest-benchmark saved, a journal (`.jsonl`), or a storage folder, whose newest run is read.

    Raises:
        UserError: nothing there, not readable, or no record; one sentence names the file and the fault.
    """
    if path.is_dir():
        found = runs(path)
        if not found:
            raise UserError(
                f"{path} holds no records: `pytest --benchmark-only --benchmark-autosave` makes one, or name a file"
            )
        path = found[-1]
    text = _text(path)
    return _journal(path, text) if path.suffix == ".jsonl" else _saved(path, text)


def runs(folder: Path) -> list[Path]:
    """The records in a storage folder and below it, oldest first by their own time, which a copy of a file keeps.

    A run that was saved is also in a journal, which is older than the file, for that is written at the run's end.
    """
    files = [
        path
        for pattern in ("*.json", "*.jsonl")
        for path in folder.rglob(pattern)
        if path.is_file()
        and path.name != SELFTEST.name
        and path.relative_to(folder).parent.name not in (PROOFS.name, BASELINES.name)
    ]
    return sorted(files, key=lambda path: (_made(path), path.name))


# As pytest-benchmark writes the time of a run; a journal begins with its own.
_TIMES = {".json": re.compile(rb'"datetime": ?"([^"]*)"'), ".jsonl": re.compile(rb'\A\{[^\n]*?"started": ?"([^"]*)"')}


def _made(path: Path) -> datetime:
    """When a run was made, found without reading all of its numbers; the file's own date where it does not tell."""
    try:
        found = set(_TIMES[path.suffix].findall(path.read_bytes()))
        # A test may have put a time of its own beside the run's.
        return _time(path, found.pop().decode() if len(found) == 1 else json.loads(_text(path))["datetime"])
    except (OSError, ValueError, KeyError, TypeError, UserError):
        return datetime.fromtimestamp(path.stat().st_mtime, UTC)


def series(folder: Path, journals: bool = False) -> tuple[list[Record], list[str]]:
    """All runs in a storage folder, oldest first by their own times, and a sentence on each that cannot be read.

    Args:
        journals: also those that are in a journal alone; a run that was saved then comes twice.
    """
    records, faults = [], []
    for path in runs(folder):
        if journals or path.suffix != ".jsonl":
            try:
                records.append(read(path))
            except UserError as error:
                faults.append(f"left out of the series: {error}")
    return sorted(records, key=lambda record: record.made), faults


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"{path} does not exist: name a record or a storage folder such as {STORAGE}") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}): check its permissions") from None
    except UnicodeDecodeError:
        raise UserError(f"{path} is not text, so it is no record: name a JSON file or a journal") from None


def _saved(path: Path, text: str) -> Record:
    data = _object(path, text)
    benchmarks, machine_info = data.get("benchmarks"), data.get("machine_info")
    if not isinstance(benchmarks, list) or not isinstance(machine_info, dict):
        raise UserError(f"{path} is JSON, but no record of pytest-benchmark: it has no `benchmarks` and `machine_info`")
    ours = data.get("fwbench", {})
    if not isinstance(ours, dict):
        raise UserError(f"{path} is damaged: its `fwbench` is not an object")
    measurements: list[Measurement] = []
    names: dict[Workload, str] = {}
    plain: dict[str, Plain] = {}
    notes: list[str] = []
    for number, benchmark in enumerate(benchmarks, 1):
        where = f"{path}, benchmark {number}"
        _expect(isinstance(benchmark, dict) and isinstance(benchmark.get("stats"), dict), where, "has no statistics")
        extra, stats = benchmark.get("extra_info") or {}, benchmark["stats"]
        if isinstance(extra, dict) and "workload" in extra and "metrics" in extra:
            # Whoever writes a test may put keys of their own beside ours.
            ours_alone = {name: value for name, value in extra.items() if name in _FIELDS}
            measurements.append(_measurement({**ours_alone, "samples": stats.get("data", ())}, where))
            names[measurements[-1].workload] = _name(benchmark, where)
        elif _is_not_finite(stats):
            notes.append(f"{_name(benchmark, where)} is left out, as its statistics hold NaN or infinity")
        else:
            plain[_name(benchmark, where)] = _plain(benchmark, where)
    # Written before files said their schema: the first one.
    schema = _schema(path, ours.get("schema", SCHEMA)) if ours or measurements else None
    failures = ours.get("failures", [])
    _expect(isinstance(failures, list), str(path), "its `failures` are not a list")
    measurements += [_measurement(failure, f"{path}, failure {n}") for n, failure in enumerate(failures, 1)]
    commit = data.get("commit_info")
    if measurements and "failures" not in ours:
        notes.append("saved before files kept failures: what failed stands in the run's journal")
    return Record(
        path=path,
        made=_time(path, data.get("datetime")),
        schema=schema,
        commit=commit if isinstance(commit, dict) else {},
        machine=_machine(path, machine_info["fwbench"]) if "fwbench" in machine_info else None,
        machine_info=machine_info,
        profile=_profile(measurements),
        measurements=tuple(measurements),
        names=names,
        plain=plain,
        notes=tuple(notes),
    )


def _journal(path: Path, text: str) -> Record:
    first, _, rest = text.partition("\n")
    header = _object(path, first)
    if "schema" not in header or "started" not in header:
        raise UserError(f"{path} is no journal of fwbench: its first line has no `schema` and `started`")
    schema = _schema(path, header["schema"])
    lines, notes = rest.split("\n"), []
    if lines.pop():
        notes.append("the last line is cut off: the run was killed while writing it, and that measurement is lost")
    return Record(
        path=path,
        made=_time(path, header["started"]),
        schema=schema,
        machine=_machine(path, header.get("machine")),
        profile=header.get("profile") if isinstance(header.get("profile"), str) else None,
        measurements=_newest(
            _measurement(_object(path, line, number), f"{path}, line {number}") for number, line in enumerate(lines, 2)
        ),
        notes=tuple(notes),
    )


def _newest(lines: Iterable[Measurement]) -> tuple[Measurement, ...]:
    """A journal's measurements; one that was made again, as the first had been disturbed, in the place of the first."""
    found: list[Measurement] = []
    for line in lines:
        attempts = [line.samples, *(tuple(attempt["samples"]) for attempt in line.attempts)] if line.attempts else []
        place = next((n for n, m in enumerate(found) if m.workload == line.workload and m.samples in attempts), None)
        if place is None:
            found.append(line)
        else:
            found[place] = line
    return tuple(found)


def _object(path: Path, text: str, line: int = 1) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        at, what = (error.lineno, error.msg) if isinstance(error, json.JSONDecodeError) else (1, "nested too deeply")
        raise UserError(
            f"{path} is not JSON (line {line + at - 1}: {what}): it is damaged, or another kind of file"
        ) from None
    if not isinstance(data, dict):
        raise UserError(f"{path} is JSON, but no record: it holds a {type(data).__name__}, not an object")
    return data


def _schema(path: Path, schema: object) -> int:
    if schema != SCHEMA or isinstance(schema, bool):
        raise UserError(
            f"{path} has schema {schema!r}, and this fwbench reads schema {SCHEMA}: use the fwbench that wrote it, "
            "or measure again"
        )
    return SCHEMA


def _measurement(data: object, where: str) -> Measurement:
    try:
        if not isinstance(data, dict):
            raise TypeError("it is not an object")
        measurement = Measurement.from_json(data)
        _check(measurement)
    except KeyError as error:
        raise UserError(f"{where}: damaged measurement: it has no {error}") from None
    except (AttributeError, TypeError, ValueError) as error:
        raise UserError(f"{where}: damaged measurement, or one of another version of fwbench: {error}") from None
    return measurement


def _check(measurement: Measurement) -> None:
    """What a dataclass does not look at: whoever reads a record may rely on its types."""
    for name in ("lane", "model", "mode", "data", "variant"):
        if not isinstance(getattr(measurement.workload, name), str):
            raise TypeError(f"the workload's {name} is not text")
    if not isinstance(measurement.workload.target, str | None):
        raise TypeError("the workload's target is not text")
    for axis, size in measurement.workload.axes:
        if isinstance(size, bool) or not isinstance(size, int):
            raise TypeError(f"the workload's axis {axis} is not a whole number")
    for batch in measurement.unfit:
        dataclasses.replace(measurement.workload, batch_size=batch)  # which refuses what is no batch size
    for name, metric in measurement.metrics.items():
        if metric.value is not None:
            _numbers((metric.value,), f"metric {name}")
            if metric.value < 0 and name in METRICS and METRICS[name].unit in _NEVER_NEGATIVE:
                raise ValueError(f"metric {name}: {metric.value!r} is below 0")
        if not isinstance(metric.source, str):
            raise TypeError(f"metric {name} has no source")
    _numbers(measurement.samples, "samples")
    if min(measurement.samples, default=0.0) < 0:
        raise ValueError(f"samples: {min(measurement.samples)!r} is below 0")
    throughput = measurement.value("throughput")
    if throughput is not None and throughput <= 0:
        raise ValueError(f"metric throughput: {throughput!r} is not above 0")
    for number, process in enumerate(measurement.processes, 1):
        if not isinstance(process, Mapping):
            raise TypeError(f"process {number} is not an object")
        _numbers(tuple(process.values()), f"process {number}")
        for value in process.values():
            if value <= 0:
                raise ValueError(f"process {number}: {value!r} is not above 0")
    for name in ("protocol", "settings", "parity", "training", "stages", "versions"):
        if not isinstance(getattr(measurement, name), Mapping):
            raise TypeError(f"{name} is not an object")
    proof = measurement.parity.get("proof") or {}
    for of in (proof, *(proof.get(name, {}) for name in ("errors", "versions") if isinstance(proof, Mapping))):
        if not isinstance(of, Mapping):
            raise TypeError("what it says of a proof is not an object")
    probe = measurement.parity.get("probe") or {}
    if not isinstance(probe, Mapping) or not all(isinstance(found, Mapping) for found in probe.values()):
        raise TypeError("what it says of the precision probe is not an object")
    if not isinstance(measurement.settings.get("cpus", []), Sequence):
        raise TypeError("the setting cpus is not a list")
    for moment in measurement.accelerator:
        state = moment.state
        if not all(isinstance(text, str) for text in (moment.when, *(state.throttle_reasons or ()))):
            raise TypeError("what it says of the accelerator is not text")
        numbers = (state.clock, state.temperature, state.power_limit, state.utilisation, state.used_memory)
        _numbers([number for number in numbers if number is not None], f"the accelerator {moment.when}")
    training = measurement.training
    for curve in ("losses", "accuracies"):
        _numbers(training.get(curve, ()), curve)
    for epoch in training.get("epochs", ()):
        scores = epoch.get("validation") or {}
        parts = {name: value for name, value in epoch.items() if name != "validation"}
        _numbers([value for value in (*parts.values(), *scores.values()) if value is not None], "epochs")
        _numbers([epoch["seconds"]], "an epoch's seconds")


def _is_not_finite(stats: Mapping[str, Any]) -> bool:
    samples = stats.get("data")
    values = (*stats.values(), *(samples if isinstance(samples, list) else ()))
    return any(isinstance(value, float) and not math.isfinite(value) for value in values)


def _plain(benchmark: Mapping[str, Any], where: str) -> Plain:
    stats = {key: value for key, value in benchmark["stats"].items() if key != "data"}
    samples = benchmark["stats"].get("data") or ()
    try:
        _numbers(samples, "samples")
        _numbers([stats[key] for key in ("median", "mean", "stddev", "rounds")], "its statistics")
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{where}: damaged statistics: {error}") from None
    return Plain(_name(benchmark, where), benchmark.get("group"), tuple(samples), stats)


def _name(benchmark: Mapping[str, Any], where: str) -> str:
    name = benchmark.get("fullname", benchmark.get("name"))
    _expect(isinstance(name, str), where, "has no name")
    return str(name)


def _numbers(values: Sequence[object], what: str) -> None:
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError(f"{what}: {value!r} is not a finite number")


def _machine(path: Path, data: object) -> Machine:
    try:
        if not isinstance(data, dict):
            raise TypeError
        fields = {name: value for name, value in data.items() if name != "versions"}
        return Machine(**{**fields, "cpus": tuple(fields["cpus"])})
    except (KeyError, TypeError):
        raise UserError(f"{path} has no fingerprint of the machine that this fwbench knows: measure again") from None


def _profile(measurements: Sequence[Measurement]) -> str | None:
    return next((profile for m in measurements if (profile := m.protocol.get("profile"))), None)


def _time(path: Path, text: object) -> datetime:
    try:
        made = datetime.fromisoformat(str(text))
    except ValueError:
        raise UserError(f"{path} is damaged: its time {text!r} is none") from None
    # Older pytest-benchmarks leave out that it is UTC.
    return (made if made.tzinfo else made.replace(tzinfo=UTC)).astimezone(UTC)


def _expect(condition: bool, where: str, fault: str) -> None:
    if not condition:
        raise UserError(f"{where}: damaged: {fault}")
