"""The forest plot: every lane's ratio to the baseline, with its interval and the pairs of processes behind it."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from fwbench.report import units
from fwbench.report.cases import in_words, title
from fwbench.report.figures import Drawing
from fwbench.report.look import GRID, INK, Style, legend, looking, printable, styles
from fwbench.report.ratios import Ratio
from fwbench.report.weighing import CLEAR, UNCHANGED_CODE

_WIDTH, _ROW = 4.8, 0.19  # inches
# What a logarithmic axis of ratios may be marked with: the first of which there is room for those in sight.
_MARKS = (
    (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 1.75, 2.0),
    (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0),
    (1e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 1e3),
    tuple(10.0**power for power in range(-12, 13, 2)),
)
_MOST_MARKS = 7
_NAME = 24  # characters of a model's name
# The line of an interval that fewer than six pairs give.
_WEAK = (0, (1.2, 1.2))
# The line between the ends of what a disturbed ratio may be.
_DISTURBED = (0, (4, 2))
# More dots than this no eye tells apart.
_DOTS = 60


@dataclass(frozen=True)
class _Line:
    """A line of the plot: a mode's heading, or a ratio and what names it where it is the first of its workload."""

    label: str
    ratio: Ratio | None = None


def draw(found: Sequence[Ratio], baseline: str) -> Drawing | None:
    """The plot; None where there is no ratio."""
    if not any(ratio.weighed for ratio in found):
        return None
    lines = list(_lines(found))
    with looking():
        looks = styles(ratio.case.workload.lane for ratio in found)
        figure = Figure(figsize=(_WIDTH, 1.1 + _ROW * len(lines)), layout="constrained")
        axes = figure.subplots()
        _scale(axes, found, len(lines))
        for place, line in enumerate(lines):
            if line.ratio:
                _row(axes, place, line.ratio, looks[line.ratio.case.workload.lane])
            if line.label and len(looks) > 1:
                axes.axhline(place - 0.45, color=GRID, linewidth=0.5, alpha=0.5)
        axes.set_yticks(range(len(lines)), [line.label for line in lines])
        for label, line in zip(axes.get_yticklabels(), lines, strict=True):
            if line.ratio is None:
                label.set_fontweight("bold")
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel(printable(f"throughput over that of {title(baseline)}", 80))
        legend(figure, looks)
    count = sum(ratio.weighed is not None for ratio in found)
    band = (
        f" The grey band is how far single processes of unchanged code have differed ({UNCHANGED_CODE - 1:.0%})."
        if _of_single_processes(found)
        else ""
    )
    return Drawing(
        "ratios",
        f"Every lane against {title(baseline)}",
        f"Right of the line at 1x a lane has the higher throughput, left of it {title(baseline)} has. Filled: decided; "
        "hollow: undecided. Lines are the intervals over pairs of processes (n), dotted those of less than "
        f"{CLEAR:.0%}; small dots are the pairs; *: disturbed, such as by other load, so that the ratio lies "
        f"somewhere on the dashed line.{band}",
        f"A mark for each of {count} ratios on a logarithmic axis. The numbers are in the table of the same name.",
        figure,
    )


def _of_single_processes(found: Sequence[Ratio]) -> bool:
    return any(ratio.weighed and not ratio.weighed.interval for ratio in found)


def _lines(found: Sequence[Ratio]) -> Iterator[_Line]:
    """Modes one after another, and within a mode the lanes of a workload."""
    for mode in dict.fromkeys(ratio.comparison.workload.mode for ratio in found):
        yield _Line(printable(in_words(mode)))
        named = None
        for ratio in (ratio for ratio in found if ratio.comparison.workload.mode == mode):
            workload = ratio.comparison.workload
            # Of the lane the options alone: its colour and mark say which it is.
            options = ratio.case.lane.removeprefix(ratio.case.workload.lane)
            label = f"{printable(workload.subject, _NAME)} b{workload.batch_size}{printable(options, _NAME)}"
            yield _Line("" if workload == named else label, ratio)
            named = workload


def _scale(axes: Axes, found: Sequence[Ratio], rows: int) -> None:
    values = [1.0]
    for weighed in filter(None, (ratio.weighed for ratio in found)):
        ends = (weighed.interval.low, weighed.interval.high) if weighed.interval else ()
        values += [weighed.ratio, *ends, *weighed.pairs, *(end for end in weighed.ends if 0 < end < math.inf)]
    if _of_single_processes(found):
        axes.axvspan(1 / UNCHANGED_CODE, UNCHANGED_CODE, color=GRID, alpha=0.18, linewidth=0)
        values += [1 / UNCHANGED_CODE, UNCHANGED_CODE]
    low, high = min(values) / 1.15, max(values) * 1.15
    axes.axvline(1.0, color=INK, linewidth=0.8)
    axes.set(xscale="log", xlim=(low, high), ylim=(rows - 0.4, -0.6))
    reaching = (marks for marks in _MARKS if marks[0] <= low and high <= marks[-1])
    sights = [[mark for mark in marks if low <= mark <= high] for marks in (*reaching, _MARKS[-1])]
    shown = next((marks for marks in sights if len(marks) <= _MOST_MARKS), sights[-1])
    axes.set_xticks(shown, [f"{mark:g}x" for mark in shown])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.grid(axis="x")
    axes.grid(visible=False, axis="y")


def _row(axes: Axes, place: int, ratio: Ratio, look: Style) -> None:
    weighed = ratio.weighed
    text = ratio.why
    if weighed:
        if weighed.interval:
            line = "-" if weighed.interval.level >= CLEAR else _WEAK
            axes.plot((weighed.interval.low, weighed.interval.high), (place, place), color=look.colour, linestyle=line)
            pairs = weighed.pairs[:: -(-len(weighed.pairs) // _DOTS)]
            axes.plot(pairs, [place + 0.28] * len(pairs), ".", color=look.colour, markersize=2.5, alpha=0.7)
        if weighed.bracket:
            low, high = axes.get_xlim()
            ends = max(low, weighed.bracket[0]), min(high, weighed.bracket[1])
            axes.plot(ends, (place, place), color=look.colour, linestyle=_DISTURBED, linewidth=1.0)
        filled = "full" if weighed.confidence != "undecided" else "none"
        axes.plot(weighed.ratio, place, look.marker, color=look.colour, fillstyle=filled)
        text = f"{units.ratio(weighed.shown)} (n={len(weighed.pairs)}){' *' if weighed.disturbed else ''}"
    axes.text(1.015, place, text, transform=axes.get_yaxis_transform(), va="center", fontsize=7)
