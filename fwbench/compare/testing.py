"""Tests each benchmark for a change larger than the scatter between processes and runs (Welch), with Holm's correction.

The process is the replicate, never the round, and few processes decide little. A record made earlier also met another
state of the machine. All its processes share that state, so no number of them averages it out: the scatter between runs
must be known from elsewhere. Other load, too, lengthens any time. So the thresholds are wide, a change counts only
beyond what load can explain, and a change that cannot be decided is inconclusive.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from scipy import special

from fwbench.compare.best import Best
from fwbench.compare.criteria import CRITERIA
from fwbench.compare.findings import Decision, Verdict
from fwbench.compare.statistics import holm

_CONFIDENCE = 0.95  # of intervals

# The null hypothesis is a change of at most this share of the threshold.
_TOLERATED = 0.25

# Metrics that depend on the machine's state: all but memory.
OF_STATE = frozenset(name for name, criterion in CRITERIA.items() if criterion.unit != "B")

# Standard deviation between runs of unchanged code, of logarithms, on a machine without a selftest that does nothing
# else. On two shared virtual cores it was 0.01 to 0.02 by benchmark, and 0.03 to 0.04 beside work of low priority.
UNTESTED = 0.03

# A factor beyond dispute: single processes of unchanged code have never differed so much without other load.
_BEYOND_DISPUTE = 2.0


@dataclass(frozen=True)
class Disturbed:
    """The most by which disturbances can have made each side worse, a logarithm; what happened, and what to do."""

    base: float = 0.0
    head: float = 0.0
    happened: str = ""
    steps: str = ""


@dataclass(frozen=True)
class Compared:
    """A metric of a benchmark, before the suite is judged.

    Attributes:
        threshold: as a share of base.
        state: standard deviation between runs of unchanged code, of logarithms.
        exact: whether one value a side decides.
        ours: whether fwbench measured it, so that its options apply.
        turns: whether a duet can measure it.
        program: remarks on a program that did not change.
        degrees: degrees of freedom of `state`; infinitely many if it is known from elsewhere.
        best: the level of earlier runs that is base; None if base is the baseline.
    """

    name: str
    metric: str
    base: Sequence[float]
    head: Sequence[float]
    threshold: float
    state: float
    exact: bool
    disturbed: Disturbed = Disturbed()
    ours: bool = True
    turns: bool = True
    program: str = ""
    degrees: float = math.inf
    best: Best | None = None

    @property
    def alone(self) -> bool:
        """True if there is one process a side, and so no test."""
        return not self.best and len(self.base) + len(self.head) == 2

    @property
    def certain(self) -> float:
        """The difference that is left if the disturbance of head explains as much of it as it can."""
        return self.difference - self.disturbed.head

    @property
    def difference(self) -> float:
        """Logarithm of the ratio, above zero if head is worse."""
        log_ratio = level(self.head) - level(self.base)
        return log_ratio if CRITERIA[self.metric].direction == "lower" else -log_ratio

    @property
    def limit(self) -> float:
        """The threshold as a difference; with one process a side, at least that of a factor beyond dispute."""
        limit = self.worse_by(self.threshold)
        return max(limit, math.log(_BEYOND_DISPUTE)) if self.alone and not self.exact else limit

    @property
    def grave(self) -> bool:
        """True if head is so much worse that no gate may pass it, even if something else may explain it."""
        return self.difference > max(self.limit, math.log(_BEYOND_DISPUTE))

    def worse_by(self, share: float) -> float:
        """The difference that a change for the worse by this share of base makes."""
        if CRITERIA[self.metric].direction == "lower":
            return math.log1p(share)
        return -math.log1p(-share) if share < 1 else math.inf

    @property
    def spread(self) -> tuple[float, float]:
        """Standard error of the difference and its degrees of freedom.

        Processes average out, but the states of two runs do not. The degrees are those of the sum of both variances
        (Welch 1947, Biometrika 34, 28-35; Satterthwaite 1946).
        """
        if self.best:
            # Runs of a level may share a state, so they count as one.
            return math.sqrt(2) * self.state, self.degrees
        degrees = len(self.base) + len(self.head) - 2
        between = (_squares(self.base) + _squares(self.head)) / degrees * (1 / len(self.base) + 1 / len(self.head))
        variance = between + 2 * self.state**2
        known = between**2 / degrees + (2 * self.state**2) ** 2 / self.degrees
        return math.sqrt(variance), variance**2 / known if known else math.inf


def level(side: Sequence[float]) -> float:
    """Mean of the logarithms."""
    return statistics.fmean(map(math.log, side))


def _squares(side: Sequence[float]) -> float:
    middle = level(side)
    return math.fsum((math.log(value) - middle) ** 2 for value in side)


def verdicts(cases: Sequence[Compared]) -> list[Verdict]:
    """The verdicts of the whole suite: a test for each case, and Holm's correction over all tests."""
    p_values = {}
    for at, case in enumerate(cases):
        if not case.exact and not case.alone and math.isfinite(case.certain):
            excess = case.certain - case.worse_by(_TOLERATED * case.threshold)
            p_values[at] = min(1.0, (case.best.choices if case.best else 1) * _p_value(excess, *case.spread))
    fallen = holm(p_values)
    return [_verdict(case, p_values.get(at), at in fallen) for at, case in enumerate(cases)]


def _p_value(excess: float, error: float, degrees: float) -> float:
    """The one-sided p-value of Student's t; with infinitely many degrees of freedom, of the normal distribution."""
    if not error:
        return 0.0 if excess > 0 else 1.0
    return float(special.stdtr(degrees, -excess / error))


def _verdict(case: Compared, p: float | None, significant: bool) -> Verdict:
    difference, limit = case.difference, case.limit
    interval = _interval(case)
    kind: Decision
    if case.exact:
        kind = "regressed" if difference > limit else "improved" if difference < -limit else "unchanged"
    elif case.alone:
        better = difference + case.disturbed.base < -limit
        kind = "regressed" if case.certain > limit else "improved" if better else "inconclusive"
    elif significant and case.certain > limit:
        kind = "regressed"
    elif interval[1] < -limit:
        kind = "improved"
    elif interval[1] <= limit:
        kind = "unchanged"
    else:
        kind = "inconclusive"
    sign = 1 if CRITERIA[case.metric].direction == "lower" else -1
    low, high = sorted(math.exp(sign * end) for end in interval)
    confidence, pairs = 1.0 if case.exact else _CONFIDENCE, min(len(case.base), len(case.head))
    return Verdict(kind, math.exp(sign * difference), (low, high), confidence, pairs, p)


def _interval(case: Compared) -> tuple[float, float]:
    """The interval of the difference, widened by the disturbances of both sides."""
    if case.exact:
        return case.difference, case.difference
    if case.alone:
        return -math.inf, math.inf
    error, degrees = case.spread
    width = error * float(special.stdtrit(degrees, 0.5 + _CONFIDENCE / 2))
    return case.difference - width - case.disturbed.head, case.difference + width + case.disturbed.base
