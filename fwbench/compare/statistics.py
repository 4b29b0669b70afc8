"""Decides if a benchmark has become slower: by a few pairs of all benchmarks, then fresh pairs of the suspects alone.

The replicate is a pair of processes, one of each side, alive together and taking turns. It is never a round: rounds of
one process are not independent, and tests on them find a change in two of three runs in which nothing changed.

    screening      3 pairs of each benchmark (4 if they scatter)         estimate beyond the threshold: a suspect
    confirmation   fresh pairs of the suspects, one at a time            until one is cleared, confirmed, or has 64
    clearing       more pairs of unsuspected benchmarks that scatter     until they say that nothing changed, or are 8

Screening alone errs in every fourth suite. Its pairs do not count again, so the luck that made a suspect cannot help to
confirm it. As both sides of a pair run in random order, unchanged code makes the pair's difference symmetric about
zero: given the size of a difference, its sign is a fair coin. Confirmation bets on these signs (`evidence`).
Unchanged code multiplies the stake by 1/alpha with a chance of at most alpha, whatever the noise and whenever one
stops, so that more pairs can be played for as long as the answer is open.

A difference is the logarithm of head over base of a metric that is better when lower: above zero, head is worse.
"""

import functools
import math
from collections.abc import Hashable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from fwbench.compare.findings import Decision, Verdict
from fwbench.text import change

Name = TypeVar("Name", bound=Hashable)

# Pairs of each benchmark in the first stage; one more if they scatter by more than the threshold.
SCREENING = 3

# The smallest change that counts, as a share of base.
THRESHOLD = 0.02

# The share of unchanged suites that may fail.
ALPHA = 0.01

# From so many pairs on, an estimated change below this share of the threshold ends the confirmation of a suspect.
CLEARING = {4: 0.25, 10: 0.5, 16: 1.0}

# Fresh pairs after which an open suspect is left inconclusive, and pairs after which an unsuspected benchmark is.
MOST = 64
MOST_UNSUSPECTED = 8

# Fresh pairs after which a suspect is left inconclusive where the most would not decide it.
FUTILE = 12

# Possible changes and scatters, in thresholds; the bets trust each as far as it has predicted earlier pairs.
_CHANGES, _SCATTERS = (grid.ravel() for grid in np.meshgrid(2.0 ** np.arange(5), 4.0 ** np.arange(-2, 2)))

# The unit of these changes and scatters if the threshold is smaller than this, or zero.
_FINEST = 0.001

# The share of the stake that no bet risks: on a shared machine the surest sign can be wrong.
_NOT_RISKED = 0.1


# The settings that decide a verdict.
RULE = (
    SCREENING,
    THRESHOLD,
    ALPHA,
    CLEARING,
    MOST,
    FUTILE,
    _CHANGES.tolist(),
    _SCATTERS.tolist(),
    _FINEST,
    _NOT_RISKED,
)


@dataclass(frozen=True)
class Suspect:
    """A change of which screening suspects a benchmark, and the differences that made it a suspect.

    Its direction is 1 if head seems worse, and -1 if better; the threshold is the smallest change that counts.
    """

    direction: int
    threshold: float = THRESHOLD
    screened: Sequence[float] = field(default=(), repr=False)


def estimate(differences: Sequence[float]) -> float:
    """The median of all pairwise means: Hodges and Lehmann (1963), Annals of Mathematical Statistics 34, 598-611."""
    return float(np.median(_walsh(differences)))


def interval(differences: Sequence[float], confidence: float = 0.95) -> tuple[float, float, float]:
    """The exact interval that belongs to the signed-rank test (Hollander and Wolfe, section 3.3), and its confidence.

    With few pairs the confidence is less than was asked for.
    """
    walsh = np.sort(_walsh(differences))
    below = _signed_rank_cdf(len(differences))
    # The number of means that may be cut off at either end.
    cut = max(0, int(np.searchsorted(below, (1 - confidence) / 2, side="right")) - 1)
    return float(walsh[cut]), float(walsh[-1 - cut]), float(1 - 2 * below[cut])


