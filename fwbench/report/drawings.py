"""All figures of a setting, in the order of reading."""

from collections.abc import Iterator, Sequence

from fwbench.report import figures, forest, roofline, study_figures, tradeoffs
from fwbench.report.cases import Case
from fwbench.report.figures import Drawing
from fwbench.report.look import PAGE, Sheet
from fwbench.report.ratios import ratios


def draw(cases: Sequence[Case], baseline: str | None, sheet: Sheet = PAGE) -> Iterator[Drawing]:
    """Every figure that these cases have something for, as wide as the sheet.

    Args:
        baseline: the lane that what compares does so with.
    """
    # A column of a paper has no room for names, intervals and numbers beside each other.
    plot = forest.draw(ratios(cases, baseline), baseline) if baseline and sheet is PAGE else None
    if plot:
        yield plot
    yield from figures.draw(cases, baseline, sheet)
    yield from study_figures.draw(cases, sheet)
    yield from tradeoffs.draw(cases, sheet)
    yield from roofline.draw(cases, sheet)
