"""`--fwbench-resume`: which measurements a run takes from the journal of an unfinished run, and why not the others."""

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from fwbench.errors import UserError
from fwbench.gates import Gate
from fwbench.gates.options import refuse_idle
from fwbench.plugin import conditions
from fwbench.plugin.session import unkept
from fwbench.record import journal
from fwbench.record.journal import Journal
from fwbench.record.measurement import Measurement
from fwbench.record.reading import each, read
from fwbench.record.storage import DUETS, Damaged
from fwbench.record.workload import Workload
from fwbench.suite.profiles import Protocol
from fwbench.text import storable
from fwbench.worker.texts import present

OPTION = "--fwbench-resume"

# Workloads by test.
Asked = Mapping[str, tuple[Workload, Protocol]]


@dataclass(frozen=True)
class Resumed:
    """The measurements that a run takes from a journal.

    Attributes:
        path: of the journal; None: there is none.
        asked: the workloads of this run, by test.
        taken: measurements, by test.
        left: how many others are not taken, by reason.
        differences: why no measurement is taken, a phrase each.
        notes: facts about the journal itself.
    """

    path: Path | None
    asked: Asked
    taken: Mapping[str, Measurement] = field(default_factory=dict)
    left: Mapping[str, int] = field(default_factory=dict)
    differences: Sequence[str] = ()
    notes: Sequence[str] = ()

    def by_workload(self) -> dict[tuple[Workload, Protocol], list[Measurement]]:
        """The measurements that are taken, by workload; several tests of one workload keep their order."""
        taken: dict[tuple[Workload, Protocol], list[Measurement]] = {}
        for test, measurement in self.taken.items():
            taken.setdefault(self.asked[test], []).append(measurement)
        return taken

    def lines(self) -> list[str]:
        """Lines for the terminal: how many are taken from which journal, and why not the others."""
        count = f"{len(self.taken)} of {len(self.asked)} benchmark{'s' * (len(self.asked) > 1)}"
        left = ", ".join(f"{number} ({why})" for why, number in self.left.items())
        line = _line("journal", self.path, count, self.differences)
        return [f"{line}; measured: {left}" if left else line, *self.notes]


def refuse(config: pytest.Config) -> None:
    """See whether this run could resume another one at all.

    Raises:
        pytest.UsageError: it measures nothing, runs in parallel, or is given no journal's name; one sentence.
    """
    named = config.getoption("fwbench_resume")
    if named is None:
        return
    arguments = (str(argument).partition("=") for argument in config.invocation_params.args)
    names = [name for option, _, name in arguments if option == OPTION and name]
    if names and named is True:
        raise pytest.UsageError(
            f"{OPTION}: {names[-1]} is no journal of fwbench: name a file, or leave out the = for the newest."
        )
    refuse_idle(config, OPTION, "go on with")


def go_on(
    named: str | bool | None, storage: Path, now: Mapping[str, Any], asked: Asked, gate: Gate
) -> tuple[Journal, list[str]]:
    """Let a gate go on with its records of an earlier run, and keep this run's in a new journal.

    Args:
        named: a journal's path; True: the newest of a duet in the storage; None: the run begins anew.
        now, asked: as `resume` has them.

    Returns:
        The new journal, and lines for the terminal.

    Raises:
        pytest.UsageError: the path leads to no journal of such a run, or to one of which nothing could be taken.
    """
    against = dict(gate.against or {})
    if python := against.get("interpreter"):
        against["installed"] = conditions.interpreter(python)
    now = {**now, "against": storable(against)}
    pairs = Journal(storage / DUETS.name, now)

    def keep(record: Mapping[str, Any]) -> None:
        try:
            pairs.append(record)
        except OSError as error:
            raise UserError(unkept(error)) from None

    gate.keep(keep)
    path = None if named is None else _path(named, storage / DUETS.name)
    records: list[Mapping[str, Any]] = []
    differences, damaged = [], list[Damaged]()
    if path:
        try:
            whole, _ = journal.lines(journal.text(path))
            differences = _apart(journal.header(path), now, asked)
        except (OSError, AttributeError, KeyError, TypeError) as error:
            raise pytest.UsageError(
                f"{OPTION}: {path} is no journal of a duet ({error}): leave the option out."
            ) from None
        if not differences:
            read, damaged = each(whole[1:], lambda record: (record, gate.take(record)))
            records = [record for record, is_another in read if is_another]
    _refuse_useless(named, path, differences)
    if records:
        pairs.begin(records)
    count = f"{len(records)} pair{'s' * (len(records) != 1)}"
    told = [_line("journal of a duet", path, count, differences), *(f"left out: {each.fault}" for each in damaged)]
    return pairs, [] if named is None else told


def _apart(then: Mapping[str, Any], now: Mapping[str, Any], asked: Asked) -> list[str]:
    """How the conditions of a duet's journal differ from this run's.

    Raises:
        AttributeError, KeyError, TypeError: they are not those of such a journal.
    """
    differences = list(conditions.of_run(then, now))
    differences += [why for workload, _ in asked.values() for why in conditions.of_workload(then, now, workload)]
    if then["against"] != now["against"]:
        differences.append("compared with something else then")
    return list(dict.fromkeys(differences))


