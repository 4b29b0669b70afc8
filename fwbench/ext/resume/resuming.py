"""`--fwbench-resume`: takes measurements from a journal, and names and refuses those made under other conditions."""

import functools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from fwbench.record.rounds import PlayedRound
from fwbench.record.workload import Workload
from fwbench.suite.profiles import Protocol
from fwbench.suite.selection import Selection
from fwbench.text import storable
from fwbench.worker.process.witness import present

# The most differences of a run that are told one by one.
_MOST = 3


@dataclass(frozen=True)
class Found:
    """The measurements, rounds or pairs that a run takes from a journal.

    Attributes:
        path: of the journal; None: there is none.
        asked: the workloads of this run, by test.
        duet: the gate that goes on with a duet's pairs; None: measurements are taken.
        taken: measurements, by test.
        rounds: those of lanes whose measurements are all taken.
        pairs: records of a duet.
        left: the number of measurements that are not taken, by reason.
        refusal: the reasons why nothing is taken; empty: something may be.
        notes: facts about the journal itself.
    """

    path: Path | None = None
    asked: Asked = field(default_factory=dict)
    duet: Gate | None = None
    taken: Mapping[str, Measurement] = field(default_factory=dict)
    rounds: Sequence[PlayedRound] = ()
    pairs: Sequence[Mapping[str, Any]] = ()
    left: Mapping[str, int] = field(default_factory=dict)
    refusal: str = ""
    notes: Sequence[str] = ()

    def lines(self) -> list[str]:
        """Lines for the terminal: the journal, the number of records taken, and the reasons against the rest."""
        if self.path is None:
            kind = f"journal{' of a duet' if self.duet else ''}"
            return [f"{RESUME}: there is no {kind} yet, so everything is measured"]
        if self.refusal:
            return [f"nothing is taken from {shortest(self.path)}: {self.refusal}"]
        count = f"{len(self.taken)} of {len(self.asked)} benchmark{'s' * (len(self.asked) > 1)}"
        if self.duet:
            count = f"{len(self.pairs)} pair{'s' * (len(self.pairs) != 1)}"
        left = ", ".join(f"{number} ({why})" for why, number in self.left.items())
        return [f"{count} taken from {shortest(self.path)}{'; measured: ' * bool(left)}{left}", *self.notes]


def begin(
    selection: Selection,
    machine: Machine,
    project: Project,
    asked: Asked,
    storage: Path,
    plugins: Iterable[object],
    named: str | bool | None,
    arguments: Iterable[object],
    duet: Gate | None,
) -> tuple[dict[str, Any], Resumed | None]:
    """The conditions of a run, for its journal's header, and what the run takes from another journal.

    Args:
        storage: the folder of records.
        plugins: pytest's.
        named: the value of `--fwbench-resume`; None: nothing is taken.
        arguments: the words of pytest's command line.
        duet: as for `resume`.

    Raises:
        UserError: the option leads to no journal, or to one whose conditions let nothing be taken.
    """
    workloads = [workload for workload, _ in asked.values()]
    now = conditions.conditions(selection, machine, project, workloads, storage, plugins)
    if duet:
        now[journal.AGAINST] = against(duet)
    if named is None:
        return now, None
    _refuse(named, arguments)
    found = resume(named, storage, now, asked, project.root, duet)
    return now, Resumed(found.lines(), found.taken, found.rounds, found.pairs)


def _refuse(named: str | bool, arguments: Iterable[object]) -> None:
    """Refuse an option that names no journal."""
    words = (str(argument).partition("=") for argument in arguments)
    names = [name for option, _, name in words if option == RESUME and name]
    if names and named is True:
        raise UserError(
            f"{RESUME}: {names[-1]} is no journal of fwbench: name a file, or leave out the = for the newest."
        )
    if named == "":
        raise UserError(f"{RESUME} names no journal: leave out the = for the newest one.")


def against(gate: Gate) -> dict[str, Any]:
    """The base that a duet compares with, for its journal."""
    compared = dict(gate.against or {})
    if python := compared.get("interpreter"):
        compared["installed"] = conditions.interpreter(python)
    stored: dict[str, Any] = storable(compared)
    return stored


