"""The ratio of two lanes, from rounds in which processes of both take turns.

A round's difference is the logarithm of the one lane's seconds over the other's.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median, variance
from typing import Literal

# The fewest rounds of a workload, from which its own scatter shows, and the most.
FEWEST_ROUNDS, MOST_ROUNDS = 2, 12

# Lanes are equal if their ratio surely differs from 1 by no more than this share.
EQUAL = 0.05

# Lanes are near if it is unknown which is faster, but their ratio surely differs from 1 by no more than this share.
NEAR = 0.10

# The confidence of each ratio's interval by itself: with 14 workloads, one misses the truth in every seventh run.
LEVEL = 0.99

# A workload plays no further rounds once half the width of its interval is at most this share of the ratio.
PRECISE = 0.015

# The two fastest of a round's turns repeat a program's speed best (docs/evidence/turns.md). A call of fewer seconds
# than `_SHORT` is short or long by how soon another thread wakes; a few turns are lucky, so the faster half counts.
_FASTEST_TURNS, _SHORT = 2, 1e-4

# A round lies apart if it is more than `_APART` standard deviations from the median of all. It does not count if the
# others outnumber such rounds by `_AHEAD`: if one process in seven is slow, slow rounds seldom outnumber fast ones so.
_APART, _AHEAD = 5.0, 3

# CPUs are placed as usual if they hand a number to each other in the usual time, within this factor. After a host had
# moved them it took 1.3 to 1.9 times as long. Of the readings on three machines 2 % lie between 1.15 and 1.25 times
# (docs/method.md, "Slow spells").
_SAME_PACE = 1.2

# The scatter of a run's other workloads counts as this many rounds only, as each workload has a scatter of its own.
_POOLED = 3.0

# Programs of like duration scatter alike: one's call lasts at most this many times as long as the other's.
_LIKE = 8.0


def round_difference(own: Sequence[float], theirs: Sequence[float]) -> float:
    """The logarithm of a lane's speed over another's in a round, from the two fastest turns of each lane.

    Turns are slowed from outside, by a neighbour on the core's other thread or by memory that the kernel has yet to
    give: the fastest of many short turns met neither. For programs whose calls take tens of microseconds, the faster
    half of the turns counts.

    Args:
        own, theirs: seconds of a call in each turn; or a single value of another measure.
    """
    halved = min(*own, *theirs) < _SHORT
    return _level(theirs, halved) - _level(own, halved)


def _level(turns: Sequence[float], halved: bool) -> float:
    """The mean logarithm of the fastest turns."""
    count = max(1, len(turns) // 2) if halved else _FASTEST_TURNS
    return fmean(map(math.log, sorted(turns)[:count]))


@dataclass(frozen=True)
class Scatter:
    """The scatter of a workload's rounds that is expected before they are played.

    Attributes:
        deviation: standard deviation of a round's logarithm of two lanes' ratio.
        counts: the number of rounds as which the expectation counts.
    """

    deviation: float = 0.02
    counts: float = 2.0


# The scatter to expect before any other workload of the run has rounds: in general, and if a GPU is the limit. On two
# H200, processes of one program lay 0.1 to 0.4 % apart (docs/gpu.md).
_USUAL, ON_GPU = Scatter(), Scatter(0.005)


def pooled_scatter(others: Iterable[tuple[float, Sequence[float]]], seconds: float, usual: Scatter = _USUAL) -> Scatter:
    """The scatter to expect of a workload's rounds, from the rounds of a run's other workloads of like duration.

    The machine makes rounds scatter, and it is the same for all workloads; short programs scatter more than long ones.
    So the scatter is a moderated variance (Smyth 2004, Statistical Applications in Genetics and Molecular Biology 3,
    article 3): the median of the others' deviations, as a program with two speeds says nothing of the rest. Each
    deviation is corrected by the median of its own distribution.

    Args:
        others: the seconds of a call of each other workload, and the differences of its rounds.
        seconds: of a call of this workload.
        usual: the scatter to expect if the others say nothing.
    """
    from scipy.special import gammaincinv

    deviations = []
    for call, differences in others:
        if (freedom := len(differences) - 1) > 0 and max(call, seconds) <= _LIKE * min(call, seconds):
            typical = 2 * float(gammaincinv(freedom / 2, 0.5)) / freedom
            deviations.append(math.sqrt(variance(differences) / typical))
    # The usual deviation counts as one of them, as two or three say little.
    return Scatter(median([*deviations, usual.deviation]), _POOLED) if deviations else usual


def usual_pace(paces: Sequence[float]) -> float:
    """The usual one of some paces: their lower quartile, in seconds; 0 if none is known."""
    return sorted(paces)[(len(paces) - 1) // 4] if paces else 0.0


def as_usual(pace: float, usual: float) -> bool:
    """True if a turn or a round was at the usual pace, or none is known; another pace moves ratios.

    Args:
        pace: seconds in which two CPUs hand a number to each other; 0: unknown.
        usual: the usual pace; 0: unknown.
    """
    return not (pace and usual) or usual / _SAME_PACE <= pace <= usual * _SAME_PACE


def alike(differences: Sequence[float], expected: Scatter = _USUAL) -> list[bool]:
    """A flag for each round: true if it counts in a ratio.

    Rounds that lie apart do not count if the others outnumber them by three or more; else all rounds count. Some
    programs have two speeds, by process, and some rounds fall into a slow spell of the machine that slows one lane
    more. The ratio is about most processes.

    Args:
        differences: one for each round.
        expected: the scatter that was expected before these rounds. It is pooled with their median absolute deviation.
    """
    middle = median(differences)
    # The standard deviation of a normal distribution is 1.4826 times its median absolute deviation.
    own = 1.4826 * median(abs(each - middle) for each in differences)
    squares = expected.counts * expected.deviation**2 + len(differences) * own**2
    reach = _APART * math.sqrt(squares / (expected.counts + len(differences)))
    near = [abs(each - middle) <= reach for each in differences]
    return near if near.count(True) - near.count(False) >= _AHEAD else [True] * len(near)


def ratio_interval(differences: Sequence[float], expected: Scatter = _USUAL) -> tuple[float, float, float]:
    """The interval of the logarithm of two lanes' ratio.

    It is Student's interval over the rounds that count (`alike`), pooled with the scatter that was expected, as a few
    rounds that happen to agree prove little. It misses the truth in one of 100 comparisons. More rounds are played if
    it is wide, whatever it says of the lanes, so looking at it early costs no confidence.

    Args:
        differences: one for each round.
        expected: the scatter that was expected before these rounds.

    Returns:
        The mean, the lower end and the upper end.
    """
    from scipy.special import stdtrit

    counted = [each for each, counts in zip(differences, alike(differences, expected), strict=True) if counts]
    mean, freedom = fmean(counted), expected.counts + len(counted) - 1
    squares = variance(counted) * (len(counted) - 1) if len(counted) > 1 else 0.0
    deviation = math.sqrt((expected.counts * expected.deviation**2 + squares) / freedom)
    reach = float(stdtrit(freedom, (1 + LEVEL) / 2)) * deviation / math.sqrt(len(counted))
    return mean, mean - reach, mean + reach


def ratio_verdict(low: float, high: float) -> Literal["faster", "equal", "near", "undecided"]:
    """The verdict that an interval of a ratio's logarithm allows.

    `faster`: one lane is, the first if the logarithm is above zero; `equal`: the lanes are at most `EQUAL` apart;
    `near`: it is unknown which is faster, and they are at most `NEAR` apart.
    """
    if low > 0 or high < 0:
        return "faster"
    farther = max(-low, high)
    return "equal" if farther <= math.log1p(EQUAL) else "near" if farther <= math.log1p(NEAR) else "undecided"