def resume(named: str | bool, storage: Path, now: Mapping[str, Any], asked: Asked, root: Path) -> Resumed:
    """Find the measurements that a run may take.

    Args:
        named: a journal's path; True: the newest one in the storage.
        now: this run's conditions.
        root: the project's folder.
        asked: what it is to measure, in its order.

    Raises:
        pytest.UsageError: the path leads to no journal, or to one of which nothing could be taken, whatever it holds.
    """
    path = _path(named, storage / "journal")
    if path is None:
        return Resumed(None, asked)
    try:
        resumed = _taken(path, now, asked, root)
    except OSError as error:
        raise pytest.UsageError(
            f"{OPTION}: {path} cannot be read ({error.strerror}): name one of {storage / 'journal'}, or none for the "
            "newest."
        ) from None
    except UserError as error:
        resumed = Resumed(path, asked, differences=[str(error)])
    except (AttributeError, KeyError, TypeError):
        resumed = Resumed(path, asked, differences=["its first line is damaged, or of another version of fwbench"])
    _refuse_useless(named, path, resumed.differences)
    return resumed


def _taken(path: Path, now: Mapping[str, Any], asked: Asked, root: Path) -> Resumed:
    """The measurements that a run may take from a journal.

    Raises:
        OSError: it cannot be read.
        UserError: it is none.
    """
    header = journal.header(path)
    if not header:
        raise UserError("it is no journal of fwbench")
    record = read(path)
    unwritten = "it was made by an fwbench that did not yet write down the code and the versions"
    if differences := list(conditions.of_run(header, now)) if "code" in header else [unwritten]:
        return Resumed(path, asked, differences=differences, notes=record.notes)
    here = functools.cache(functools.partial(present, root))
    taken: dict[str, Measurement] = {}
    left: Counter[str] = Counter()
    for test, measurement in _matched(record.measurements, asked):
        workload, protocol = asked[test]
        why = "not measured then"
        if measurement:
            why = "; ".join(_unlike(measurement, protocol, header, now, workload, here))
        if why:
            left[why] += 1
        elif measurement:
            taken[test] = measurement
    return Resumed(path, asked, taken, left, notes=record.notes)


def _matched(measurements: Sequence[Measurement], asked: Asked) -> Iterator[tuple[str, Measurement | None]]:
    """Each test with the journal's measurement of its workload; of several, the last in their order."""
    of_workload: dict[Workload, list[Measurement]] = {}
    for measurement in measurements:
        of_workload.setdefault(measurement.asked, []).append(measurement)
    tests = Counter(workload for workload, _ in asked.values())
    left = {workload: iter(made[-tests[workload] :]) for workload, made in of_workload.items() if tests[workload]}
    for test, (workload, _) in asked.items():
        yield test, next(left.get(workload, iter(())), None)


def _unlike(
    earlier: Measurement,
    protocol: Protocol,
    then: Mapping[str, Any],
    now: Mapping[str, Any],
    workload: Workload,
    here: Callable[[str], str | None],
) -> Iterator[str]:
    """Why a measurement differs from what this run would make."""
    if earlier.failure:
        yield f"{earlier.failure.kind} then, and what failed is measured again"
        return
    if earlier.duet:
        yield "measured in a duet then"
        return
    yield from conditions.differences(earlier.protocol, protocol.to_json())
    yield from conditions.of_workload(then, now, workload)
    # What it has read may not be what was there when its run began.
    yield from (f"{name} has changed" for name, read in earlier.sources.items() if here(name) != read)


def _path(named: str | bool, folder: Path) -> Path | None:
    if named == "":
        raise pytest.UsageError(f"{OPTION} names no journal: leave out the = for the newest one.")
    return journal.newest(folder) if named is True else Path(str(named))


def _refuse_useless(named: str | bool | None, path: Path | None, differences: Sequence[str]) -> None:
    """Refuse a journal that somebody has named and of which nothing can be taken."""
    if differences and named is not True:
        raise pytest.UsageError(
            f"{OPTION}: nothing can be taken from {path}: {_few(differences)}. Leave the option out to measure "
            "everything."
        )


def _line(kind: str, path: Path | None, count: str, differences: Sequence[str]) -> str:
    """How much is taken from a journal of this kind, or why nothing is."""
    if path is None:
        return f"{OPTION}: there is no {kind} yet, so everything is measured"
    return (
        f"nothing is taken from {shortest(path)}: {_few(differences)}"
        if differences
        else f"{count} taken from {shortest(path)}"
    )


def _few(phrases: Sequence[str], most: int = 3) -> str:
    more = f"; and {len(phrases) - most} more differences" if len(phrases) > most else ""
    return "; ".join(phrases[:most]) + more


def shortest(path: Path) -> str:
    """The shortest path to it from here."""
    resolved, here = path.resolve(), Path.cwd()
    return str(resolved.relative_to(here)) if resolved.is_relative_to(here) else str(path)
