"""How often `fwbench bisect` names a wrong step, and what it needs: simulated, into bisect.md beside this file.

    python docs/evidence/steps.py        # two minutes on one core

Everything is drawn with fixed seeds.
"""

import json
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fwbench.ext.causes.steps import Search
from fwbench.ext.trials.rates import clopper_pearson
from fwbench.text import row

HERE = Path(__file__).resolve()
SUITES = HERE.with_name("duet.jsonl")
REVISIONS, SEARCHES = 61, 1000
# Pairs of each comparison of plain bisection.
PLAIN = 6

Noise = Callable[[np.random.Generator], Callable[[], float]]


def modelled(draw: np.random.Generator) -> Callable[[], float]:
    """Pairs of one search: scatter of 0.5 to 2 % by Student's t with 3 degrees, one in eight ten times as far."""
    scatter = math.exp(draw.uniform(math.log(0.005), math.log(0.02))) / math.sqrt(3)
    return lambda: scatter * draw.standard_t(3) * (10 if draw.random() < 1 / 8 else 1)


def measured() -> Noise:
    """Pairs of one benchmark of the self-test in which nothing was planted, their signs drawn by lot."""
    pairs: dict[str, list[float]] = {}
    for line in SUITES.read_text(encoding="utf-8").splitlines()[1:]:
        for benchmark in json.loads(line)["benchmarks"]:
            if not benchmark["planted"]:
                for stage in ("screening", "confirmation"):
                    pairs.setdefault(benchmark["id"], []).extend(benchmark[stage].get("latency", ()))
    benchmarks = list(pairs.values())

    def noise(draw: np.random.Generator) -> Callable[[], float]:
        own = benchmarks[draw.integers(len(benchmarks))]
        return lambda: own[draw.integers(len(own))] * draw.choice((-1, 1))

    return noise


@dataclass(frozen=True)
class Series:
    """What is planted.

    Attributes:
        steps: changes of time in percent, each at another revision that is drawn by lot.
        drift: change from each revision to the next, in percent.
        within: the most revisions between the first step and the last; 0: any number.
    """

    title: str
    steps: Sequence[float] = ()
    drift: float = 0.0
    within: int = 0

    def levels(self, draw: np.random.Generator) -> np.ndarray:
        """The logarithm of each revision's time."""
        changes = np.full(REVISIONS - 1, math.log1p(self.drift / 100))
        span = self.within or len(changes)
        begin = draw.integers(len(changes) - span + 1)
        places = sorted(begin + draw.choice(span, len(self.steps), replace=False))
        changes[places] += np.log1p(np.array(self.steps) / 100)
        return np.append(0.0, np.cumsum(changes))


SERIES = (
    Series("none"),
    Series("one of +3 %", (3,)),
    Series("one of +5 %", (5,)),
    Series("one of -10 %", (-10,)),
    Series("two, +8 % and -3 %", (8, -3)),
    Series("two that cancel out, anywhere", (6, -5.66)),
    Series("two that cancel out, within 10 commits", (6, -5.66), within=10),
    Series("three, +6 %, -4 %, +5 %", (6, -4, 5)),
    Series("drift of 0.3 % a commit", drift=0.3),
)


@dataclass
class Counts:
    """What searches over one kind of series came to."""

    wrong: int = 0
    named: int = 0
    covered: int = 0
    all_named: int = 0
    unexplained: int = 0
    comparisons: list[int] = field(default_factory=list)
    pairs: list[int] = field(default_factory=list)
    to_last: list[int] = field(default_factory=list)
    plain_wrong: int = 0
    plain_comparisons: list[int] = field(default_factory=list)


def plain(levels: np.ndarray, pair: Callable[[], float]) -> tuple[int | None, int]:
    """Plain bisection: the step that it names between neighbours, and its comparisons."""

    def compare(first: int, last: int) -> float:
        return statistics.median(levels[last] - levels[first] + pair() for _ in range(PLAIN))

    whole, comparisons = compare(0, REVISIONS - 1), 1
    if abs(whole) < math.log1p(0.02):
        return None, comparisons
    good, bad = 0, REVISIONS - 1
    while bad - good > 1:
        middle = (good + bad) // 2
        is_bad = compare(0, middle) / whole > 0.5
        good, bad = (good, middle) if is_bad else (middle, bad)
        comparisons += 1
    return good, comparisons


def searched(levels: np.ndarray, pair: Callable[[], float]) -> Search:
    search = Search(REVISIONS, lambda first, last: float(levels[last] - levels[first] + pair()))
    search.run()
    return search


