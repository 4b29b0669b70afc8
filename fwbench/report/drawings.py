"""All figures of a setting, in the order of reading."""

from collections.abc import Sequence

from fwbench.compare.cases import Case
from fwbench.extensions import added
from fwbench.report import forest
from fwbench.report.figures import Drawing
from fwbench.report.look import looking
from fwbench.report.ratios import ratios


def draw(cases: Sequence[Case], baseline: str | None) -> list[Drawing]:
    """The forest plot, unless there is no baseline lane, and every figure of the extensions."""
    with looking():
        plot = forest.draw(ratios(cases, baseline), baseline) if baseline else None
    return [*([plot] if plot else []), *added("figures", cases, baseline)]
