"""Reads the records of runs from disk and checks them: the one way to a record's contents.

A record is a file of pytest-benchmark's (ours, or anybody's without our `extra_info`) or a journal. The shape of its
JSON is defined in `fwbench.record.schema`. A damaged benchmark is left out and named, and the others are read; a file
that is no record is refused in one sentence. No framework is imported.
"""

import contextlib
import dataclasses
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from fwbench.errors import UserError
from fwbench.record import bounds, dates, files, schema
from fwbench.record.copies import Copies
from fwbench.record.journal import AGAINST, PAIR, ROUND, SCHEMA, decoded, header, lines
from fwbench.record.machine import Machine
from fwbench.record.measurement import Measurement
from fwbench.record.rounds import PlayedRound, with_rounds
from fwbench.record.storage import BASELINES, PROOFS, SELFTEST, STORAGE, Damaged, Plain, Record
from fwbench.record.workload import Workload
from fwbench.text import line

_Read = TypeVar("_Read")

_FIELDS = frozenset(field.name for field in dataclasses.fields(Measurement))

# The most bytes of a file; a thousand benchmarks with ten thousand rounds each have fewer.
LARGEST = 256 * 2**20
# The most digits of a whole number that stays one. With more it becomes a float, as showing millions of digits could
# take hours.
_DIGITS = 18
# Somebody else's `extra_info` may hold this many of our keys by chance.
_THEIRS = 2
# The most characters of the sentence on a fault.
_LONGEST = 600


def read(path: Path) -> Record:
    """Read a record.

    Args:
        path: a file that pytest-benchmark saved, a journal (`.jsonl`), or a storage folder. In a folder the newest
            saved run is read, or else the newest journal. Duets are passed over: they measure two revisions.

    Raises:
        UserError: there is no file, it cannot be read, or it is no record; one sentence names the file and the fault.
    """
    try:
        is_folder = path.is_dir()
    except OSError as error:
        raise _unreadable(path, error) from None
    if is_folder:
        oldest_first = runs(path)
        for run in sorted(oldest_first, key=lambda run: run.suffix == ".json")[::-1]:
            record = read(run)
            if record.is_duet:
                continue
            newer = oldest_first[oldest_first.index(run) + 1 :]
            return dataclasses.replace(record, notes=(*record.notes, *_unsaved(newer)))
        raise _refused(
            f"{path} holds no records: `pytest --benchmark-only --benchmark-autosave` makes one, or name a file"
        )
    read_from = _journal if path.suffix == ".jsonl" else _saved
    return read_from(path, decoded(_bytes(path)))


def _unsaved(newer: Sequence[Path]) -> list[str]:
    """A note on the newest journal among these records, if there is one; journals of duets do not count."""
    for path in reversed([path for path in newer if path.suffix == ".jsonl"]):
        with contextlib.suppress(UserError):
            if not read(path).is_duet:
                return [f"a newer run was not saved: to read it, name its journal, {path}"]
    return []


def runs(folder: Path) -> list[Path]:
    """The records in a storage folder and below it, oldest first by the time in the record, which a copy keeps.

    A saved run is also in a journal, which is older than the file, as the file is written at the run's end. Copies of
    one file have the same time; the longest comes last, as it holds the most.
    """
    files = [
        path
        for pattern in ("*.json", "*.jsonl")
        for path in folder.rglob(pattern)
        if path.is_file()
        and path.name != SELFTEST.name
        and path.relative_to(folder).parent.name not in (PROOFS.name, BASELINES.name)
    ]
    return sorted(files, key=lambda path: (_made(path), path.stat().st_size, path.name))


# The time of a run in a file of pytest-benchmark's.
_TIME = re.compile(rb'"datetime": ?"([^"]*)"')


def _made(path: Path) -> datetime:
    """The time at which a run was made, found without parsing all of its numbers; the file's date if it has none."""
    try:
        if path.suffix == ".jsonl":
            text = header(path)["started"]
        else:
            times = set(_TIME.findall(data := _bytes(path)))
            # A test may have added a time of its own to the run's.
            text = decoded(times.pop()) if len(times) == 1 else _object(path, decoded(data))["datetime"]
    except (OSError, ValueError, KeyError, UserError):
        text = ""
    return dates.made(text, path)[0]


def series(folder: Path, journals: bool = False) -> tuple[list[Record], list[str]]:
    """All runs in a storage folder, oldest first by their own times, and a sentence on everything that cannot be read.

    Args:
        journals: whether journals are read, too; a saved run then comes twice.
    """
    records, faults = [], []
    for path in runs(folder):
        if journals or path.suffix != ".jsonl":
            try:
                record = read(path)
            except UserError as error:
                faults.append(f"left out of the series: {error}")
            else:
                records.append(record)
                faults += [line(f"{path}: {note}") for note in dataclasses.replace(record, notes=()).told]
    return sorted(records, key=lambda record: record.made), faults


