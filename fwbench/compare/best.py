"""The best that earlier runs have reached and kept: what a run is held to where each was only a little worse.

Ten runs that are each 3 % slower all pass a gate that compares with the run before. So there is a second comparison,
with the best level of the series: five runs in a row. As the best of several levels is chosen, chance makes it look
better than it is; its test pays for each level that there was to choose from.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

# A level has so many runs.
RUNS = 5


@dataclass(frozen=True)
class Earlier:
    """What an earlier run found of one metric, while nothing disturbed it.

    Attributes:
        value: the geometric mean over its processes, in SI units.
        where: the run, for readers.
    """

    value: float
    where: str


@dataclass(frozen=True)
class Best:
    """The best level of a series.

    Attributes:
        value: the median over its runs, so that one that was lucky is no level.
        runs: that it has.
        where: its first run, for readers.
        choices: levels that there were to choose from.
    """

    value: float
    runs: int
    where: str
    choices: int


def best(runs: Sequence[Earlier], direction: str, length: int = RUNS) -> Best | None:
    """The best level of these runs, oldest first; None where there are too few for any.

    Args:
        length: runs of a level.
    """
    starts = range(len(runs) - length + 1)
    if not starts:
        return None
    levels = [statistics.median(run.value for run in runs[start : start + length]) for start in starts]
    chosen = levels.index(min(levels) if direction == "lower" else max(levels))
    return Best(levels[chosen], length, runs[chosen].where, len(levels))


def state(runs: Sequence[Earlier]) -> tuple[float, float]:
    """How far neighbouring runs differ, whatever has changed once or twice or slowly.

    Returns:
        Standard deviation of a run, of logarithms, and its degrees of freedom: from the median of the differences
        (Hampel 1974, Journal of the American Statistical Association 69, 383-393; it has 0.37 of them), or where tails
        are heavy from their ninth decile. 0 of fewer runs than a level has.
    """
    if len(runs) < RUNS:
        return 0.0, math.inf
    steps = [abs(math.log(after.value / before.value)) for before, after in pairwise(runs)]
    tail = statistics.quantiles(steps, n=10, method="inclusive")[-1]
    return max(statistics.median(steps) / 0.6745, tail / 1.6449) / math.sqrt(2), 0.37 * len(steps)
