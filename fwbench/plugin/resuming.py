"""`--fwbench-resume`: which measurements a run takes from the journal of an unfinished run, and why not the others."""

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from fwbench.errors import UserError
from fwbench.gates import Gate
from fwbench.gates.options import refuse_idle
from fwbench.plugin import conditions
from fwbench.record import journal
from fwbench.record.measurement import Measurement
from fwbench.record.reading import each, read
from fwbench.record.rounds import PlayedRound
from fwbench.record.storage import Damaged
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
        rounds: that were played by measurements all of which are taken.
        left: how many others are not taken, by reason.
        differences: why no measurement is taken, a phrase each.
        notes: facts about the journal itself.
    """

    path: Path | None
    asked: Asked
    taken: Mapping[str, Measurement] = field(default_factory=dict)
    rounds: Sequence[PlayedRound] = ()
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


def against(gate: Gate) -> dict[str, Any]:
    """What a duet compares with, for its journal."""
    compared = dict(gate.against or {})
    if python := compared.get("interpreter"):
        compared["installed"] = conditions.interpreter(python)
    stored: dict[str, Any] = storable(compared)
    return stored


def go_on(
    named: str | bool, storage: Path, now: Mapping[str, Any], asked: Asked, gate: Gate
) -> tuple[list[Mapping[str, Any]], list[str]]:
    """Let a gate go on with the pairs of an earlier run.

    Args:
        named: a journal's path; True: the newest of a duet in the storage.
        now, asked: as `resume` has them.

    Returns:
        The pairs' records, and lines for the terminal.

    Raises:
        pytest.UsageError: the path leads to no journal of such a run, or to one of which nothing could be taken.
    """

    def take(record: Any) -> bool:
        # Its measurements are made of its pairs.
        return not (isinstance(record, Mapping) and "metrics" in record) and gate.take(record)

    path = _path(named, storage, duet=True)
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
            read, damaged = each(whole[1:], lambda record: (record, take(record)))
            records = [record for record, is_another in read if is_another]
    _refuse_useless(named, path, differences)
    count = f"{len(records)} pair{'s' * (len(records) != 1)}"
    told = [_line("journal of a duet", path, count, differences), *(f"left out: {each.fault}" for each in damaged)]
    return records, told


def _apart(then: Mapping[str, Any], now: Mapping[str, Any], asked: Asked) -> list[str]:
    """How the conditions of a duet's journal differ from this run's.

    Raises:
        AttributeError, KeyError, TypeError: they are not those of such a journal.
    """
    differences = list(conditions.of_run(then, now))
    differences += [why for workload, _ in asked.values() for why in conditions.of_workload(then, now, workload)]
    if then[journal.AGAINST] != now[journal.AGAINST]:
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
    path = _path(named, storage)
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
    if journal.AGAINST in header:
        raise UserError("it is a duet's")
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
            taken[test] = replace(measurement, turns=())
    lanes = {m.workload for m in taken.values()}
    rounds = [each for each in record.rounds if all(replace(each.workload, lane=lane) in lanes for lane in each.turns)]
    return Resumed(path, asked, taken, rounds, left, notes=record.notes)


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


def _path(named: str | bool, storage: Path, duet: bool = False) -> Path | None:
    if named == "":
        raise pytest.UsageError(f"{OPTION} names no journal: leave out the = for the newest one.")
    return journal.newest(storage / "journal", duet) if named is True else Path(str(named))


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
