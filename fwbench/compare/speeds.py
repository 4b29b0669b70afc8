"""Names plain tests whose calls have no single speed: they have two, by call or by process, or move steadily.

None of these is a change: both sides have them alike, so a pair's difference is as likely above zero as below. But they
make pairs scatter, and a reader can mend them. Each rule looks for an effect that load does not have: load slows
neighbouring calls together, and makes calls wait, not compute.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fwbench.compare.pair import Pair
from fwbench.text import change

# Two speeds lie at least `_DISTANCE` apart (a logarithm), and `_DEVIATIONS` standard deviations of either. With one
# speed, 1 in 1,000 samples of 16 processes does, be their scatter normal or heavy-tailed. There are `_FEWEST` values or
# more, and each speed has at least `_SHARE` of them.
_DISTANCE, _DEVIATIONS, _FEWEST, _SHARE = math.log(1.05), 8.0, 8, 0.2

# This share of calls may be slow for other reasons.
_OUTLIERS = 0.1

# Calls that alternate at random change speed about as often as fair draws do, and in spells of load seldom. So at least
# this share of the draws' changes is required.
_CHANGES = 0.5

# Slow calls spend at least this share of their extra seconds computing.
_COMPUTED = 0.5

# Moving calls change in one direction from each quarter of a process's calls to the next, in at least `_MOVING` of the
# processes, by a median of more than `_MOVED` (a logarithm). By chance one process in twelve moves.
_MOVED, _MOVING = 0.02, 0.75

_SIDES = ("base", "head")

# Seconds; less than any clock resolves.
_TICK = 1e-12


@dataclass(frozen=True)
class _Speeds:
    """Two speeds.

    Attributes:
        fast: the logarithm of the seconds of the faster one.
        limit: a logarithm between the two.
        apart: the logarithm of their ratio.
    """

    fast: float
    limit: float
    apart: float


def remark(pairs: Sequence[Pair]) -> str:
    """A remark on the odd times of a plain test's calls; empty if nothing is odd."""
    processes = [np.log(np.maximum(pair.rounds[side], _TICK)) for pair in pairs for side in _SIDES]
    computed = [math.log(pair.values[side].get("cpu_time") or math.nan) for pair in pairs for side in _SIDES]
    return _moving(processes) or _by_call(processes, computed) or _by_process(computed)


def _moving(processes: Sequence[NDArray[np.float64]]) -> str:
    moved = []
    for calls in processes:
        # The faster calls of each quarter, as load slows some.
        levels = [float(np.quantile(quarter, 0.25)) for quarter in np.array_split(calls, 4) if len(quarter)]
        steps = [later - earlier for earlier, later in pairwise(levels)]
        if len(steps) == 3 and (min(steps) > 0 or max(steps) < 0):
            moved.append(levels[-1] - levels[0])
    if len(moved) < max(4, _MOVING * len(processes)):
        return ""
    by = statistics.median(moved)
    if abs(by) <= _MOVED or min(by * each for each in moved) < 0:
        return ""
    return (
        f"its calls become {'slower' if by > 0 else 'faster'} with each one, {change(math.exp(by))} within a process: "
        "look for what they keep; `benchmark.pedantic` with a `setup` gives each call a fresh state"
    )


def _by_call(processes: Sequence[NDArray[np.float64]], computed: Sequence[float]) -> str:
    apart = []
    for calls, cpu in zip(processes, computed, strict=True):
        speeds = _two_speeds(calls)
        if speeds is None:
            continue
        slow = calls > speeds.limit
        changes, share = np.count_nonzero(slow[1:] != slow[:-1]), slow.mean()
        # A call that had to leave its CPU does not compute for longer than another.
        longer = _COMPUTED * share * math.expm1(speeds.apart)
        if changes >= _CHANGES * 2 * share * (1 - share) * (len(calls) - 1) and cpu >= speeds.fast + math.log1p(longer):
            apart.append(speeds.apart)
    if 2 * len(apart) <= len(processes):
        return ""
    return (
        f"its calls have two speeds, {_shown(statistics.median(apart))} apart, by call: have each do the same work, as "
        "with a fixed seed"
    )


def _by_process(computed: Sequence[float]) -> str:
    # Only the time of computing counts, as one side alone may share its CPU with another program.
    sides = np.reshape(computed, (-1, len(_SIDES)))
    levels = sides[~np.isnan(sides).any(axis=1)].ravel()
    speeds = _two_speeds(levels)
    if speeds is None:
        return ""
    base, head = (levels[side::2] > speeds.limit for side in (0, 1))
    # A change would give each side one speed, and a spell of load would give each pair one.
    if not (0 < base.sum() < len(base) and 0 < head.sum() < len(head) and (base != head).any()):
        return ""
    return (
        f"its processes have two speeds, {_shown(speeds.apart)} apart, on both sides: look for what differs by "
        "process, as the order of a set or where memory lies"
    )


def _shown(apart: float) -> str:
    return change(math.exp(apart), "{:.0%}".format)


def _two_speeds(values: NDArray[np.float64]) -> _Speeds | None:
    """The two speeds of calls or processes, from logarithms of seconds; None if they have one, or are too few."""
    ordered = np.sort(values)[: len(values) - int(_OUTLIERS * len(values))]
    fewest = math.ceil(_SHARE * len(ordered))
    if len(ordered) < _FEWEST:
        return None
    splits = [(ordered[:count], ordered[count:]) for count in range(fewest, len(ordered) - fewest + 1)]
    squares = [sum(((part - part.mean()) ** 2).sum() for part in parts) for parts in splits]
    fast, slow = splits[int(np.argmin(squares))]
    apart = float(slow.mean() - fast.mean())
    deviation = math.sqrt(min(squares) / (len(ordered) - 2))
    if apart < max(_DISTANCE, _DEVIATIONS * deviation):
        return None
    return _Speeds(float(fast.mean()), float(fast[-1] + slow[0]) / 2, apart)
