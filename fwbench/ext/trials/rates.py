"""Error rates of the gate, and of rules that others use, on the same suites with a known slowdown or none."""

import statistics
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

from fwbench.compare.cases import grouped
from fwbench.compare.evidence import Evidence, Suites
from fwbench.text import row

Seconds = Sequence[float]
Judge = Callable[[Mapping[str, Any]], bool]


def _slower(statistic: Callable[[Seconds], float]) -> Callable[[Seconds, Seconds], bool]:
    return lambda base, head: statistic(head) > 1.05 * statistic(base)


# Rules that decide from the rounds of one process a side if head counts as slower.
RULES: Mapping[str, Callable[[Seconds, Seconds], bool]] = {
    "mean:5%": _slower(statistics.fmean),
    "median:5%": _slower(statistics.median),
    "min:5%": _slower(min),
    "t-test, p < 0.05": lambda base, head: bool(
        stats.ttest_ind(np.log(head), np.log(base), equal_var=False, alternative="greater").pvalue < 0.05
    ),
    "Mann-Whitney, p < 0.01": lambda base, head: bool(
        stats.mannwhitneyu(head, base, alternative="greater").pvalue < 0.01
    ),
}


def clopper_pearson(successes: int, of: int) -> tuple[float, float]:
    """The exact 95 % interval of a rate (Clopper and Pearson, Biometrika 26, 1934)."""
    result = stats.binomtest(successes, of).proportion_ci(0.95, method="exact")
    return float(result.low), float(result.high)


def rates(suites: Suites, fails: Judge) -> dict[float, tuple[int, int]]:
    """The counts behind a rule's rates: by slowdown, the cases that the rule calls slower, and all cases.

    Without a slowdown a case is a suite, which fails if any of its benchmarks does. With one, a case is a benchmark
    that was slowed down.
    """
    cases: list[tuple[float, bool]] = []
    for suite in suites:
        if suite["slowdown"]:
            cases += [(each["planted"], fails(each)) for each in suite["benchmarks"] if each["planted"]]
        else:
            cases.append((0.0, any(map(fails, suite["benchmarks"]))))
    by_slowdown = grouped(cases, lambda case: case[0])
    return {slowdown: (sum(hit for _, hit in of), len(of)) for slowdown, of in by_slowdown.items()}


def report(evidence: Evidence) -> list[str]:
    """Lines of Markdown: the rates of the gate and of other rules on the same data, then the gate's cost in seconds."""
    suites = evidence.suites
    faults = [f"Left out: {fault}" for fault in evidence.faults]
    if not suites:
        return ["No suite is done yet.", *faults]
    planted = sorted({suite["slowdown"] for suite in suites if suite["slowdown"]})
    quiet, loaded = ([suite for suite in suites if suite["loaded"] == under_load] for under_load in (False, True))
    kinds: dict[str, Suites] = {"all": suites, "quiet": quiet, "loaded": loaded}
    judged: list[tuple[str, str, Judge]] = [
        *(("duet", kind, lambda benchmark: bool(benchmark["kind"] == "regressed")) for kind in kinds),
        *((name, "all", _of_rounds(rule)) for name, rule in RULES.items()),
    ]
    header = ["rule", "suites", "unchanged suites that fail", *(f"+{slowdown:.0%} found" for slowdown in planted)]
    lines = [row(header), f"|{'---|' * len(header)}"]
    for name, kind, fails in judged:
        rate = rates(kinds[kind], fails)
        lines.append(row([name, kind, *(_rate(*rate.get(slowdown, (0, 0))) for slowdown in (0.0, *planted))]))
    benchmarks = [benchmark for suite in suites for benchmark in suite["benchmarks"]]
    screening = [benchmark["seconds"][0] for benchmark in benchmarks]
    confirming = [benchmark["seconds"][1] for benchmark in benchmarks if benchmark["seconds"][1]] or [0.0]
    inconclusive = sum(benchmark["kind"] == "inconclusive" for benchmark in benchmarks)
    return [
        *lines,
        "",
        f"{len(suites)} suites, {len(benchmarks)} verdicts, {inconclusive} of them inconclusive; brackets hold 95 % "
        "intervals. Rules on rounds judge the two processes of a pair.",
        f"Screening took {statistics.mean(screening):.1f} s a benchmark (at most {max(screening):.1f}), "
        f"confirming {statistics.mean(confirming):.0f} s a suspect.",
        *faults,
    ]


def _of_rounds(rule: Callable[[Seconds, Seconds], bool]) -> Judge:
    def fails(benchmark: Mapping[str, Any]) -> bool:
        # A benchmark that failed has no rounds.
        with warnings.catch_warnings():
            # SciPy warns of rounds that are nearly alike, and of a single round.
            warnings.simplefilter("ignore", RuntimeWarning)
            return any(rule(pair["base"], pair["head"]) for pair in benchmark["rounds"][:1])

    return fails


def _rate(hits: int, of: int) -> str:
    if not of:
        return "-"
    low, high = clopper_pearson(hits, of)
    return f"{hits}/{of} ({low:.0%} to {high:.0%})"
