"""The forest plot: every lane's ratio to the baseline, its interval, and the rounds or pairs of processes behind it."""

import math
from collections.abc import Iterator, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from fwbench import units
from fwbench.compare.cases import grouped, in_words, short, title
from fwbench.compare.ratios import EQUAL
from fwbench.compare.weighing import BY_CHANCE, CLEAR, Judged
from fwbench.report.figures import Drawing
from fwbench.report.look import GRID, INK, PAPER, Style, legend, printable, styles

# Inches. A plot as narrow as this fits a phone with readable letters. Names and numbers stand above the lines, so that
# the lines have the full width.
_WIDTH, _ROW = 3.4, 0.3
_ABOVE, _BELOW = 0.36, 0.26  # rows from a line to its text and to its dots
# Sets of marks for a logarithmic axis of ratios. The first set is taken that spans the axis with at most `_MOST_MARKS`
# marks in sight.
_MARKS = (
    (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 1.75, 2.0),
    (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0),
    (1e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 1e3),
    tuple(10.0**power for power in range(-12, 13, 2)),
)
_MOST_MARKS = 7
_NAME, _LABEL = 20, 34  # characters of a model's name, and of all that names a row
# The line style of a range that rests on single processes, or on fewer than six pairs of them.
_WEAK = (0, (1.2, 1.2))
# The line style of a disturbed ratio's range.
_DISTURBED = (0, (4, 2))
# The most dots of a row; no eye can tell more apart.
_DOTS = 60


def draw(ratios: Sequence[Judged], baseline: str) -> Drawing | None:
    """Draw the plot; None if there is no ratio."""
    if not any(ratio.weighed for ratio in ratios):
        return None
    lines = list(_lines(ratios))
    numbers = {id(ratio): number for number, ratio in enumerate(ratios, 1)}
    looks = styles(ratio.case.workload.lane for ratio in ratios)
    figure = Figure(figsize=(_WIDTH, 0.8 + 0.18 * len(looks) + _ROW * len(lines)), layout="constrained")
    axes = figure.subplots()
    _scale(axes, ratios, len(lines))
    for place, (label, ratio) in enumerate(lines):
        if label:
            _write(axes, place, 0.0, label, "normal" if ratio else "bold")
        if ratio:
            _row(axes, place, ratio, looks[ratio.case.workload.lane])
            # Invisible, over all of the row: the page makes it a link.
            axes.axhspan(place - 0.5, place + 0.5, alpha=0, zorder=9, gid=f"row-{numbers[id(ratio)]}")
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.set_xlabel(printable(f"throughput over that of {title(baseline)}", 60))
    axes.tick_params(axis="x", top=True, labeltop=True)
    left, *right = (printable(short(lane, (baseline, *looks)), 24) for lane in (baseline, *looks))
    axes.set_title(f"\N{LEFTWARDS ARROW} {left} faster", loc="left", fontsize=8)
    axes.set_title(f"{right[0] if len(right) == 1 else 'lane'} faster \N{RIGHTWARDS ARROW}", loc="right", fontsize=8)
    legend(figure, looks)
    count = sum(ratio.weighed is not None for ratio in ratios)
    return Drawing(
        "ratios",
        f"Every lane against {title(baseline)}",
        f"Right of the line at 1x a lane has the higher throughput, left of it {title(baseline)} has. What crosses it "
        f"is not decided; what lies within the grey band is equal within {100 * EQUAL:.0f} %. Solid: the interval over "
        "rounds of turns or pairs of processes (n), which are the small dots. Dotted: of fewer than six pairs, or the "
        f"factor of {BY_CHANCE:g} by which single processes can differ by chance. Dashed and *: disturbed, "
        "such as by other load.",
        f"A line for each of {count} ratios on a logarithmic axis. The numbers are in the table of the same name.",
        figure,
        rows=tuple(map(_words, ratios)),
    )


def _words(ratio: Judged) -> str:
    workload, rests = ratio.workload, f"; {ratio.weighed.reason}" if ratio.weighed else ""
    named = f"{workload.subject}, {in_words(workload.mode)}, batch {workload.batch_size}, {ratio.case.lane}"
    return f"{named}: {ratio.confidence}{rests}"


def _write(axes: Axes, place: float, side: float, text: str, weight: str = "normal") -> None:
    """Write text above a row's line, at the left (0) or the right (1) end of the axis."""
    axis, end = axes.get_yaxis_transform(), "right" if side else "left"
    box = {"facecolor": PAPER, "edgecolor": "none", "pad": 0.6}
    axes.text(side, place - _ABOVE, text, transform=axis, ha=end, va="center", fontsize=7, fontweight=weight, bbox=box)


def _lines(ratios: Sequence[Judged]) -> Iterator[tuple[str, Judged | None]]:
    """Yield each mode's heading without a ratio, then its ratios; only a workload's first ratio has a label."""
    for mode, of_mode in grouped(ratios, lambda ratio: ratio.workload.mode).items():
        yield printable(in_words(mode)), None
        named = None
        for ratio in of_mode:
            workload = ratio.workload
            # The lane's options alone, as its colour and mark say which lane it is.
            options = ratio.case.lane.removeprefix(ratio.case.workload.lane)
            label = f"{printable(workload.subject, _NAME)} b{workload.batch_size}{printable(options, _NAME)}"[:_LABEL]
            yield "" if workload == named else label, ratio
            named = workload


def _scale(axes: Axes, ratios: Sequence[Judged], rows: int) -> None:
    values = [1.0]
    for weighed in filter(None, (ratio.weighed for ratio in ratios)):
        reach = (weighed.reach.low, weighed.reach.high)
        values += [weighed.ratio, *weighed.pairs, *(end for end in reach if 0 < end < math.inf)]
    low, high = min(values) / 1.15, max(values) * 1.15
    axes.axvspan(1 / (1 + EQUAL), 1 + EQUAL, color=GRID, alpha=0.18, linewidth=0)
    axes.axvline(1.0, color=INK, linewidth=0.8)
    axes.set(xscale="log", xlim=(low, high), ylim=(rows - 0.5, -0.6))
    reaching = (marks for marks in _MARKS if marks[0] <= low and high <= marks[-1])
    sights = [[mark for mark in marks if low <= mark <= high] for marks in (*reaching, _MARKS[-1])]
    shown = next((marks for marks in sights if len(marks) <= _MOST_MARKS), sights[-1])
    axes.set_xticks(shown, [f"{mark:g}x" for mark in shown])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.grid(axis="x")
    axes.grid(visible=False, axis="y")


def _row(axes: Axes, place: int, ratio: Judged, look: Style) -> None:
    weighed = ratio.weighed
    if weighed is None:
        _write(axes, place, 1.0, ratio.evidence)
        return
    reach = weighed.reach
    least, most = axes.get_xlim()
    ends = max(least, reach.low), min(most, reach.high)
    line = _DISTURBED if weighed.disturbed else "-" if reach.level >= CLEAR else _WEAK
    axes.plot(ends, (place, place), color=look.colour, linestyle=line)
    if len(weighed.pairs) > 1:
        pairs = weighed.pairs[:: -(-len(weighed.pairs) // _DOTS)]
        axes.plot(pairs, [place + _BELOW] * len(pairs), ".", color=look.colour, markersize=2.5, alpha=0.7)
    axes.plot(weighed.ratio, place, look.marker, color=look.colour)
    known = units.span((reach.low, reach.high)) if reach.level >= CLEAR else units.ratio(weighed.shown)
    _write(axes, place, 1.0, f"{known} (n={len(weighed.pairs)}){' *' if weighed.disturbed else ''}")
