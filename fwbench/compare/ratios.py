"""The ratio of two lanes, from rounds in which fresh processes of both take turns.

A round's difference is the logarithm of the one lane's seconds over the other's.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median, variance
from typing import Literal

# Rounds of a workload: its own scatter shows from two on, and 12 are the most.
FEWEST_ROUNDS, MOST_ROUNDS = 2, 12

# Lanes are equal if their ratio surely differs from 1 by no more than this share.
EQUAL = 0.05

# Lanes of which it is not known which is faster are near each other if they surely differ by no more than this share.
NEAR = 0.10

# The confidence of a ratio's interval, each by itself: of 14 workloads one is missed in every seventh run.
LEVEL = 0.99

# Half the width of an interval, as a share of the ratio, from which on a workload plays no further rounds.
PRECISE = 0.015

# Two fastest turns of a round's 24 find the same speed of a program most often (docs/evidence/turns.md). A call of
# fewer seconds than `_SHORT` is short or long by how soon another thread wakes; a few turns are lucky, so half count.
_FASTEST_TURNS, _SHORT = 2, 1e-4

# A round lies apart if it is farther than this from the median of all, in standard deviations. It does not count if the
# others are so many more: where one process in seven is slow, slow ones are seldom so many more than fast ones.
_APART, _AHEAD = 5.0, 3

# CPUs lie as usual if they hand a number to each other in the usual time, to within this factor. Where a host had moved
# them it took 1.5 times as long (docs/method.md, "Slow spells").
_SAME_PACE = 1.2

# The scatter of a run's other workloads counts for so many rounds: each workload has its own.
_POOLED = 3.0

# Programs of like duration scatter alike: a call of the one lasts at most so many times as long as of the other.
_LIKE = 8.0


def round_difference(own: Sequence[float], theirs: Sequence[float]) -> float:
    """The logarithm of a lane's speed over another's in a round, from the two fastest turns of each lane.

    Turns are slowed from outside, by a neighbour on the core's other thread or by memory that the kernel has yet to
    give: the fastest of many short turns met neither. Of programs whose calls take tens of microseconds the faster half
    of the turns counts.

    Args:
        own, theirs: seconds of a call, turn by turn; or another measure, of one number.
    """
    halved = min(*own, *theirs) < _SHORT
    return _level(theirs, halved) - _level(own, halved)


def _level(turns: Sequence[float], halved: bool) -> float:
    """The mean logarithm of the fastest turns."""
    count = max(1, len(turns) // 2) if halved else _FASTEST_TURNS
    return fmean(map(math.log, sorted(turns)[:count]))


@dataclass(frozen=True)
class Scatter:
    """How far the rounds of a workload are expected to lie apart before they are played.

    Attributes:
        deviation: standard deviation of a round's logarithm of two lanes' ratio.
        counts: for how many rounds the expectation counts.
    """

    deviation: float = 0.02
    counts: float = 2.0


# The scatter to expect before any other workload of the run has rounds, and where a GPU is the limit: on two H200
# processes of one program lay 0.1 to 0.4 % apart (docs/gpu.md).
_USUAL, ON_GPU = Scatter(), Scatter(0.005)


def pooled_scatter(others: Iterable[tuple[float, Sequence[float]]], seconds: float, usual: Scatter = _USUAL) -> Scatter:
    """The scatter to expect of a workload's rounds, from the rounds of a run's other workloads of like duration.

    Rounds scatter by the machine, which is the same for all workloads, and short programs by more than long ones: a
    moderated variance (Smyth 2004, Statistical Applications in Genetics and Molecular Biology 3, article 3). It is the
    median of the others' deviations, as a program with two speeds says nothing of the rest; each is corrected by the
    median of its own distribution.

    Args:
        others: of each other workload the seconds of a call, and the differences of its rounds.
        seconds: of a call of this workload.
        usual: what is expected where others say nothing.
    """
    from scipy.special import gammaincinv

    deviations = []
    for call, differences in others:
        if (freedom := len(differences) - 1) > 0 and max(call, seconds) <= _LIKE * min(call, seconds):
            typical = 2 * float(gammaincinv(freedom / 2, 0.5)) / freedom
            deviations.append(math.sqrt(variance(differences) / typical))
    # What is usual counts as one of them, as two or three say little.
    return Scatter(median([*deviations, usual.deviation]), _POOLED) if deviations else usual


def usual_pace(paces: Sequence[float]) -> float:
    """The pace of a run: the fastest that a quarter of its rounds had; 0 if none is known."""
    return sorted(paces)[(len(paces) - 1) // 4] if paces else 0.0


def as_usual(pace: float, usual: float) -> bool:
    """Whether a round was played at the usual pace; at another it does not count, as that moves ratios.

    Args:
        pace: seconds in which two CPUs hand a number to each other; 0: unknown.
        usual: what is usual in the run; 0: unknown.
    """
    return not (pace and usual) or usual / _SAME_PACE <= pace <= usual * _SAME_PACE


def alike(differences: Sequence[float], expected: Scatter = _USUAL) -> list[bool]:
    """Which rounds count in a ratio: all but those that lie apart, or all where the others are not three more.

    Some programs have two speeds, by process, and some rounds fall into a slow spell of the machine that meets one lane
    harder. The answer is about most processes.

    Args:
        differences: one for each round.
        expected: the scatter, before these rounds. It counts beside their median absolute deviation.
    """
    middle = median(differences)
    # 1.4826 times it is the standard deviation of what is normally distributed.
    own = 1.4826 * median(abs(each - middle) for each in differences)
    squares = expected.counts * expected.deviation**2 + len(differences) * own**2
    reach = _APART * math.sqrt(squares / (expected.counts + len(differences)))
    near = [abs(each - middle) <= reach for each in differences]
    return near if near.count(True) - near.count(False) >= _AHEAD else [True] * len(near)


def ratio_interval(differences: Sequence[float], expected: Scatter = _USUAL) -> tuple[float, float, float]:
    """The interval of the logarithm of two lanes' ratio.

    Student's interval over the rounds that are alike, with the scatter that was expected: a few rounds that happen to
    agree prove little. It misses the truth in one of 100 comparisons. More rounds are played where it is wide, whatever
    it says of the lanes: so no look at the answer has to be paid for.

    Args:
        differences: one for each round.
        expected: the scatter, before these rounds.

    Returns:
        The mean, and the two ends.
    """
    from scipy.special import stdtrit

    counted = [each for each, counts in zip(differences, alike(differences, expected), strict=True) if counts]
    mean, freedom = fmean(counted), expected.counts + len(counted) - 1
    squares = variance(counted) * (len(counted) - 1) if len(counted) > 1 else 0.0
    deviation = math.sqrt((expected.counts * expected.deviation**2 + squares) / freedom)
    reach = float(stdtrit(freedom, (1 + LEVEL) / 2)) * deviation / math.sqrt(len(counted))
    return mean, mean - reach, mean + reach


def ratio_verdict(low: float, high: float) -> Literal["faster", "equal", "near", "undecided"]:
    """What an interval of a ratio's logarithm says.

    `faster`: one lane is, the first if the logarithm is above zero; `equal`: within `EQUAL`; `near`: it is not known
    which is faster, and they are at most `NEAR` apart.
    """
    if low > 0 or high < 0:
        return "faster"
    farther = max(-low, high)
    return "equal" if farther <= math.log1p(EQUAL) else "near" if farther <= math.log1p(NEAR) else "undecided"
