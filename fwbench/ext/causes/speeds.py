"""Names plain tests whose calls have no single speed: they have two, by call or by process, or move steadily.

None of these is a change: both sides have them alike, so a pair's difference is as likely above zero as below. But they
make pairs scatter, and a reader can mend them. Each rule looks for an effect that load does not have: load slows
neighbouring calls together, both sides of a pair alike, and makes calls wait, not compute.
"""

import math
import statistics
from collections.abc import Sequence

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

# Pairs of processes that show two speeds. So few differences of one speed have two sizes in 1 of 200 samples, if their
# tails are heavy (Student's t with 2 degrees of freedom).
_PAIRS = 10

# Two speeds by process part at least this share of the pairs. Fair draws part half of them, a spell of load hardly any.
_PARTED = 0.2

# With one speed, larger changes from call to call are rarer than smaller ones. Two speeds by call make at least this
# share of changes about as large as their distance, twice as many as of half that size, by so many standard deviations.
_CHANGING, _SURE = 0.25, 3.5
_SIZES = np.geomspace(math.log(1.05), math.log(10), 80)

# Slow calls spend at least this share of their extra seconds computing.
_COMPUTED = 0.5

# Moving calls change by more than `_MOVED` (a logarithm) within a process, on both sides, along a line through the
# levels of so many parts of the process. Of calls that do not move chance makes such a line in fewer than `_CHANCE` of
# samples if levels scatter normally, and in up to 8 of 1,000 on a machine that is slow in spells (docs/evidence).
_MOVED, _PARTS, _CHANCE = 0.02, 6, 1e-4

_SIDES = ("base", "head")

# Nothing lies above this limit.
_ONE_SPEED = math.inf, 0.0

# Seconds; less than any clock resolves.
_TICK = 1e-12


def remarks(pairs: Sequence[Pair]) -> list[str]:
    """A remark on the odd times of a plain test's calls; none if nothing is odd."""
    processes = [np.log(np.maximum(pair.rounds[side], _TICK)) for pair in pairs for side in _SIDES]
    computed = [math.log(pair.values[side].get("cpu_time") or math.nan) for pair in pairs for side in _SIDES]
    remark = _by_call(processes, computed) or _moving(pairs) or _by_process(computed, pairs)
    return [remark] if remark else []


def _moving(pairs: Sequence[Pair]) -> str:
    """A remark on calls that become slower or faster with each one, by a line through each pair of processes.

    Both sides of a pair meet the same spells of load, so a pair is one replicate. The variance of its line's slope is
    pooled from the distances of levels to their lines, and of slopes to each other. Load bends lines, and turns them up
    and down; calls that keep something have straight lines of one direction.
    """
    from scipy.special import stdtr

    moved, squares = [], 0.0
    along = np.arange(_PARTS) - (_PARTS - 1) / 2
    for pair in pairs:
        calls = [np.log(np.maximum(pair.rounds[side], _TICK)) for side in _SIDES]
        if min(map(len, calls)) < _PARTS:
            return ""
        # The faster calls of each part, as load slows some.
        levels = np.array([[np.quantile(part, 0.25) for part in np.array_split(each, _PARTS)] for each in calls])
        slopes = levels @ along / (along @ along)
        bends = (levels - levels.mean(axis=1, keepdims=True) - np.outer(slopes, along)).mean(axis=0)
        moved.append(_PARTS * slopes)
        squares += _PARTS**2 * float(bends @ bends / (along @ along))
    changes = np.array(moved).reshape(-1, len(_SIDES))
    if len(changes) < 2:
        return ""
    of_sides, of_pairs = changes.mean(axis=0), changes.mean(axis=1)
    by = float(of_sides.mean())
    freedom = len(pairs) - 1 + (_PARTS - 2) * len(pairs)
    deviation = math.sqrt((squares + float(((of_pairs - by) ** 2).sum())) / freedom)
    by_chance = 2 * stdtr(freedom, -abs(by) / max(_TICK, deviation / math.sqrt(len(pairs))))
    if by_chance > _CHANCE or min(of_sides * math.copysign(1, by)) <= _MOVED:
        return ""
    return (
        f"its calls become {'slower' if by > 0 else 'faster'} with each one, {change(math.exp(by))} within a process: "
        "look for what they keep; `benchmark.pedantic` with a `setup` gives each call a fresh state"
    )


