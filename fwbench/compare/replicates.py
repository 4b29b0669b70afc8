"""Tests if runs are replicates, which differ by chance alone: only then do several say more than one."""

import math
from collections.abc import Sequence
from statistics import fmean

from fwbench.compare.cases import Case, grouped

# The chance that runs without a trend are taken for a drift, and the smallest drift that matters, as a share.
_ALPHA, _LEAST = 0.01, 0.05


def unlike(cases: Sequence[Case], runs: Sequence[int], differences: Sequence[float]) -> str:
    """A phrase that says why two lanes' runs are no replicates; empty if they are.

    Args:
        runs: each pair's run, numbered in the order of time. A pair is one process of each lane.
        differences: each pair's, logarithms.
    """
    by_run = grouped(zip(runs, differences, strict=True), lambda pair: pair[0])
    commits = dict.fromkeys(commit for case in cases for commit in case.commits)
    if len(by_run) > 1 and len(commits) > 1:
        return f"no replicates, as the runs are of {len(commits)} commits; `fwbench history` shows them apart"
    drifted = _drift([fmean(difference for _, difference in of) for _, of in sorted(by_run.items())])
    if drifted:
        return f"no replicates, as the ratio drifts by {math.expm1(abs(drifted)):.0%} from the first run to the last"
    return ""


def _drift(values: Sequence[float]) -> float:
    """The drift of the values from first to last; 0 if chance explains it or it is at most `_LEAST`.

    By Kendall's rank correlation with the place (Mann 1945, Econometrica 13, 245-259) and the median slope (Theil 1950;
    Sen 1968, Journal of the American Statistical Association 63, 1379-1389).
    """
    if len(values) < 3:
        return 0.0
    # SciPy takes a second to import. With fewer than three runs the terminal's table must not wait for it.
    from scipy import stats

    places = range(len(values))
    if not stats.kendalltau(places, values).pvalue <= _ALPHA:
        return 0.0
    moved = float(stats.theilslopes(values, places).slope) * (len(values) - 1)
    return moved if abs(moved) > math.log1p(_LEAST) else 0.0
