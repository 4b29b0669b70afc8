"""Which records of a measurement are copies of one, and which of them holds the most.

A journal, the file that is saved at the run's end, the journal of a run that goes on with it, and copies that somebody
has made on the way all hold the same measurements. A later copy may hold more: rounds in which lanes took turns, and
attempts that were disturbed more.
"""

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

from fwbench.record.measurement import Measurement


class Copies:
    """Measurements, each once: as the fullest of its copies has it, of equal ones the last.

    Attributes:
        kept: in the order of the first copies.
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
        """Which of `kept` a measurement is a copy of."""
        return self._numbers[_marks(m)[0]]


def _marks(m: Measurement) -> list[Hashable]:
    """What no two measurements share, of this one and of its other attempts: times of stages, and numbers."""
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
    """Whether two measurements can be copies: a program that somebody has changed is no copy of the other."""
    return m.program is None or other.program is None or m.program.digest == other.program.digest


def _items(of: Mapping[str, Any]) -> Hashable:
    return tuple(sorted(of.items()))


def _fullness(m: Measurement) -> tuple[int, int, int]:
    return len(m.attempts), len(m.turns), len(m.samples)
