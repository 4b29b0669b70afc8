"""Pairs of any two states of a series, such as the commits of a range, one pair at a time."""

import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from fwbench.compare.agreement import of_sides
from fwbench.compare.criteria import CRITERIA, PAIRED
from fwbench.compare.duet import MOST_DISTURBED
from fwbench.compare.pair import Fault, Pair
from fwbench.errors import UserError
from fwbench.ext.causes.steps import OverError, UnmeasurableError
from fwbench.machine import Machine
from fwbench.models import Model
from fwbench.models.project import Project
from fwbench.record.measurement import Failure
from fwbench.record.plain import PlainTest
from fwbench.record.workload import Workload
from fwbench.suite.profiles import PROFILES
from fwbench.text import line
from fwbench.worker.turns.pairs import Pairs
from fwbench.worker.turns.plain import Invocation, PlainPairs
from fwbench.worker.turns.servers import Servers
from fwbench.worker.turns.sides import Side

# A workload, or a plain test, whose states are compared.
Subject = Workload | PlainTest


# Makes a player of two sides' pairs, with the method `play` of `Pairs`, from base, head, `profiled` and `metric`.
Players = Callable[..., Any]


@dataclass(frozen=True)
class Asked:
    """A search as it is asked for.

    Attributes:
        others: interpreters of workers by framework, for frameworks with an interpreter of their own.
        python: the interpreter of the subject's processes.
        playing: a context that gives the subject's `Players`.
        end: the time by `time.monotonic` at which the search is over.
        metric: the metric to search by, one of `PAIRED`.
    """

    subject: Subject
    project: Project
    others: Mapping[str, str]
    python: str
    playing: AbstractContextManager[Players]
    end: float
    metric: str


@contextmanager
def of_workload(workload: Workload, models: Mapping[str, Model], here: Machine) -> Iterator[Players]:
    """Players of a workload, until the context ends."""
    with Servers() as servers:
        device = workload.device
        deadline = PROFILES["ci"].on(device).deadline

        def pairs(base: Side, head: Side, *, profiled: bool, metric: str) -> Pairs:
            asked = {"cold": "compile_time", "warm": "warm_start", "metered": "energy"}
            options: dict[str, Any] = {name: [workload] if metric == each else [] for name, each in asked.items()}
            options |= {"profiled": profiled, "servers": servers}
            return Pairs(base, head, models, here, device, deadline, **options)

        yield pairs


def of_plain(called: Invocation) -> AbstractContextManager[Players]:
    """Players of plain tests, for which pytest is called in this way."""

    def pairs(base: Side, head: Side, *, profiled: bool, metric: str) -> PlainPairs:
        deadline, metered = PROFILES["ci"].on("cpu").deadline, metric == "energy"
        options: dict[str, Any] = {"searching": True, "profiled": profiled, "metered": lambda test: metered}
        return PlainPairs(base, head, called, deadline, **options)

    return nullcontext(pairs)


@dataclass
class Series:
    """Plays pairs of two states, until the time is over.

    Attributes:
        side: makes the side of a state from its name, `base` or `head`, and the state's number.
        title: returns a state's title for its number.
        profiled: whether each state's first process is profiled at its end.
        described: by the state's number, the report of each state's first process: program, outputs, settings, sources,
            latency in seconds; if it is profiled, also spans, or a plain test's profile.
    """

    side: Callable[[str, int], Side]
    title: Callable[[int], str]
    asked: Asked
    players: Players
    profiled: bool = False
    described: dict[int, Mapping[str, Any]] = field(default_factory=dict, init=False)
    # The two states whose pairs `_pairs` plays now, and how long the last pair took.
    _between: tuple[int, int] = field(default=(-1, -1), init=False)
    _pairs: Any = field(default=None, init=False)
    _seconds: float = field(default=0.0, init=False)

    def differing(self) -> dict[tuple[int, int], str]:
        """The differences in outputs between neighbours among the measured states, by the two states' numbers."""
        told = {}
        for states in itertools.pairwise(sorted(self.described)):
            first, last = (self.described[number].get("outputs", {}) for number in states)
            names = (self.title(states[0]), self.title(states[1]))
            if (found := of_sides(self.asked.subject, first, last, names)).agrees is False:
                told[states] = str(found)
        return told

    def play(self, first: int, last: int) -> float:
        """Play a fresh pair.

        Returns:
            log(value of `last` / value of `first`) of the metric.

        Raises:
            UnmeasurableError: one of them cannot be measured.
            OverError: the time is over, or a state that was measured before now fails.
            UserError: neither of them yields the metric.
        """
        if time.monotonic() + self._seconds > self.asked.end:
            raise OverError("the time was over: give more minutes")
        if self._between != (first, last):
            sides = self.side("base", first), self.side("head", last)
            self._pairs = self.players(*sides, profiled=self.profiled, metric=self.asked.metric)
            self._between = (first, last)
        played = self._undisturbed()
        fault = played if isinstance(played, Fault) else self._lacking(played)
        if fault:
            number, reason = first if fault.side == "base" else last, fault.failure.message
            if number in self.described:
                raise OverError(f"{self.title(number)} could be measured before, and now cannot: {line(reason)}")
            raise UnmeasurableError(number, reason)
        assert isinstance(played, Pair)
        for number, name in ((first, "base"), (last, "head")):
            described = {**played.described.get(name, {}), "latency": played.values.get(name, {}).get("latency")}
            self.described.setdefault(number, described)
        self._seconds = played.seconds
        return played.differences[self.asked.metric]

    def _undisturbed(self) -> Pair | Fault:
        """Play a fresh pair; play again if another process was on the GPU or heat held its clocks down.

        An OverError says if each of several pairs was disturbed.
        """
        results: list[Pair | Fault] = []
        disturbed = ""
        for _ in range(MOST_DISTURBED):
            self._pairs.play([self.asked.subject], lambda _, result: results.append(result))
            played = results[-1]
            if isinstance(played, Fault) or not played.disturbed:
                return played
            disturbed = played.disturbed
        raise OverError(disturbed)

    @property
    def rule(self) -> dict[str, Any]:
        """The arguments of `Search` by which the metric is decided."""
        exact = CRITERIA[self.asked.metric].decided_by_one(self.asked.subject.device)
        return {"threshold": PAIRED[self.asked.metric].share, "exact": exact}

    def _lacking(self, pair: Pair) -> Fault | None:
        """The fault of a side that does not yield the metric; None if both sides yield it.

        A UserError says if neither side yields it in the first pair of all.
        """
        if self.asked.metric in pair.differences:
            return None
        without = [name for name in ("base", "head") if not pair.values.get(name, {}).get(self.asked.metric)]
        if len(without) > 1 and not self.described:
            known = ", ".join(name for name in PAIRED if name in pair.differences)
            raise UserError(f"{self.asked.subject.id} has no {self.asked.metric} in pairs here: choose from {known}.")
        return Fault(without[0], without[0], Failure("unavailable", f"its processes report no {self.asked.metric}"))
