"""The best earlier value of each metric. A run is compared with it, so that many small slowdowns add up to a finding.

Ten runs that are each 3 % slower than the last all pass a gate that compares with the run before. So there is a second
comparison, with the best level of the series; a level is five runs in a row. The best of several levels looks better
than it is by chance, so its test is corrected for the number of levels.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

# The number of runs in a level.
RUNS = 5


@dataclass(frozen=True)
class Earlier:
    """A metric's value in a run that nothing disturbed (geometric mean over processes, in SI units); the run's name."""

    value: float
    where: str


@dataclass(frozen=True)
class Best:
    """The best level of a series: the median over its runs, so that one lucky run makes no level.

    It names its first run for readers, and knows the number of levels that it was chosen from.
    """

    value: float
    runs: int
    where: str
    choices: int


def best(runs: Sequence[Earlier], direction: str, length: int = RUNS) -> Best | None:
    """The best level, of `length` runs in a row, of these runs, oldest first; None if there are too few for a level."""
    starts = range(len(runs) - length + 1)
    if not starts:
        return None
    levels = [statistics.median(run.value for run in runs[start : start + length]) for start in starts]
    chosen = levels.index(min(levels) if direction == "lower" else max(levels))
    return Best(levels[chosen], length, runs[chosen].where, len(levels))


def state(runs: Sequence[Earlier]) -> tuple[float, float]:
    """The scatter of runs, from the differences between neighbours: a step or a slow drift does not add to it.

    Returns:
        Standard deviation of a run's logarithm, and its degrees of freedom. It is estimated from the median of the
        differences (Hampel 1974, Journal of the American Statistical Association 69, 383-393; each difference gives
        0.37 degrees), or from their ninth decile if tails are heavy. With fewer runs than a level has, it is 0.
    """
    if len(runs) < RUNS:
        return 0.0, math.inf
    steps = [abs(math.log(after.value / before.value)) for before, after in pairwise(runs)]
    tail = statistics.quantiles(steps, n=10, method="inclusive")[-1]
    return max(statistics.median(steps) / 0.6745, tail / 1.6449) / math.sqrt(2), 0.37 * len(steps)
