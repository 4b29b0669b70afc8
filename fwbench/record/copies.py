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
        # By mark, the indices of the measurements that have it: several, if only their programs differ.
        self._numbers: dict[Hashable, dict[int, None]] = {}
        # By index, the digest of the first copy that states its program.
        self._programs: dict[int, str] = {}
        for m in measurements:
            number = self.number(m)
            if number == len(self.kept) or _fullness(m) >= _fullness(self.kept[number]):
                self.kept[number : number + 1] = [m]
            if digest := _digest(m):
                self._programs.setdefault(number, digest)
            for mark in _marks(m):
                self._numbers.setdefault(mark, {})[number] = None

    def number(self, m: Measurement) -> int:
        """The index in `kept` of a copy, which has one of the marks; the next free index if there is none.

        After a change of the program, a measurement is no copy.
        """
        digest = _digest(m)
        alike = (number for mark in _marks(m) for number in self._numbers.get(mark, ()))
        same = (number for number in alike if digest in (None, self._programs.get(number, digest)))
        return next(same, len(self.kept))


def _marks(m: Measurement) -> list[Hashable]:
    """Marks that no two measurements share (stage times and numbers): of this measurement and of each attempt."""
    metrics = {name: {"value": metric.value} for name, metric in m.metrics.items()}
    failure = {"message": m.failure.message} if m.failure else None
    own = {"stages": m.stages, "metrics": metrics, "processes": m.processes, "failure": failure}
    return [(m.asked.anywhere, _mark(attempt)) for attempt in (own, *m.attempts)]


def _mark(attempt: Mapping[str, Any]) -> Hashable:
    values = {name: metric.get("value") for name, metric in attempt.get("metrics", {}).items()}
    message = (attempt.get("failure") or {}).get("message")
    # No text: of a measurement's whole numbers a reader makes floats, and of an attempt's it does not.
    numbers = attempt.get("stages", {}), values, *attempt.get("processes", ())
    return message, *(frozenset(each.items()) for each in numbers)


def _digest(m: Measurement) -> str | None:
    return m.program.digest if m.program else None


def _fullness(m: Measurement) -> tuple[int, int, int]:
    return len(m.attempts), len(m.turns), len(m.samples)
