"""Whether several runs say more than one of them: only where nothing but chance can have made them differ."""

import math
from collections.abc import Sequence
from statistics import fmean

from fwbench.compare.cases import Case, grouped

# Chance that runs without a trend are taken for a drift, and how far one must go to matter.
_ALPHA, _LEAST = 0.01, 0.05


def unlike(cases: Sequence[Case], runs: Sequence[int], differences: Sequence[float]) -> str:
    """Why these two lanes' runs are no replicates, in a phrase; empty where they are.

    Args:
        runs: of each pair of processes the run, numbered in the order of time.
        differences: of each pair, logarithms.
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
    """How far values move from first to last, where that is no chance and no trifle; else 0.

    By Kendall's rank correlation with the place (Mann 1945, Econometrica 13, 245-259) and the median slope (Theil 1950;
    Sen 1968, Journal of the American Statistical Association 63, 1379-1389).
    """
    if len(values) < 3:
        return 0.0
    # SciPy takes a second to import, which the terminal's table shall not cost where there are no three runs.
    from scipy import stats

    places = range(len(values))
    if not stats.kendalltau(places, values).pvalue <= _ALPHA:
        return 0.0
    moved = float(stats.theilslopes(values, places).slope) * (len(values) - 1)
    return moved if abs(moved) > math.log1p(_LEAST) else 0.0
