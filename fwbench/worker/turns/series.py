"""Pairs of any two states of a series, such as the commits of a range, one pair at a time."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from fwbench.compare.duet import Fault
from fwbench.compare.steps import OverError, UnmeasurableError
from fwbench.machine import Machine
from fwbench.models import Model
from fwbench.record.workload import Workload
from fwbench.suite.profiles import PROFILES
from fwbench.text import line
from fwbench.worker.turns.pairs import Pairs
from fwbench.worker.turns.sides import Side


class Series:
    """Plays pairs of two states, until the time is over.

    Args:
        side: makes the side of a state from its name, `base` or `head`, and the state's number.
        title: of a state, by its number.
        models: by name.
        end: by `time.monotonic`.

    Attributes:
        reasons: why states cannot be measured, by their numbers.
        described: by number, what a state's process has told of itself, as in `Pair`.
    """

    def __init__(
        self,
        side: Callable[[str, int], Side],
        title: Callable[[int], str],
        workload: Workload,
        models: Mapping[str, Model],
        here: Machine,
        end: float,
    ) -> None:
        self.reasons: dict[int, str] = {}
        self.described: dict[int, Mapping[str, Any]] = {}
        self._side = side
        self._title = title
        self._workload = workload
        self._models = models
        self._machine = here
        self._end = end
        # The current two states, what plays their pairs, and the last pair's seconds.
        self._between = (-1, -1)
        self._pairs: Pairs
        self._seconds = 0.0

    def play(self, first: int, last: int) -> float:
        """Play a fresh pair.

        Returns:
            The logarithm of the last one's latency over the first one's.

        Raises:
            UnmeasurableError: one of them cannot be measured.
            OverError: the time is over, or one cannot be measured any more.
        """
        if time.monotonic() + self._seconds > self._end:
            raise OverError("the time was over: give more --minutes, or a smaller range")
        if self._between != (first, last):
            sides = self._side("base", first), self._side("head", last)
            device = self._workload.device
            deadline = PROFILES["ci"].on(device).deadline
            self._pairs = Pairs(*sides, self._models, self._machine, device, deadline)
            self._between = (first, last)
        played = self._pairs.play([self._workload])[self._workload]
        if isinstance(played, Fault):
            number, reason = first if played.side == "base" else last, played.failure.message
            if number in self.described:
                raise OverError(f"{self._title(number)} could be measured before, and now cannot: {line(reason)}")
            self.reasons[number] = reason
            raise UnmeasurableError(number)
        for number, name in ((first, "base"), (last, "head")):
            self.described.setdefault(number, played.described.get(name, {}))
        self._seconds = played.seconds
        return played.differences["latency"]