def _by_call(processes: Sequence[NDArray[np.float64]], computed: Sequence[float]) -> str:
    # From call to call, as a machine that becomes slow or fast moves all calls that follow.
    changes = np.concatenate([np.empty(0), *(np.abs(np.diff(calls)) for calls in processes)])
    counts = (
        (_between(changes, 0.8 * size, 1.2 * size), _between(changes, 0.4 * size, 0.8 * size), size) for size in _SIZES
    )
    more, less, size = max(counts, key=lambda found: found[0] - found[1])
    if more < max(1, _CHANGING * len(changes), 2 * less) or more - less < _SURE * math.sqrt(more + less):
        return ""
    changing, apart = more / len(changes), float(size)
    # Of fair draws with a share of slow calls p, a share of 2 p (1 - p) changes. A call that had to leave its CPU does
    # not compute for longer than another.
    share = (1 - math.sqrt(max(0.0, 1 - 2 * changing))) / 2
    known = [(calls, cpu) for calls, cpu in zip(processes, computed, strict=True) if not math.isnan(cpu)]
    longer = [cpu - float(np.quantile(calls, 0.25)) for calls, cpu in known]
    if not known or statistics.median(longer) < math.log1p(_COMPUTED * share * math.expm1(apart)):
        return ""
    return (
        f"its calls have two speeds, {_shown(apart)} apart, by call: have each do the same work, as with a fixed seed"
    )


def _between(values: NDArray[np.float64], low: float, high: float) -> int:
    return int(((low <= values) & (values < high)).sum())


def _by_process(computed: Sequence[float], pairs: Sequence[Pair]) -> str:
    # Only the time of computing counts, as one side alone may share its CPU with another program.
    apart = _by_level(computed) or _by_difference([pair.differences.get("cpu_time", math.nan) for pair in pairs])
    return apart and (
        f"its processes have two speeds, {apart} apart, on both sides: look for what differs by "
        "process, as the order of a set or where memory lies"
    )


def _by_level(computed: Sequence[float]) -> str:
    """The distance of two speeds between which processes of both sides are divided; empty if there are none."""
    sides = np.reshape(computed, (-1, len(_SIDES)))
    levels = sides[~np.isnan(sides).any(axis=1)].ravel()
    limit, apart = _two_speeds(levels)
    base, head = (levels[side::2] > limit for side in (0, 1))
    # A change would give each side one speed, and a spell of load would give each pair one.
    divided = 0 < base.sum() < len(base) and 0 < head.sum() < len(head) and (base != head).mean() >= _PARTED
    return _shown(apart) if divided else ""


def _by_difference(differences: Sequence[float]) -> str:
    """The same, where the machine itself is slow in spells: these slow both sides of a pair alike."""
    known = np.array([each for each in differences if not math.isnan(each)])
    limit, apart = _two_speeds(np.abs(known)) if len(known) >= _PAIRS else _ONE_SPEED
    far = known[np.abs(known) > limit]
    # A change has one direction.
    return _shown(apart) if (far > 0).any() and (far < 0).any() else ""


def _shown(apart: float) -> str:
    return change(math.exp(apart), "{:.0%}".format)


def _two_speeds(values: NDArray[np.float64]) -> tuple[float, float]:
    """A limit between two speeds and their distance, of logarithms; `_ONE_SPEED` if there is one, or too few values."""
    ordered = np.sort(values)[: len(values) - int(_OUTLIERS * len(values))]
    fewest = math.ceil(_SHARE * len(ordered))
    if len(ordered) < _FEWEST:
        return _ONE_SPEED
    # Where the means of both parts explain most of the squares. Values are near zero, as sums lose digits elsewhere.
    near = ordered - ordered.mean()
    counts = np.arange(fewest, len(near) - fewest + 1)
    sums = np.cumsum(near)[counts - 1]
    explained = sums**2 / counts + (near.sum() - sums) ** 2 / (len(near) - counts)
    fast, slow = np.split(ordered, [counts[int(np.argmax(explained))]])
    apart = float(slow.mean() - fast.mean())
    squares = sum(float(((part - part.mean()) ** 2).sum()) for part in (fast, slow))
    deviation = math.sqrt(squares / (len(ordered) - 2))
    if apart < max(_DISTANCE, _DEVIATIONS * deviation):
        return _ONE_SPEED
    return float(fast[-1] + slow[0]) / 2, apart