def _bytes(path: Path) -> bytes:
    try:
        return files.read(path, LARGEST)
    except FileNotFoundError:
        raise _refused(f"{path} does not exist: name a record or a storage folder such as {STORAGE}") from None
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None


def _refused(sentence: str) -> UserError:
    """The error for the user, on one line whatever the file and its name hold."""
    return UserError(line(sentence, _LONGEST))


def _unreadable(path: Path, error: Exception) -> UserError:
    why = error.strerror if isinstance(error, OSError) else error
    return _refused(f"{str(path)[:100]} cannot be read ({why}): check its name and its permissions")


def _saved(path: Path, text: str) -> Record:
    data = _object(path, text)
    # The text may be large, and is no longer needed.
    del text
    benchmarks, machine_info = data.get("benchmarks"), data.get("machine_info")
    if not isinstance(benchmarks, list) or not isinstance(machine_info, dict):
        raise _refused(f"{path} is JSON, but no record of pytest-benchmark: it has no `benchmarks` and `machine_info`")
    ours = data.get("fwbench", {})
    failures, told_rounds = (ours.get(name, []) if isinstance(ours, dict) else None for name in ("failures", "rounds"))
    if not isinstance(failures, list) or not isinstance(told_rounds, list):
        raise _refused(f"{path} is damaged: its `fwbench` is not an object with lists of `failures` and `rounds`")
    if "schema" in ours:
        _require_schema(path, ours["schema"])
    measurements: list[Measurement] = []
    names: dict[Workload, str] = {}
    plain: dict[str, list[Plain]] = {}
    damaged: list[Damaged] = []
    for number, benchmark in enumerate(benchmarks, 1):
        extra = benchmark.get("extra_info") if isinstance(benchmark, dict) else None
        is_plain = isinstance(benchmark, dict) and (extra is None or (isinstance(extra, dict) and not _is_ours(extra)))
        try:
            name, stats = _of_benchmark(benchmark)
            if is_plain:
                of_name = plain.setdefault(name, [])
                of_name += [one] if (one := _plain(benchmark, name)) not in of_name else []
            else:
                measurements.append(_measured(extra, stats))
                names[measurements[-1].workload] = name
        except (TypeError, ValueError) as error:
            damaged.append(_left_out(f"benchmark {number}", benchmark, extra, error, is_plain))
    failed, lost = each(failures, _measurement, "failure", 1, lambda one: one)
    rounds, lost_rounds = each(told_rounds, _round, "round", 1, lambda one: one)
    measurements += failed
    damaged += [*lost, *lost_rounds]
    twice = [name for name, of_name in plain.items() if len(of_name) > 1]
    damaged += [Damaged(name, "the file holds it more than once, so nobody can tell which counts") for name in twice]
    commit, notes = _commit(data.get("commit_info"))
    if measurements and "failures" not in ours:
        notes.append("saved before files kept failures: what failed stands in the run's journal")
    made, wrong = dates.made(data.get("datetime"), path)
    return Record(
        path=path,
        made=made,
        commit=commit,
        machine=_machine(path, machine_info["fwbench"]) if "fwbench" in machine_info else None,
        machine_info=machine_info,
        profile=next((profile for m in measurements if (profile := m.protocol.get("profile"))), None),
        measurements=tuple(Copies(with_rounds(measurements, rounds)).kept),
        rounds=tuple(rounds),
        names=names,
        plain={name: of_name[0] for name, of_name in plain.items() if len(of_name) == 1},
        damaged=tuple(damaged),
        notes=tuple(filter(None, (wrong, *notes))),
    )


def _journal(path: Path, text: str) -> Record:
    first, _, rest = text.partition("\n")
    begun = _object(path, first)
    if "schema" not in begun or "started" not in begun:
        raise _refused(f"{path} is no journal of fwbench: its first line has no `schema` and `started`")
    _require_schema(path, begun["schema"])
    whole, is_cut = lines(rest)
    lost = "the last line is cut off: the run was killed while writing it, and what it held is lost"
    made, wrong = dates.made(begun["started"], path)
    kept, damaged = each(whole, _kept)
    measurements = [record for record in kept if isinstance(record, Measurement)]
    rounds = [record for record in kept if isinstance(record, PlayedRound)]
    return Record(
        path=path,
        made=made,
        machine=_machine(path, begun.get("machine")),
        profile=begun.get("profile") if isinstance(begun.get("profile"), str) else None,
        measurements=tuple(Copies(with_rounds(measurements, rounds)).kept),
        rounds=tuple(rounds),
        damaged=tuple(damaged),
        against=begun.get(AGAINST),
        notes=tuple(filter(None, (wrong, lost if is_cut else ""))),
    )


def parsed(text: str) -> Any:
    """Parse JSON, with floats for whole numbers of many digits.

    Raises:
        ValueError: it is no JSON, or too deep; the sentence says where.
    """

    def whole(digits: str) -> float:
        return int(digits) if len(digits) <= _DIGITS else float(digits)

    try:
        return json.loads(text, parse_int=whole)
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON (line {error.lineno}: {error.msg})") from None
    except RecursionError:
        raise ValueError("is not JSON that anybody writes (nested too deeply)") from None


