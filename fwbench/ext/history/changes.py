"""The changes of a series of runs: steps between levels that lie apart, and slow drifts from one to another.

Values are logarithms, so that differences are ratios. A single run is a replicate here, whatever happened inside it.

    spikes        one or two runs that lie apart from those around them: left out, as they do not last
    candidates    the cheapest division into levels, by ruptures: exact dynamic programming (Killick, Fearnhead and
                  Eckley 2012, Journal of the American Statistical Association 107, 1590-1598)
    three voters  t-tests of a step, of a line from end to end and of a ramp between any two runs, corrected for the
                  places that each chooses from and for runs that resemble the run before; a candidate without a vote
                  is taken out
    shapes        a change is a step or a ramp; if one ramp explains the values clearly better than steps, it is a drift
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import ruptures
from numpy.typing import NDArray
from scipy import special

Values = NDArray[np.float64]

# A level has at least so many runs.
LEAST_RUNS = 3

# The chance that any voter finds a change between two others where there is none; and the confidence of intervals.
_ALPHA = 0.001
_CONFIDENCE = 0.95

# The penalty of one more level among the candidates, as a multiple of the noise's variance times log(n); voters follow.
_PENALTY = 2.0

# A spike differs by more than so many standard deviations from the median of the runs around it.
_SPIKE = 4.0

# A change that takes at least so many runs is a drift.
_DRIFT = 3

# Evidence that is strong on the scale of the criterion (Kass and Raftery 1995, Journal of the American Statistical
# Association 90, 773-795).
_CLEARLY = 6.0

# The most places at which a ramp may begin or end; more are thinned.
_PLACES = 60


@dataclass(frozen=True)
class Change:
    """A change of a series' level between the place of its last run at the old level and that of its first at the new.

    Its size is the new level less the old one, of logarithms, with an interval at 95 % for a change at this place.
    """

    before: int
    after: int
    size: float
    interval: tuple[float, float]

    @property
    def drift(self) -> bool:
        """True if the change came slowly."""
        return self.after - self.before >= _DRIFT


@dataclass(frozen=True)
class Changes:
    """The changes of a series, and its spikes: the places of runs that stand alone."""

    changes: tuple[Change, ...] = ()
    spikes: frozenset[int] = frozenset()


@dataclass(frozen=True)
class _Ramp:
    """A change between two places, as it fits best, and the sum of squares that it leaves unexplained."""

    before: int
    after: int
    low: float
    size: float
    rest: float

    def risen(self, count: int) -> Values:
        """The share of the change that each of `count` runs has."""
        return np.clip((np.arange(count) - self.before) / (self.after - self.before), 0, 1)

    def lever(self, count: int) -> float:
        """The noise's standard deviation over the size's standard error."""
        risen = self.risen(count)
        return math.sqrt(float(np.sum((risen - risen.mean()) ** 2)))


def find(values: Sequence[float], floor: float, least: float) -> Changes:
    """The changes of a series.

    Args:
        values: logarithms, in the order of the runs.
        floor: the least standard deviation that is assumed between runs of unchanged code, of logarithms.
        least: the smallest change that counts, of logarithms.
    """
    every = np.asarray(values, np.float64)
    if len(every) < 2 * LEAST_RUNS:
        return Changes()
    # From neighbours' median difference, which a few changes and spikes hardly move.
    noise = max(floor, float(np.median(np.abs(np.diff(every))) / 0.6745 / math.sqrt(2)))
    spikes = frozenset(place for place in range(len(every)) if _alone(every, place, noise))
    places = [place for place in range(len(every)) if place not in spikes]
    steady = every[places]
    if len(steady) < 2 * LEAST_RUNS:
        return Changes(spikes=spikes)
    cuts = _confirmed(steady, _candidates(steady, noise), floor, least)
    changes = _shaped(steady, cuts, floor)
    placed = (replace(change, before=places[change.before], after=places[change.after]) for change in changes)
    return Changes(tuple(placed), spikes)


def _alone(values: Values, place: int, noise: float) -> bool:
    """True if a run lies apart from most of those around it (Hampel's filter); three that lie together do not."""
    width = 2 * LEAST_RUNS - 1
    start = min(max(0, place - LEAST_RUNS + 1), len(values) - width)
    return abs(float(values[place] - np.median(values[start : start + width]))) > _SPIKE * noise


def _candidates(values: Values, noise: float) -> list[int]:
    """The places at which levels begin in the cheapest division."""
    search = ruptures.KernelCPD(kernel="linear", min_size=LEAST_RUNS).fit(values.reshape(-1, 1))
    ends: list[int] = search.predict(pen=_PENALTY * noise**2 * math.log(len(values)))
    return ends[:-1]


def _confirmed(values: Values, cuts: list[int], floor: float, least: float) -> list[int]:
    """The cuts that stand: the weakest goes until each has a vote and a size of at least `least`."""
    while cuts:
        edges = [0, *cuts, len(values)]
        error = _error(values, edges, floor)
        chances, sizes = {}, {}
        for start, cut, end in zip(edges, cuts, edges[2:], strict=False):
            chances[cut] = _chance(values[start:cut], values[cut:end], error, floor)
            sizes[cut] = abs(float(values[cut:end].mean() - values[start:cut].mean()))
        weakest = max(cuts, key=lambda cut: (chances[cut], -sizes[cut]))
        if chances[weakest] <= _ALPHA:
            weakest = min(cuts, key=lambda cut: sizes[cut])
            if sizes[weakest] >= least:
                return cuts
        cuts = [cut for cut in cuts if cut != weakest]
    return []


def _error(values: Values, edges: Sequence[int], floor: float) -> float:
    """Standard deviation of a run about its level over the whole series, larger if runs resemble the run before."""
    rests = np.concatenate([values[i:j] - np.mean(values[i:j]) for i, j in pairwise(edges)])
    degrees = max(1, len(values) - len(edges) + 1)
    squares = float(rests @ rests)
    spread = max(floor, math.sqrt(squares / degrees))
    return spread * _resembling(rests, len(edges) - 1)


def _resembling(rests: Values, levels: int) -> float:
    """The factor by which errors grow as runs resemble the run before, from the residuals' lag-1 autocorrelation."""
    squares = float(rests @ rests)
    # Residuals of short levels resemble each other less than the runs do.
    alike = (float(rests[1:] @ rests[:-1]) / squares if squares else 0.0) + levels / len(rests)
    alike = min(0.8, max(0.0, alike))
    return math.sqrt((1 + alike) / (1 - alike))


def _rest(*levels: Values) -> float:
    """The sum of squares that levels leave unexplained."""
    return float(sum(np.sum((level - level.mean()) ** 2) for level in levels))


def _chance(left: Values, right: Values, error: float, floor: float) -> float:
    """The smallest p-value of the three voters, two-sided, corrected for their number and their choices."""
    values = np.concatenate((left, right))
    degrees = len(values) - 2
    spread = max(error, math.sqrt(_rest(left, right) / degrees))
    step = abs(float(right.mean() - left.mean())) / (spread * math.sqrt(1 / len(left) + 1 / len(right)))
    places = len(values) - 2 * LEAST_RUNS + 1
    chances = [places * special.stdtr(degrees, -step)]
    line = _fitted(values, np.array([0]), np.array([len(values) - 1]))
    for ramp, choices, lost in ((line, 1, 0), (_ramp(values), math.comb(len(values), 2), 2)):
        rests = values - ramp.low - ramp.size * ramp.risen(len(values))
        spread = max(math.sqrt(ramp.rest / (degrees - lost)) * _resembling(rests, 2), floor)
        chances.append(choices * special.stdtr(degrees - lost, -abs(ramp.size) * ramp.lever(len(values)) / spread))
    return float(min(1.0, 2 * len(chances) * min(chances)))


def _shaped(values: Values, cuts: Sequence[int], floor: float) -> list[Change]:
    """The changes at these cuts; neighbouring cuts that one ramp explains clearly better become one change."""
    edges = [0, *cuts, len(values)]
    spans = [(start, end, [cut]) for start, cut, end in zip(edges, cuts, edges[2:], strict=False)]
    place = 0
    while place + 1 < len(spans):
        (start, _, some), (_, end, others) = spans[place], spans[place + 1]
        together = [*some, *others]
        if _one_ramp(values[start:end], [cut - start for cut in together], floor):
            spans[place : place + 2] = [(start, end, together)]
            place = max(0, place - 1)
        else:
            place += 1
    return [_change(values[start:end], start, of, floor) for start, end, of in spans]


def _one_ramp(values: Values, cuts: Sequence[int], floor: float) -> bool:
    """True if one ramp explains the values clearly better than these steps, by the Bayesian information criterion."""
    edges = [0, *cuts, len(values)]
    levels = [values[i:j] for i, j in pairwise(edges)]
    means = [float(level.mean()) for level in levels]
    if not (all(np.diff(means) > 0) or all(np.diff(means) < 0)):
        return False
    gained = _criterion(_rest(*levels), values, len(cuts) + 1, floor) - _criterion(_ramp(values).rest, values, 4, floor)
    return gained > _CLEARLY


def _criterion(rest: float, values: Values, parameters: int, floor: float) -> float:
    # Residuals below a quarter of `floor` count as that: a closer fit explains nothing.
    count = len(values)
    return count * math.log(max(rest / count, (floor / 4) ** 2)) + parameters * math.log(count)


def _ramp(values: Values) -> _Ramp:
    """The ramp that fits best, over all places at which it may begin and end."""
    count = len(values)
    places = sorted({round(place) for place in np.linspace(0, count - 1, min(count, _PLACES))})
    begins, ends = (np.array(column) for column in zip(*((i, j) for i in places for j in places if i < j), strict=True))
    return _fitted(values, begins, ends)


def _fitted(values: Values, begins: NDArray[np.int_], ends: NDArray[np.int_]) -> _Ramp:
    """The ramp between these places that fits best, by least squares."""
    risen = np.clip((np.arange(len(values)) - begins[:, None]) / (ends - begins)[:, None], 0, 1)
    centred = risen - risen.mean(axis=1, keepdims=True)
    squares = np.sum(centred**2, axis=1)
    sizes = centred @ values / squares
    rests = float(np.sum((values - values.mean()) ** 2)) - sizes**2 * squares
    best = int(np.argmin(rests))
    low = float(values.mean() - sizes[best] * risen[best].mean())
    return _Ramp(int(begins[best]), int(ends[best]), low, float(sizes[best]), max(0.0, float(rests[best])))


def _change(values: Values, start: int, cuts: Sequence[int], floor: float) -> Change:
    """The change at these cuts: a step or a drift, with its size."""
    ramp = _ramp(values)
    slow = len(cuts) > 1 or (ramp.after - ramp.before >= _DRIFT and _one_ramp(values, [cuts[0] - start], floor))
    count, lost = len(values), 4
    if not slow:
        cut = np.array([cuts[0] - start])
        ramp, lost = _fitted(values, cut - 1, cut), 2
    error = max(floor, math.sqrt(ramp.rest / (count - lost))) / ramp.lever(count)
    width = error * float(special.stdtrit(max(1, count - 2), 0.5 + _CONFIDENCE / 2))
    return Change(start + ramp.before, start + ramp.after, ramp.size, (ramp.size - width, ramp.size + width))
