"""`--fwbench-resume`: which measurements a run takes from the journal of an unfinished run, and why not the others."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from fwbench.errors import UserError
from fwbench.gates import Gate
from fwbench.plugin import conditions
from fwbench.plugin.session import unkept
from fwbench.record import journal
from fwbench.record.journal import Journal
from fwbench.record.measurement import Measurement
from fwbench.record.reading import read
from fwbench.record.workload import Workload
from fwbench.suite.profiles import Protocol

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
        if self.path is None:
            return [f"{OPTION}: there is no journal yet, so everything is measured"]
        if self.differences:
            return [f"nothing is taken from {_shown(self.path)}: {_few(self.differences)}", *self.notes]
        count = f"{len(self.taken)} of {len(self.asked)} benchmark{'s' * (len(self.asked) > 1)}"
        left = ", ".join(f"{number} ({why})" for why, number in self.left.items())
        return [f"{count} taken from {_shown(self.path)}{f'; measured: {left}' if left else ''}", *self.notes]


def refuse(config: pytest.Config) -> None:
    """See whether this run could resume another one at all.

    Raises:
        pytest.UsageError: it measures nothing, runs in parallel, or is given no journal's name; one sentence.
    """
    asked = config.getoption("fwbench_resume")
    if asked is None:
        return
    arguments = (str(argument).partition("=") for argument in config.invocation_params.args)
    named = [name for option, _, name in arguments if option == OPTION and name]
    if named and asked is True:
        raise pytest.UsageError(
            f"{OPTION}: {named[-1]} is no journal of fwbench: name a file, or leave out the = for the newest."
        )
    for option in ("disable", "skip"):
        if config.getoption(f"benchmark_{option}"):
            raise pytest.UsageError(
                f"--benchmark-{option} measures nothing that {OPTION} could go on with: leave it out."
            )
    if config.getoption("dist", "no") != "no":
        raise pytest.UsageError(
            f"{OPTION} cannot work with -n/--dist: benchmarks do not run in parallel; leave out -n."
        )


def go_on(
    named: str | bool | None, storage: Path, now: Mapping[str, Any], asked: Asked, gate: Gate
) -> tuple[Journal, list[str]]:
    """Let a gate go on with its records of an earlier run, and keep this run's in a new journal.

    Args:
        named: a journal's path; True: the newest of `duets` in the storage; None: the run begins anew.
        now, asked: as `resume` has them.

    Returns:
        The new journal, and lines for the terminal.

    Raises:
        pytest.UsageError: the path leads to no journal of such a run, or to one of which nothing could be taken.
    """
    against = dict(gate.against or {})
    if python := against.get("interpreter"):
        against["installed"] = conditions.interpreter(python)
    now = json.loads(json.dumps({**now, "against": against}))
    kept = Journal(storage / "duets", now)

    def keep(record: Mapping[str, Any]) -> None:
        try:
            kept.append(record)
        except OSError as error:
            raise UserError(unkept(error)) from None

    path = Path(str(named)) if isinstance(named, str) else journal.newest(storage / "duets") if named else None
    records: list[dict[str, Any]] = []
    differences: list[str] = []
    try:
        if path:
            records, differences = _kept(path, now, asked)
        gate.go_on(records, keep)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise pytest.UsageError(f"{OPTION}: {path} is no journal of a duet ({error}): leave the option out.") from None
    if differences and named is not True:
        raise pytest.UsageError(f"{OPTION}: nothing can be taken from {path}: {_few(differences)}. Leave it out.")
    if records:
        kept.begin(records)
    if not path:
        return kept, [f"{OPTION}: there is no journal of a duet yet, so everything is measured"] if named else []
    if differences:
        return kept, [f"nothing is taken from {_shown(path)}: {_few(differences)}"]
    return kept, [f"{len(records)} pair{'s' * (len(records) != 1)} taken from {_shown(path)}"]


def _kept(path: Path, now: Mapping[str, Any], asked: Asked) -> tuple[list[dict[str, Any]], list[str]]:
    """The records of a gate's journal, none if its conditions differ; and how they differ.

    Raises:
        OSError, ValueError, KeyError, TypeError: it cannot be read, or is no such journal.
    """
    then = journal.header(path)
    differences = list(conditions.of_run(then, now))
    differences += [why for workload, _ in asked.values() for why in conditions.of_workload(then, now, workload)]
    if then["against"] != now["against"]:
        differences.append("compared with something else then")
    lines, _ = journal.lines(path.read_text(encoding="utf-8"))
    return [] if differences else [json.loads(text) for text in lines[1:]], list(dict.fromkeys(differences))


def resume(named: str | bool, storage: Path, now: Mapping[str, Any], asked: Asked) -> Resumed:
    """Find the measurements that a run may take.

    Args:
        named: a journal's path; True: the newest one in the storage.
        now: this run's conditions.
        asked: what it is to measure, in its order.

    Raises:
        pytest.UsageError: the path leads to no journal, or to one of which nothing could be taken, whatever it holds.
    """
    if named == "":
        raise pytest.UsageError(f"{OPTION} names no journal: leave out the = for the newest one.")
    path = journal.newest(storage / "journal") if named is True else Path(str(named))
    if path is None:
        return Resumed(None, asked)
    try:
        found = _taken(path, now, asked)
    except OSError as error:
        raise pytest.UsageError(
            f"{OPTION}: {path} cannot be read ({error.strerror}): name one of {storage / 'journal'}, or none for the "
            "newest."
        ) from None
    except UserError as error:
        found = Resumed(path, asked, differences=[str(error)])
    except (AttributeError, KeyError, TypeError):
        found = Resumed(path, asked, differences=["its first line is damaged, or of another version of fwbench"])
    if found.differences and named is not True:
        raise pytest.UsageError(
            f"{OPTION}: nothing can be taken from {path}: {_few(found.differences)}. Leave the option out to measure "
            "everything."
        )
    return found


def _taken(path: Path, now: Mapping[str, Any], asked: Asked) -> Resumed:
    """The measurements that a run may take from a journal.

    Raises:
        OSError: it cannot be read.
        UserError: it is none.
    """
    header = journal.header(path)
    if not header:
        raise UserError("it is no journal of fwbench")
    record = read(path)
    if "code" not in header:
        differences = ["it was made by an fwbench that did not yet write down the code and the versions"]
    else:
        differences = list(conditions.of_run(header, now))
    if differences:
        return Resumed(path, asked, differences=differences, notes=record.notes)
    taken: dict[str, Measurement] = {}
    left: Counter[str] = Counter()
    for test, measurement in _matched(record.measurements, asked):
        workload, protocol = asked[test]
        why = "not measured then"
        if measurement:
            why = "; ".join(_unlike(measurement, protocol, header, now, workload))
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
    left = {workload: iter(found[-tests[workload] :]) for workload, found in of_workload.items() if tests[workload]}
    for test, (workload, _) in asked.items():
        yield test, next(left.get(workload, iter(())), None)


def _unlike(
    found: Measurement, protocol: Protocol, then: Mapping[str, Any], now: Mapping[str, Any], workload: Workload
) -> Iterator[str]:
    """Why a measurement differs from what this run would make."""
    if found.failure:
        yield f"{found.failure.kind} then, and what failed is measured again"
        return
    if found.duet:
        yield "measured in a duet then"
        return
    wanted = protocol.to_json()
    for name in sorted(wanted.keys() | found.protocol.keys()):
        if wanted.get(name) != found.protocol.get(name):
            yield f"{name} {found.protocol.get(name)} then, {wanted.get(name)} now"
    yield from conditions.of_workload(then, now, workload)


def _few(phrases: Sequence[str], most: int = 3) -> str:
    more = f"; and {len(phrases) - most} more differences" if len(phrases) > most else ""
    return "; ".join(phrases[:most]) + more


def _shown(path: Path) -> str:
    """The shortest path to it from here."""
    resolved, here = path.resolve(), Path.cwd()
    return str(resolved.relative_to(here)) if resolved.is_relative_to(here) else str(path)
