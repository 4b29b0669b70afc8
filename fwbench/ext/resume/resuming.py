"""`--fwbench-resume`: takes measurements from a journal, and names and refuses those made under other conditions."""

import functools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fwbench.errors import UserError
from fwbench.ext.resume import conditions, kept
from fwbench.gates import Gate
from fwbench.machine import Machine
from fwbench.models.project import Project
from fwbench.plugin.session import RESUME, Asked, Resumed, shortest
from fwbench.record import journal
from fwbench.record.measurement import Measurement
from fwbench.record.reading import each, read
from fwbench.record.workload import Workload
from fwbench.suite.profiles import Protocol
from fwbench.suite.selection import Selection
from fwbench.text import storable
from fwbench.worker.process.witness import present

# The most differences of a run that are told one by one.
_MOST = 3


def begin(
    selection: Selection,
    machine: Machine,
    project: Project,
    asked: Asked,
    storage: Path,
    plugins: Iterable[object],
    named: str | bool | None,
    duet: Gate | None,
) -> tuple[dict[str, Any], Resumed | None]:
    """The conditions of a run, for its journal's header, and what the run takes from another journal.

    Args:
        storage: the folder of records.
        plugins: pytest's.
        named: the value of `--fwbench-resume`; None: nothing is taken.
        duet: as for `resume`.

    Raises:
        UserError: the option leads to no journal, or to one whose conditions let nothing be taken.
    """
    workloads = [workload for workload, _ in asked.values()]
    now = conditions.conditions(selection, machine, project, workloads, storage, plugins)
    if duet:
        compared = dict(duet.against or {})
        if python := compared.get("interpreter"):
            compared["installed"] = conditions.interpreter(python)
        now[journal.AGAINST] = storable(compared)
    if named is None:
        return now, None
    if named == "":
        raise UserError(f"{RESUME} names no journal: leave out the = for the newest one.")
    return now, resume(named, storage, now, asked, project.root, duet)


def resume(
    named: str | bool, storage: Path, now: Mapping[str, Any], asked: Asked, root: Path, duet: Gate | None = None
) -> Resumed:
    """Find what a run may take from a journal.

    Args:
        named: a journal's path; True: the newest one in the storage.
        now: this run's conditions.
        duet: the gate that goes on with a duet's pairs; None: measurements are taken.

    Raises:
        UserError: the path leads to no journal, or to one whose conditions let nothing be taken.
    """
    path = journal.newest(storage / "journal", bool(duet)) if named is True else Path(str(named))
    if path is None:
        return Resumed([f"{RESUME}: there is no journal{' of a duet' * bool(duet)} yet, so everything is measured"])
    try:
        return _taken(path, now, asked, root, duet)
    except OSError as error:
        raise UserError(
            f"{RESUME}: {path} cannot be read ({error.strerror}): name one of {storage / 'journal'}, or none for the "
            "newest."
        ) from None
    except UserError as error:
        refusal = str(error)
    except (AttributeError, KeyError, TypeError):
        refusal = "its first line is damaged, or of another version of fwbench"
    if named is not True:
        raise UserError(
            f"{RESUME}: nothing can be taken from {path}: {refusal}. Leave the option out to measure everything."
        )
    return Resumed([f"nothing is taken from {shortest(path)}: {refusal}"])


def _taken(path: Path, now: Mapping[str, Any], asked: Asked, root: Path, duet: Gate | None) -> Resumed:
    """The records that this run takes from a journal; a UserError says why it takes none."""
    then = journal.header(path)
    if not then:
        raise UserError("it is no journal of fwbench")
    if (journal.AGAINST in then) is not bool(duet):
        raise UserError(f"it is {'no' if duet else 'a'} duet's")
    differences = [*conditions.of_run(then, now)]
    if duet:
        # A duet's benchmarks are decided together.
        workloads = (workload for workload, _ in asked.values())
        differences += [why for workload in workloads for why in conditions.of_workload(then, now, workload)]
        if then[journal.AGAINST] != now[journal.AGAINST]:
            differences.append("compared with something else then")
    if reasons := list(dict.fromkeys(differences)):
        more = f"; and {len(reasons) - _MOST} more differences" if len(reasons) > _MOST else ""
        raise UserError("; ".join(reasons[:_MOST]) + more)
    if duet:
        return _pairs(path, duet)
    return _measurements(path, then, now, asked, functools.cache(lambda name: present(str(root / name))))


def _pairs(path: Path, duet: Gate) -> Resumed:
    def take(record: Any) -> bool:
        # A duet makes its measurements from its pairs, so only pairs are taken.
        return not (isinstance(record, Mapping) and "metrics" in record) and duet.take(*kept.pair(record))

    whole, _ = journal.lines(journal.text(path))
    records, damaged = each(whole[1:], lambda record: (record, take(record)))
    pairs = [record for record, is_another in records if is_another]
    count = f"{len(pairs)} pair{'s' * (len(pairs) != 1)} taken from {shortest(path)}"
    return Resumed([count, *(f"left out: {each.fault}" for each in damaged)], pairs=pairs)


def _measurements(
    path: Path, then: Mapping[str, Any], now: Mapping[str, Any], asked: Asked, here: Callable[[str], str | None]
) -> Resumed:
    record = read(path)
    made: dict[Workload, list[Measurement]] = defaultdict(list)
    for measurement in record.measurements:
        made[measurement.asked].append(measurement)
    taken: dict[str, Measurement] = {}
    left: Counter[str] = Counter()
    for test, (workload, protocol) in asked.items():
        # Several tests of one workload take its measurements in their order.
        earlier = made[workload].pop(0) if made[workload] else None
        if why := _refusal(earlier, protocol, then, now, here):
            left[why] += 1
        elif earlier:
            taken[test] = replace(earlier, turns=())
    lanes = {m.workload for m in taken.values()}
    rounds = [each for each in record.rounds if all(replace(each.workload, lane=lane) in lanes for lane in each.turns)]
    count = f"{len(taken)} of {len(asked)} benchmark{'s' * (len(asked) > 1)} taken from {shortest(path)}"
    rest = ", ".join(f"{number} ({why})" for why, number in left.items())
    return Resumed([f"{count}{'; measured: ' * bool(rest)}{rest}", *record.notes], taken, rounds, left=left)


def _refusal(
    earlier: Measurement | None,
    protocol: Protocol,
    then: Mapping[str, Any],
    now: Mapping[str, Any],
    here: Callable[[str], str | None],
) -> str:
    """The reason why a measurement is not taken; empty if this run would measure the same."""
    if earlier is None:
        return "not measured then"
    if earlier.failure:
        return f"{earlier.failure.kind} then, and what failed is measured again"
    if earlier.duet:
        return "measured in a duet then"
    unlike = (
        *conditions.differences(earlier.protocol, protocol.to_json()),
        *conditions.of_workload(then, now, earlier.asked),
        # Files may have changed between the start of that run and the measurement that read them.
        *conditions.changed(earlier.sources, here),
    )
    return "; ".join(unlike)
