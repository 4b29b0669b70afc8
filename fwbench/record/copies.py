"""Finds the copies of one measurement among records, and keeps the copy that holds the most.

The same measurements are in a journal, in the file that is saved at the run's end, in the journal of a run that
continues the run, and in copies of these files. A later copy may hold more: rounds in which lanes took turns, and
attempts that were disturbed more.
"""

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

from fwbench.record.measurement import Measurement


class Copies:
    """Measurements, each only once: its fullest copy, or the last of equally full copies.

    Attributes:
        kept: the measurements, in the order of their first copies.
    """

    def __init__(self, measurements: Iterable[Measurement]) -> None:
        self.kept: list[Measurement] = []
        self._numbers: dict[Hashable, int] = {}
        for m in measurements:
            marks = _marks(m)
            alike = (self._numbers[mark] for mark in marks if mark in self._numbers)
            number = next((place for place in alike if _of_one_program(m, self.kept[place])), len(self.kept))
            if number == len(self.kept) or _fullness(m) >= _fullness(self.kept[number]):
                self.kept[number : number + 1] = [m]
            self._numbers |= dict.fromkeys(marks, number)

    def number(self, m: Measurement) -> int:
        """The index in `kept` of a measurement's copy."""
        return self._numbers[_marks(m)[0]]


def _marks(m: Measurement) -> list[Hashable]:
    """Marks that no two measurements share (stage times and numbers): of this measurement and of each attempt."""
    metrics = {name: {"value": metric.value} for name, metric in m.metrics.items()}
    failure = {"message": m.failure.message} if m.failure else None
    own = {"stages": m.stages, "metrics": metrics, "processes": m.processes, "failure": failure}
    return [_mark(m, attempt) for attempt in (own, *m.attempts)]


def _mark(m: Measurement, attempt: Mapping[str, Any]) -> Hashable:
    return (
        m.asked.anywhere,
        _items(attempt.get("stages", {})),
        _items({name: metric.get("value") for name, metric in attempt.get("metrics", {}).items()}),
        tuple(map(_items, attempt.get("processes", ()))),
        (attempt.get("failure") or {}).get("message"),
    )


def _of_one_program(m: Measurement, other: Measurement) -> bool:
    """True unless the two programs are known to differ: after a change of the program, a measurement is no copy."""
    return m.program is None or other.program is None or m.program.digest == other.program.digest


def _items(of: Mapping[str, Any]) -> Hashable:
    return tuple(sorted(of.items()))


def _fullness(m: Measurement) -> tuple[int, int, int]:
    return len(m.attempts), len(m.turns), len(m.samples)
