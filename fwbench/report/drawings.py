"""All figures of a setting, in the order of reading."""

from collections.abc import Iterator, Sequence

from fwbench.report import figures, forest, tradeoffs
from fwbench.report.cases import Case
from fwbench.report.figures import Drawing
from fwbench.report.ratios import ratios


def draw(cases: Sequence[Case], baseline: str | None) -> Iterator[Drawing]:
    """Every figure that these cases have something for; what compares does so with the baseline lane."""
    plot = forest.draw(ratios(cases, baseline), baseline) if baseline else None
    if plot:
        yield plot
    yield from figures.draw(cases, baseline)
    yield from tradeoffs.draw(cases)
