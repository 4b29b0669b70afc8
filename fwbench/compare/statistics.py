"""The decision: has a benchmark become slower? Few fresh pairs of all benchmarks, then more of the suspects alone.

The replicate is a pair of processes, one of each side, alive together and taking turns; never a round: rounds of one
process are not independent, and tests on them find a change in two of three runs in which nothing changed.

    screening      3 pairs of each benchmark (4 where they scatter)      estimate beyond the threshold: a suspect
    confirmation   fresh pairs of the suspects; after 4, 10 and 16       cleared, or an exact test, or inconclusive

Screening alone errs in every fourth suite; its pairs are not used again, so what confirms a suspect owes nothing to the
luck that made it one. As both sides of a pair run in random order, unchanged code makes its difference symmetric about
zero, and the signed-rank test is valid whatever the noise.

A difference is the logarithm of head over base of a metric that is better when lower: above zero, head is worse.
"""

import functools
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from fwbench.compare.findings import Decision, Verdict

Name = TypeVar("Name", bound=Hashable)


# Pairs of each benchmark in the first stage; one more where they scatter by more than the threshold.
SCREENING = 3

# The smallest change that counts, as a share of base.
THRESHOLD = 0.02

# The test's null hypothesis is a change of at most this share of the threshold.
TOLERATED = 0.25


@dataclass(frozen=True)
class Look:
    """A moment at which confirmation decides.

    Attributes:
        pairs: fresh pairs that each suspect has by then.
        alpha: the share of the suite's false-alarm rate that is spent here, 0 for none.
        clear_below: an estimated change below this share of the threshold clears the suspect.
    """

    pairs: int
    alpha: float
    clear_below: float


LOOKS = (Look(4, 0.0, 0.25), Look(10, 0.004, 0.5), Look(16, 0.006, 1.0))


@dataclass(frozen=True)
class Suspect:
    """What screening suspects of a benchmark.

    Attributes:
        direction: 1 of being worse, -1 of being better.
        threshold: the smallest change that counts for it.
    """

    direction: int
    threshold: float = THRESHOLD


def estimate(differences: Sequence[float]) -> float:
    """The median of all pairwise means: Hodges and Lehmann (1963), Annals of Mathematical Statistics 34, 598-611."""
    # By the standard library, which needs a quarter of NumPy's time for so few.
    return float(median(_walsh(differences).tolist()))


def interval(differences: Sequence[float], confidence: float = 0.95) -> tuple[float, float, float]:
    """The exact interval that belongs to the signed-rank test (Hollander and Wolfe, section 3.3).

    Returns:
        Lower end, upper end, and its confidence, which with few pairs is less than was asked for.
    """
    walsh = np.sort(_walsh(differences))
    below = _signed_rank_cdf(len(differences))
    # So many of the means may be cut off at either end.
    cut = max(0, int(np.searchsorted(below, (1 - confidence) / 2, side="right")) - 1)
    return float(walsh[cut]), float(walsh[-1 - cut]), float(1 - 2 * below[cut])


def p_values(differences: Sequence[Sequence[float]], tolerated: Sequence[float]) -> list[float]:
    """Exact one-sided signed-rank tests (Wilcoxon 1945) of "head is worse by at most `tolerated`".

    Args:
        differences: of shape (tests, pairs).
        tolerated: of each test.
    """
    shifted = np.asarray(differences) - np.log1p(tolerated)[:, np.newaxis]
    found: list[float] = stats.wilcoxon(shifted, alternative="greater", method="exact", axis=1).pvalue.tolist()
    return found


def holm(p_values: Mapping[Name, float], alpha: float) -> set[Name]:
    """Which hypotheses fall, with a chance of at most `alpha` that any true one does (Holm 1979)."""
    rejected: set[Name] = set()
    for name in sorted(p_values, key=lambda name: p_values[name]):
        if p_values[name] > alpha / (len(p_values) - len(rejected)):
            break
        rejected.add(name)
    return rejected


def screening_pairs(differences: Sequence[float], threshold: float = THRESHOLD) -> int:
    """How many pairs the first stage needs of a benchmark that has these."""
    first = differences[:SCREENING]
    scattered = len(first) == SCREENING and float(np.std(first, ddof=1)) > threshold
    return SCREENING + scattered