def evidence(differences: Sequence[float], before: Sequence[float], threshold: float = THRESHOLD) -> list[float]:
    """The stake after each fresh pair, if a stake of 1 is bet again and again against "nothing has changed".

    Each bet is on the sign of a difference, given its size. A tenth of the stake is not at risk; the rest is split
    between the two signs by their chances under a mixture of possible changes and scatters. The mixture gives most
    weight to those that predicted the earlier pairs best. It assumes that pairs scatter by Cauchy's law, as machines
    have heavy tails: a pair far outside the others says little and costs at most half the stake, while a rank or a mean
    would give it the greatest weight.

    If differences are symmetric about zero, no bet gains on average, and the stake ever comes to 1/alpha with a chance
    of at most alpha (Ville 1939; Ramdas et al. 2023, "Game-theoretic statistics and safe anytime-valid inference",
    Statistical Science 38).

    Args:
        differences: of fresh pairs in their order, above zero if they speak for the suspected change.
        before: of other pairs, which only teach the bets.
        threshold: the smallest change that counts, as a share of base.
    """
    pairs = np.array([*before, *differences])[:, np.newaxis] / math.log1p(max(threshold, _FINEST))
    # The sign of a pair beyond all possible changes is only as sure as that of the largest one.
    pairs = pairs.clip(-_CHANGES.max(), _CHANGES.max())
    likelihood, opposite = (1 / (_SCATTERS + (side - _CHANGES) ** 2 / _SCATTERS) for side in (pairs, -pairs))
    logarithms = np.log(likelihood)
    of_earlier = np.cumsum(logarithms, axis=0) - logarithms
    weights = np.exp(of_earlier - of_earlier.max(axis=1, keepdims=True))
    for_sign, against = ((weights * chance).sum(axis=1) for chance in (likelihood, opposite))
    gains = _NOT_RISKED + (1 - _NOT_RISKED) * 2 * for_sign / (for_sign + against)
    wealth: list[float] = np.cumprod(gains[len(before) :]).tolist()
    return wealth


def deciding_pairs(suspects: int) -> int:
    """The number of agreeing fresh pairs that decide one of so many suspects, as no bet gains more than it risks."""
    return math.ceil(math.log(max(1, suspects) / ALPHA) / math.log(2 - _NOT_RISKED))


def holm(p_values: Mapping[Name, float], alpha: float = ALPHA) -> set[Name]:
    """The hypotheses that are rejected, with a chance of at most `alpha` that a true one is among them (Holm 1979)."""
    rejected: set[Name] = set()
    for name in sorted(p_values, key=lambda name: p_values[name]):
        if p_values[name] > alpha / (len(p_values) - len(rejected)):
            break
        rejected.add(name)
    return rejected


def screening_pairs(differences: Sequence[float], threshold: float = THRESHOLD) -> int:
    """The number of pairs that screening needs of a benchmark with these differences."""
    first = differences[:SCREENING]
    scattered = len(first) == SCREENING and float(np.std(first, ddof=1)) > threshold
    return SCREENING + scattered


def screen(differences: Sequence[float], threshold: float = THRESHOLD) -> Suspect | None:
    """The change of which a benchmark is suspected; None if of none."""
    change = estimate(differences)
    if abs(change) <= math.log1p(threshold):
        return None
    return Suspect(1 if change > 0 else -1, threshold, tuple(differences))


def cleared(differences: Sequence[float], threshold: float = THRESHOLD, ended: str = "no suspect") -> Verdict:
    """The verdict on a benchmark that seems unchanged: inconclusive if the pairs scatter too much to say so.

    If the change's standard error exceeds the threshold, a change of two and a half thresholds looks like none with a
    chance of one in fourteen or more.
    """
    if _error(differences) <= math.log1p(threshold):
        return _verdict("unchanged", differences, ended)
    return _verdict("inconclusive", differences, ended, note=_untold(differences))


def _error(differences: Sequence[float]) -> float:
    """The standard error of the estimated change, from its interval; one wild pair of 12 moves it little.

    It is unknown, so infinite, for one pair alone, such as the first after flags have changed.
    """
    if len(differences) < 2:
        return math.inf
    low, high, confidence = interval(differences)
    return (high - low) / 2 / NormalDist().inv_cdf((1 + confidence) / 2)


def _is_cleared(change: float, differences: Sequence[float], threshold: float) -> bool:
    """True if fresh pairs clear a suspect: they show no change, and they agree well enough or are at least 16."""
    below = max(share for fewest, share in CLEARING.items() if fewest <= len(differences))
    agree = _error(differences) <= math.log1p(threshold) or len(differences) >= max(CLEARING)
    return agree and change < math.log1p(below * threshold)


def _is_futile(change: float, differences: Sequence[float], threshold: float) -> bool:
    """True if even the most pairs would leave a suspect open, as where processes have two speeds.

    The change's standard error falls with the root of the number of pairs. It would exceed the threshold then, and
    half of the change.
    """
    error = _error(differences) * math.sqrt(len(differences) / MOST)
    return len(differences) >= FUTILE and error > max(math.log1p(threshold), abs(change) / 2)