def each(
    given: Iterable[Any],
    read: Callable[[Any], _Read],
    what: str = "line",
    first: int = 2,
    parse: Callable[[Any], Any] = parsed,
) -> tuple[list[_Read], list[Damaged]]:
    """Read the lines of a journal after its header, or another list. Damaged items are left out, and listed apart.

    Args:
        read: makes a record of an item's JSON, or raises a TypeError or ValueError.
        what, first: the name of an item, and the number of the first one.
    """
    made: list[_Read] = []
    damaged: list[Damaged] = []
    for number, one in enumerate(given, first):
        data = None
        try:
            data = parse(one)
            made.append(read(data))
        except (TypeError, ValueError) as error:
            damaged.append(_left_out(f"{what} {number}", None, data, error))
    return made, damaged


def _object(path: Path, text: str) -> dict[str, Any]:
    try:
        data = parsed(text)
    except ValueError as error:
        raise _refused(f"{path} {error}: it is damaged, or another kind of file") from None
    if not isinstance(data, dict):
        raise _refused(f"{path} is JSON, but no record: it holds a {type(data).__name__}, not an object")
    return data


def _require_schema(path: Path, schema: object) -> None:
    if schema != SCHEMA or isinstance(schema, bool):
        raise _refused(
            f"{path} has schema {schema!r:.40}, and this fwbench reads schema {SCHEMA}: use the fwbench that wrote it, "
            "or measure again"
        )


def _is_ours(extra: Mapping[str, Any]) -> bool:
    """True if fwbench wrote this `extra_info`; anybody's may have a key or two of the same name."""
    return {"workload", "metrics"} <= extra.keys() or len(_FIELDS & extra.keys()) > _THEIRS


def _of_benchmark(benchmark: object) -> tuple[str, Mapping[str, Any]]:
    """Full name and statistics of a benchmark in a saved file.

    Raises:
        ValueError: it lacks one of them.
    """
    if not isinstance(benchmark, dict):
        raise ValueError("it is not an object")
    stats = benchmark.get("stats")
    if not isinstance(stats, dict):
        raise ValueError("it has no statistics")
    schema.sound({name: value for name, value in stats.items() if name != "data"}, "its statistics")
    return _name(benchmark), stats


def _name(benchmark: Mapping[str, Any]) -> str:
    name: str = schema.read(benchmark.get("fullname", benchmark.get("name")), bounds.TEXT, "its name")
    return name


def _measured(extra: object, stats: Mapping[str, Any]) -> Measurement:
    if not isinstance(extra, dict):
        raise ValueError("its extra_info is not an object")
    # The author of a test may have added keys to ours.
    ours_alone = {name: value for name, value in extra.items() if name in _FIELDS}
    return _measurement({**ours_alone, "samples": stats.get("data", [])})


def _measurement(data: object) -> Measurement:
    made = Measurement.from_json(schema.measurement(data))
    # It raises a ValueError if nobody could have asked for this batch.
    _ = made.asked
    return made


def _round(data: object) -> PlayedRound:
    return PlayedRound.from_json(schema.read(data, schema.ROUND, "a round"))


def _kept(data: object) -> Measurement | PlayedRound | None:
    """The record in a line of a journal; None for a duet's pair."""
    if isinstance(data, dict) and "metrics" not in data:
        if PAIR in data:
            return None
        if ROUND in data:
            return _round(data[ROUND])
    return _measurement(data)


def _left_out(place: str, benchmark: object, data: object, error: Exception, plain: bool = False) -> Damaged:
    """The entry for a benchmark that cannot be read, under the best name that can."""
    name = place
    if isinstance(benchmark, dict):
        with contextlib.suppress(ValueError):
            name = _name(benchmark)
    if isinstance(data, dict):
        with contextlib.suppress(ValueError):
            name = Workload.from_json(schema.read(data.get("workload"), schema.WORKLOAD, "workload")).id
    return Damaged(name, line(f"{place}: {error}", _LONGEST), plain)


def _plain(benchmark: Mapping[str, Any], name: str) -> Plain:
    stats = schema.shaped(benchmark["stats"], schema.Stats, "its statistics")
    group = benchmark.get("group")
    return Plain(name, group if isinstance(group, str) else None, tuple(stats.pop("data")), stats)


def _commit(data: object) -> tuple[Mapping[str, Any], list[str]]:
    """The commit that a file records, and notes if it is damaged."""
    if data is None:
        return {}, []
    try:
        return schema.read(data, schema.Commit, "commit_info"), []
    except ValueError as error:
        return {}, [line(f"what it tells of the commit is damaged and left out: {error}", _LONGEST)]


def _machine(path: Path, data: object) -> Machine:
    try:
        fields = schema.read(data, schema.MACHINE, "the machine")
    except ValueError as error:
        raise _refused(
            f"{path} has no fingerprint of the machine that this fwbench knows ({error}): measure again"
        ) from None
    return Machine.from_json(fields)