def screen(differences: Sequence[float], threshold: float = THRESHOLD) -> Suspect | None:
    """Whether a benchmark is suspected of a change, and of which."""
    found = estimate(differences)
    if abs(found) <= math.log1p(threshold):
        return None
    return Suspect(1 if found > 0 else -1, threshold)


def cleared(differences: Sequence[float], threshold: float = THRESHOLD, p: float | None = None) -> Verdict:
    """The verdict on what seems not to have changed: inconclusive where the pairs scatter too much to say so.

    Where they tell the change no better than to within the threshold (its standard error), one of two and a half times
    the threshold has a chance of one in fourteen or more to look like none.
    """
    error = float(np.std(differences, ddof=1)) / math.sqrt(len(differences))
    if error <= math.log1p(threshold):
        return _verdict("unchanged", differences, p)
    return _verdict("inconclusive", differences, p, _untold(differences))


class Confirmation(Generic[Name]):
    """The second stage: fresh pairs of the suspects, judged together at each look.

    Args:
        suspects: by name.

    Attributes:
        verdicts: on the suspects that are decided.
    """

    def __init__(self, suspects: Mapping[Name, Suspect]) -> None:
        self.verdicts: dict[Name, Verdict] = {}
        self._suspects = dict(suspects)
        self._withdrawn: set[Name] = set()
        self._looks = list(LOOKS)

    @property
    def open(self) -> tuple[Name, ...]:
        """The suspects that are not decided."""
        return tuple(name for name in self._suspects if name not in self.verdicts and name not in self._withdrawn)

    @property
    def wanted(self) -> int:
        """Fresh pairs that each open suspect needs before the next `judge`; 0 when all are decided."""
        return self._looks[0].pairs if self.open else 0

    def withdraw(self, name: Name) -> None:
        """No more pairs can be had of this suspect. It still counts among the hypotheses."""
        self._withdrawn.add(name)

    def judge(self, differences: Mapping[Name, Sequence[float]]) -> None:
        """Look at the open suspects' fresh pairs, `wanted` of each."""
        look = self._looks.pop(0)
        towards = {name: [self._suspects[name].direction * d for d in differences[name]] for name in self.open}
        # Whoever was cleared still counts among the hypotheses, as one that does not fall.
        chances = dict.fromkeys(self._suspects, 1.0)
        if look.alpha and towards:
            tolerated = [TOLERATED * self._suspects[name].threshold for name in towards]
            chances |= zip(towards, p_values(list(towards.values()), tolerated), strict=True)
        fallen = holm(chances, look.alpha)
        for name, pairs in towards.items():
            suspect = self._suspects[name]
            found, p = estimate(pairs), chances[name] if look.alpha else None
            if name in fallen and found > math.log1p(suspect.threshold):
                kind: Decision = "regressed" if suspect.direction > 0 else "improved"
                self.verdicts[name] = _verdict(kind, differences[name], p)
            elif found < math.log1p(look.clear_below * suspect.threshold):
                self.verdicts[name] = cleared(differences[name], suspect.threshold, p)
            elif not self._looks:
                self.verdicts[name] = _verdict("inconclusive", differences[name], p, _untold(differences[name]))


def _verdict(kind: Decision, differences: Sequence[float], p: float | None = None, note: str = "") -> Verdict:
    low, high, confidence = interval(differences)
    ratio = math.exp(estimate(differences))
    return Verdict(kind, ratio, (math.exp(low), math.exp(high)), confidence, len(differences), p, note)


def _untold(differences: Sequence[float]) -> str:
    low, high = math.expm1(min(differences)), math.expm1(max(differences))
    return f"{len(differences)} pairs, from {low:+.0%} to {high:+.0%}, do not decide: measure again with less load"


def _walsh(differences: Sequence[float]) -> NDArray[np.float64]:
    """The means of all pairs of values, each value with itself too."""
    values = np.asarray(differences, np.float64)
    first, second = _pairs(len(values))
    return (values[first] + values[second]) / 2


# Asked for thousands of times by whoever simulates, and always the same.
_pairs = functools.cache(np.triu_indices)


@functools.cache
def _signed_rank_cdf(n: int) -> NDArray[np.float64]:
    """The chance that the signed-rank statistic of n pairs is at most 0, 1, ..., n (n + 1) / 2."""
    counts = np.ones(1)
    for rank in range(1, n + 1):
        longer = np.zeros(len(counts) + rank)
        longer[: len(counts)] += counts
        longer[rank:] += counts
        counts = longer
    return np.cumsum(counts) / 2.0**n
