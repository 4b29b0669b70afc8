"""The search for steps: at which of many states has a workload become slower or faster?

A state is a commit, a release, or head with some of its parts put back. States are numbered in their order. A
comparison plays fresh pairs of two of them, one pair at a time. The search compares the first state with the last, then
cuts: it compares a stretch's first state with its middle one, and assigns the rest of the stretch's change to the
second half. It cuts each half that differs, until it has neighbours.

The search names a step only between neighbours, and only on fresh pairs of these two, by a duet's bets (`evidence`) in
each direction. If nothing has changed, the chance that a bet in either direction multiplies its stake by 2/a is at most
a (Ville 1939), whatever led there. The m-th comparison of neighbours has a = 5 % / (m (m + 1)). These chances never sum
to more than 5 %, so at most 5 % of searches name a step where there is none. Other comparisons only lead the search;
their errors cost pairs or miss a step. A metric that is the same at every run of a state is compared exactly: one pair
decides each comparison.

Changes that cancel out leave ends equal. So the search cuts the whole and its halves even if their ends are equal; it
then misses changes that cancel out within a quarter of the states. Once any comparison has come out different, it cuts
quarters and eighths as well, and misses those within a sixteenth.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Literal

from fwbench.compare.statistics import CLEARING, MOST, THRESHOLD, estimate, evidence, interval

# The share of searches that may name a step where there is none.
ERROR = 0.05

# A leading comparison only guides the search. It sends the search into a stretch whose ends are equal with at most this
# chance.
_LEADING = 0.1

# A leading comparison ends after so many pairs, even if they decide nothing.
_MOST_LEADING = 16

# The fewest pairs that have a 95 % interval.
_CERTAIN = 6

# The number of times that the whole is halved despite equal ends: before any comparison differs, and afterwards.
_HALVINGS = (2, 4)

# Plays one fresh pair of two states; returns the log of the second one's value over the first's.
Play = Callable[[int, int], float]


class UnmeasurableError(Exception):
    """Raised by `Play`: a state cannot be measured.

    Args:
        state: its number.
        reason: why.
    """

    def __init__(self, state: int, reason: str) -> None:
        super().__init__(state, reason)
        self.state = state
        self.reason = reason


class OverError(Exception):
    """Raised by `Play`: no further pair can be played; the text says why."""


@dataclass(frozen=True)
class Stretch:
    """States in a row, and the change from the first to the last.

    Attributes:
        first, last: their numbers.
        change: logarithm of the last one's value over the first one's.
        low, high: its 95 % interval; with fewer than six pairs, the smallest and the largest mean of two of them.
        pairs: the number of pairs played; 0: the change is not measured, but is the whole's less the first half's.
        differs: False if the pairs showed that the ends are equal; True if they differ, or are undecided.
    """

    first: int
    last: int
    change: float
    low: float = -math.inf
    high: float = math.inf
    pairs: int = 0
    differs: bool = True


@dataclass
class Search:
    """A search for steps.

    Attributes:
        states: the number of states.
        play: plays a pair; the earlier state comes first.
        tell: called with each comparison when it is done.
        played: differences of the first and the last state, in pairs that were played before.
        threshold: the smallest change that counts, as a share.
        exact: whether one pair decides, as its processes always yield the same values.
        steps: the steps that were confirmed, between neighbours.
        compared: all comparisons that were played, in their order.
        unmeasurable: why states were stepped over, by their numbers.
        unsearched: stretches that would have been cut next when the search ended early.
        ended: why it ended early; empty: it came to its end.
    """

    states: int
    play: Play
    tell: Callable[[Stretch], None] = lambda _: None
    played: Sequence[float] = ()
    _: KW_ONLY
    threshold: float = THRESHOLD
    exact: bool = False
    steps: list[Stretch] = field(default_factory=list, init=False)
    compared: list[Stretch] = field(default_factory=list, init=False)
    unmeasurable: dict[int, str] = field(default_factory=dict, init=False)
    unsearched: list[Stretch] = field(default_factory=list, init=False)
    ended: str = field(default="", init=False)
    _confirming: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._states = list(range(self.states))
        self._played = {(0, self.states - 1): self.played}

    def run(self) -> None:
        """Search until nothing is left to be cut, or until `play` says that it is over."""
        # Stretches, and how many halvings led to each.
        waiting: list[tuple[Stretch, int]] = []
        try:
            if whole := self._ends():
                waiting.append((whole, 0))
            while waiting:
                waiting.sort(key=lambda each: _urgency(*each))
                stretch, halvings = waiting[-1]
                if not stretch.differs and halvings >= self.halvings:
                    break
                halves = self._cut(stretch)
                waiting.pop()
                waiting += [(half, halvings + 1) for half in halves]
        except OverError as error:
            self.ended = str(error)
            self.unsearched = [stretch for stretch, halvings in waiting if stretch.differs or halvings < self.halvings]

    @property
    def halvings(self) -> int:
        """The number of halvings despite equal ends; in parts of the resulting size, changes may cancel out unseen."""
        return _HALVINGS[any(each.differs for each in self.compared)]

    @property
    def unexplained(self) -> list[Stretch]:
        """The shortest compared stretches whose steps do not explain their change, each with the rest of it."""
        rests: list[Stretch] = []
        for stretch in sorted(self.compared, key=lambda each: each.last - each.first):
            named = sum(step.change for step in self.steps if _within(step, stretch))
            rest = dataclasses.replace(
                stretch, change=stretch.change - named, low=stretch.low - named, high=stretch.high - named
            )
            certain = rest.pairs >= (1 if self.exact else _CERTAIN) and (rest.low > 0 or rest.high < 0)
            if certain and self._counts(rest.change) and not any(_within(shorter, rest) for shorter in rests):
                rests.append(rest)
        return sorted(rests, key=lambda rest: rest.first)

    def _ends(self) -> Stretch | None:
        """Compare the first and the last state that can be measured; return the whole, or None if it cannot be cut."""
        while len(self._states) > 1:
            first, last = self._states[0], self._states[-1]
            try:
                whole = self._compare(first, last)
            except UnmeasurableError as error:
                self._step_over(error)
            else:
                return whole if self._between(first, last) else None
        return None

    def _cut(self, stretch: Stretch) -> list[Stretch]:
        """Compare a stretch's first state with its middle one, or neighbours; return the halves still to search."""
        while between := self._between(stretch.first, stretch.last):
            middle = min(between, key=lambda state: abs(2 * state - stretch.first - stretch.last))
            try:
                left = self._compare(stretch.first, middle)
            except UnmeasurableError as error:
                self._step_over(error)
            else:
                rest = stretch.change - left.change
                # Half a threshold counts, as the rest has the errors of two comparisons.
                right = Stretch(middle, stretch.last, rest, differs=self._counts(2 * rest))
                return [right, left] if self._between(stretch.first, middle) else [right]
        if stretch.differs:
            self._compare(stretch.first, stretch.last)
        return []

    def _compare(self, first: int, last: int) -> Stretch:
        """Play pairs until they decide; name a step if they confirm one between neighbours."""
        differences = [*self._played.pop((first, last), ())] or [self.play(first, last)]
        neighbours = not self._between(first, last)
        level, most = (self._next_level(), MOST) if neighbours else (_LEADING, _MOST_LEADING)
        try:
            while (verdict := self._verdict(differences, level, most)) == "open":
                differences.append(self.play(first, last))
        finally:
            change, (low, high, _) = estimate(differences), interval(differences)
            compared = Stretch(first, last, change, low, high, len(differences), verdict != "equal")
            self.compared.append(compared)
            self.tell(compared)
        if neighbours and verdict == "different":
            self.steps.append(compared)
        return compared

    def _next_level(self) -> float:
        """The chance to err of the next comparison of neighbours; all of them sum to `ERROR` at most."""
        self._confirming += 1
        return ERROR / (self._confirming * (self._confirming + 1))

    def _verdict(
        self, differences: Sequence[float], level: float, most: int
    ) -> Literal["open", "different", "equal", "undecided"]:
        """The verdict that a comparison's pairs allow; `open` if it needs further pairs.

        Args:
            level: the largest chance that unchanged states come out different.
            most: pairs after which the comparison ends.
        """
        pairs, change = len(differences), estimate(differences)
        if self.exact:
            return "different" if self._counts(change) else "equal"
        if pairs < min(CLEARING):
            return "open"
        share = max(share for fewest, share in CLEARING.items() if fewest <= pairs)
        if abs(change) < math.log1p(self.threshold * share):
            return "equal"
        direction = math.copysign(1, change)
        # Half of the chance is for the other direction.
        bets = evidence([direction * each for each in differences], (), self.threshold)
        if max(bets) >= 2 / level and self._counts(change):
            return "different"
        return "undecided" if pairs >= most else "open"

    def _counts(self, change: float) -> bool:
        return abs(change) > math.log1p(self.threshold)

    def _between(self, first: int, last: int) -> list[int]:
        return [state for state in self._states if first < state < last]

    def _step_over(self, error: UnmeasurableError) -> None:
        self._states.remove(error.state)
        self.unmeasurable[error.state] = error.reason


def _within(inner: Stretch, outer: Stretch) -> bool:
    return outer.first <= inner.first and inner.last <= outer.last


def _urgency(stretch: Stretch, halvings: int) -> tuple[bool, float]:
    """A sort key that puts last what to cut first: the largest change, then equal ends after fewest halvings."""
    return stretch.differs, abs(stretch.change) if stretch.differs else -halvings