def simulate(series: Series, noise: Noise, seed: int) -> Counts:
    counts = Counts()
    for number in range(SEARCHES):
        draw = np.random.default_rng((seed, number))
        levels, pair = series.levels(draw), noise(draw)
        changes = np.diff(levels)
        # What a drift adds from one commit to the next is no step.
        planted = {int(place) for place in np.flatnonzero(np.abs(changes) > math.log1p(0.01))}
        search = searched(levels, pair)
        named = {step.first for step in search.steps}
        counts.wrong += bool(named - planted)
        counts.named += len(named & planted)
        counts.all_named += planted <= named
        counts.covered += sum(
            step.low <= changes[step.first] <= step.high for step in search.steps if step.first in planted
        )
        counts.unexplained += bool(search.unexplained)
        counts.comparisons.append(len(search.compared))
        counts.pairs.append(sum(each.pairs for each in search.compared))
        if search.steps:
            until = search.compared.index(search.steps[-1]) + 1
            counts.to_last.append(sum(each.pairs for each in search.compared[:until]))
        place, comparisons = plain(levels, pair)
        counts.plain_wrong += place is not None and place not in planted
        counts.plain_comparisons.append(comparisons)
    return counts


def table(noise: Noise, seed: int) -> list[str]:
    """Markdown: a row for each kind of series."""
    lines = [
        "| planted | searches with a wrong step | steps named | all of a search's | rest reported | comparisons "
        "| pairs | to its last step | intervals that hold | plain bisection: wrong step | comparisons |",
        f"|{'---|' * 11}",
    ]
    for series in SERIES:
        counts = simulate(series, noise, seed)
        planted = SEARCHES * len(series.steps)
        low, high = clopper_pearson(counts.wrong, SEARCHES)
        lines.append(
            row(
                [
                    series.title,
                    f"{counts.wrong}/{SEARCHES} ({low:.1%} to {high:.1%})",
                    f"{counts.named / planted:.0%}" if planted else "-",
                    f"{counts.all_named / SEARCHES:.0%}" if planted else "-",
                    f"{counts.unexplained / SEARCHES:.0%}",
                    _typical(counts.comparisons),
                    _typical(counts.pairs),
                    _typical(counts.to_last) if counts.to_last else "-",
                    f"{counts.covered / counts.named:.0%}" if counts.named else "-",
                    f"{counts.plain_wrong / SEARCHES:.0%}",
                    _typical(counts.plain_comparisons),
                ]
            )
        )
    return lines


def _typical(counts: Sequence[int]) -> str:
    return f"{statistics.median(counts):.0f} ({np.quantile(counts, 0.9):.0f})"


def main() -> None:
    """Write the page."""
    page = PAGE.format(
        searches=SEARCHES,
        revisions=REVISIONS,
        plain=PLAIN,
        modelled="\n".join(table(modelled, 1)),
        measured="\n".join(table(measured(), 2)),
    )
    HERE.with_name("bisect.md").write_text(page, encoding="utf-8")


PAGE = """\
# How often `fwbench bisect` names a wrong step

Made by `python docs/evidence/steps.py`: {searches} simulated searches a row, each over {revisions} revisions, with
steps at revisions that are drawn by lot. The first table's noise comes from a model, the second one's from
measurements.

A step is wrong if it is named where none was planted. Brackets after a rate hold its 95 % interval. Numbers of
comparisons and pairs are medians; nine of ten searches do not exceed the number in brackets. "To its last step" counts
the pairs until a search named its last step; further pairs look for more. "Rest reported" is the share of searches
that report a stretch whose change no named step explains. If all planted steps were named, such a report is false:
the 5 % are about named steps alone.

Plain bisection compares both ends; where they differ by more than 2 %, it halves until it comes to neighbours, and
names these. Each of its comparisons is with the first revision, by the median of {plain} pairs. It can name
one step at most. In a drift, where each revision is 0.3 % slower than the one before, any step is wrong.

## Noise by a model

Pairs scatter by Student's t with three degrees of freedom. Each search draws its standard deviation between 0.5 and
2 %; one pair in eight lies ten times as far out.

{modelled}

## Noise as measured

Each search takes one benchmark's pairs of unchanged code from [the duet's evidence](duet.md), with signs drawn by lot.
In half of the suites other processes came and went.

{measured}
"""


if __name__ == "__main__":
    main()
