"""`--fwbench-resume`: which measurements a run takes from the journal of an unfinished run, and why not the others."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from fwbench.errors import UserError
from fwbench.plugin import conditions
from fwbench.record import journal
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
        left: the reasons why others are not taken, with their number.
        differences: the reasons why none is taken, a phrase each.
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
        pytest.UsageError: it measures nothing, or nothing that a journal could hold; one sentence.
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
    if config.getoption("fwbench_against") is not None:
        raise pytest.UsageError(
            f"{OPTION} cannot work with --fwbench-against: a duet measures both sides by turns, so half of one cannot "
            "be kept. Leave one of them out."
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
    """Each test with the journal's measurement of its workload; if there are several, the last ones in their order."""
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