def unfinished(differences: Sequence[float]) -> Verdict:
    """The verdict if no more pairs can be played: the estimate from these, without a decision."""
    note = f"the time was over after {_spread(differences)}: go on with --fwbench-resume"
    return _verdict("inconclusive", differences, "the time was over", note=note)


class Confirmation(Generic[Name]):
    """The second stage: fresh pairs of the suspects, judged together; its `verdicts` are on those that are decided."""

    def __init__(self, suspects: Mapping[Name, Suspect]) -> None:
        self.verdicts: dict[Name, Verdict] = {}
        self._suspects = dict(suspects)

    @property
    def names(self) -> Set[Name]:
        """The names of all suspects."""
        return self._suspects.keys()

    @property
    def open(self) -> tuple[Name, ...]:
        """The suspects that are not decided."""
        return tuple(name for name in self._suspects if name not in self.verdicts)

    def judge(self, differences: Mapping[Name, Sequence[float]]) -> None:
        """Judge open suspects by their fresh pairs. With fewer than four pairs a suspect stays open."""
        looked = {name: pairs for name, pairs in differences.items() if len(pairs) >= min(CLEARING)}
        changes = {name: self._suspects[name].direction * estimate(pairs) for name, pairs in looked.items()}
        # The other suspects are hypotheses, too: confirmed ones count as rejected (p = 0), the rest as true (p = 1).
        chances = {
            name: self._chance(name, looked[name])
            for name, change in changes.items()
            if change > math.log1p(self._suspects[name].threshold)
        }
        confirmed = [name for name, verdict in self.verdicts.items() if verdict.kind in ("regressed", "improved")]
        fallen = holm({name: chances.get(name, 0.0 if name in confirmed else 1.0) for name in self._suspects})
        for name, pairs in looked.items():
            suspect = self._suspects[name]
            if name in fallen:
                kind: Decision = "regressed" if suspect.direction > 0 else "improved"
                self.verdicts[name] = _verdict(kind, pairs, "confirmed", chances[name])
            elif _is_cleared(changes[name], pairs, suspect.threshold):
                self.verdicts[name] = cleared(pairs, suspect.threshold, "cleared")
            elif len(pairs) >= MOST:
                self.verdicts[name] = _verdict("inconclusive", pairs, "the most", chances.get(name), _untold(pairs))
            elif _is_futile(changes[name], pairs, suspect.threshold):
                self.verdicts[name] = _verdict("inconclusive", pairs, "more would not decide", note=_untold(pairs))

    def _chance(self, name: Name, differences: Sequence[float]) -> float:
        """A p-value that holds whenever one stops: the chance of such evidence at any time, without a change."""
        suspect = self._suspects[name]
        fresh, before = ([suspect.direction * d for d in pairs] for pairs in (differences, suspect.screened))
        return min(1.0, 1 / max(evidence(fresh, before, suspect.threshold)))


def _verdict(kind: Decision, pairs: Sequence[float], ended: str, p: float | None = None, note: str = "") -> Verdict:
    low, high, confidence = interval(pairs)
    ratio = math.exp(estimate(pairs))
    return Verdict(kind, ratio, (math.exp(low), math.exp(high)), confidence, len(pairs), p, note, ended)


def _untold(differences: Sequence[float]) -> str:
    return f"{_spread(differences)}, do not decide: end other processes, or raise its threshold (--fwbench-fail)"


def _spread(differences: Sequence[float]) -> str:
    low, high = (change(math.exp(end), "{:+.0%}".format) for end in (min(differences), max(differences)))
    return f"{len(differences)} pairs, from {low} to {high}" if len(differences) > 1 else f"1 pair, {low}"


def _walsh(differences: Sequence[float]) -> NDArray[np.float64]:
    """The means of all pairs of values, each value with itself too."""
    values = np.asarray(differences, np.float64)
    first, second = _pairs(len(values))
    return (values[first] + values[second]) / 2


# Cached, as simulations ask for the same indices thousands of times.
_pairs = functools.cache(np.triu_indices)


@functools.cache
def _signed_rank_cdf(n: int) -> NDArray[np.float64]:
    """The chance that the signed-rank statistic of n pairs is at most 0, 1, ..., n (n + 1) / 2."""
    counts = np.ones(1)
    for rank in range(1, n + 1):
        counts = np.convolve(counts, [1, *[0] * (rank - 1), 1])
    return np.cumsum(counts) / 2.0**n