def resume(
    named: str | bool, storage: Path, now: Mapping[str, Any], asked: Asked, root: Path, duet: Gate | None = None
) -> Found:
    """Find what a run may take from a journal.

    Args:
        named: a journal's path; True: the newest one in the storage.
        now: this run's conditions.
        duet: the gate that goes on with a duet's pairs; None: measurements are taken.

    Raises:
        UserError: the path leads to no journal, or to one whose conditions let nothing be taken.
    """
    path = journal.newest(storage / "journal", bool(duet)) if named is True else Path(str(named))
    resumed = Found(path, asked, duet)
    if path is None:
        return resumed
    try:
        resumed = _taken(path, now, resumed, root)
    except OSError as error:
        raise UserError(
            f"{RESUME}: {path} cannot be read ({error.strerror}): name one of {storage / 'journal'}, or none for the "
            "newest."
        ) from None
    except UserError as error:
        resumed = replace(resumed, refusal=str(error))
    except (AttributeError, KeyError, TypeError):
        resumed = replace(resumed, refusal="its first line is damaged, or of another version of fwbench")
    if resumed.refusal and named is not True:
        raise UserError(
            f"{RESUME}: nothing can be taken from {path}: {resumed.refusal}. Leave the option out to measure "
            "everything."
        )
    return resumed


def _taken(path: Path, now: Mapping[str, Any], resumed: Found, root: Path) -> Found:
    """Return `resumed` with the records that this run takes from a journal."""
    then = journal.header(path)
    if not then:
        raise UserError("it is no journal of fwbench")
    if (journal.AGAINST in then) is not bool(resumed.duet):
        raise UserError(f"it is {'no' if resumed.duet else 'a'} duet's")
    differences = [*conditions.of_run(then, now)]
    if resumed.duet:
        # A duet's benchmarks are decided together.
        workloads = (workload for workload, _ in resumed.asked.values())
        differences += [why for workload in workloads for why in conditions.of_workload(then, now, workload)]
        if then[journal.AGAINST] != now[journal.AGAINST]:
            differences.append("compared with something else then")
    if reasons := list(dict.fromkeys(differences)):
        more = f"; and {len(reasons) - _MOST} more differences" if len(reasons) > _MOST else ""
        raise UserError("; ".join(reasons[:_MOST]) + more)
    if resumed.duet:
        return _with_pairs(path, resumed, resumed.duet)
    return _with_measurements(path, then, now, resumed, functools.cache(lambda name: present(str(root / name))))


def _with_pairs(path: Path, resumed: Found, duet: Gate) -> Found:
    def take(record: Any) -> bool:
        # A duet makes its measurements from its pairs, so only pairs are taken.
        return not (isinstance(record, Mapping) and "metrics" in record) and duet.take(*kept.pair(record))

    whole, _ = journal.lines(journal.text(path))
    records, damaged = each(whole[1:], lambda record: (record, take(record)))
    pairs = [record for record, is_another in records if is_another]
    return replace(resumed, pairs=pairs, notes=[f"left out: {each.fault}" for each in damaged])


def _with_measurements(
    path: Path, then: Mapping[str, Any], now: Mapping[str, Any], resumed: Found, here: Callable[[str], str | None]
) -> Found:
    record = read(path)
    made: dict[Workload, list[Measurement]] = defaultdict(list)
    for measurement in record.measurements:
        made[measurement.asked].append(measurement)
    taken: dict[str, Measurement] = {}
    left: Counter[str] = Counter()
    for test, (workload, protocol) in resumed.asked.items():
        # Several tests of one workload take its measurements in their order.
        earlier = made[workload].pop(0) if made[workload] else None
        if why := _refusal(earlier, protocol, then, now, here):
            left[why] += 1
        elif earlier:
            taken[test] = replace(earlier, turns=())
    lanes = {m.workload for m in taken.values()}
    rounds = [each for each in record.rounds if all(replace(each.workload, lane=lane) in lanes for lane in each.turns)]
    return replace(resumed, taken=taken, rounds=rounds, left=left, notes=record.notes)


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
