"""The look of figures: a lane's colour, marker, hatch and line; panels, axes and legends.

A lane looks the same everywhere: one colour (Okabe and Ito's, which colour-blind readers can tell apart), one marker,
one hatch and one kind of line, so that a figure can be read in grey too.
"""

import dataclasses
import math
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import NullLocator
from numpy.typing import NDArray

from fwbench.compare.cases import title
from fwbench.record.lanes import LANES
from fwbench.text import cut, visible

# In the page's figures, the page's own colours replace these two.
INK, PAPER = "#333333", "#fffffe"
GRID = "#9a9a9a"
_LOOK: Any = {
    **dict.fromkeys(("axes.edgecolor", "axes.labelcolor", "text.color", "xtick.color", "ytick.color"), INK),
    **dict.fromkeys(("axes.labelsize", "font.size", "legend.fontsize"), 8),
    **dict.fromkeys(("xtick.labelsize", "ytick.labelsize"), 7),
    **dict.fromkeys(("axes.spines.right", "axes.spines.top"), False),
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "figure.facecolor": PAPER,
    "grid.alpha": 0.35,
    "grid.color": GRID,
    "grid.linewidth": 0.5,
    "hatch.linewidth": 0.8,
    "legend.frameon": False,
    "lines.linewidth": 1.4,
    "lines.markersize": 4.5,
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "fwbench",
    # A name from a record is text, never mathematics.
    "text.parse_math": False,
}
_PANEL = 1.9  # inches high
_ENTRY = 1.8  # inches of a lane in the legend
# The most points of a curve; no eye can tell more apart in a panel.
_POINTS = 200
# The most marks of a panel's axis.
_MARKS = 4


@dataclass(frozen=True)
class Sheet:
    """The place that figures are drawn for: the width that they fill, and the least of one with few panels, in inches.

    `panels` and `lanes` (of a legend): the most beside each other; `title`: the size of a panel's title, in points.
    """

    width: float
    least: float
    panels: int
    lanes: int
    title: int


PAGE = Sheet(7.5, 3.4, 3, 4, 9)
# A column of a paper's page.
COLUMN = Sheet(3.4, 3.4, 2, 2, 7)

# The height of a paper's page, in inches; a higher figure does not fit on it.
TALLEST = 9.0

_sheet = ContextVar("sheet", default=PAGE)


@dataclass(frozen=True)
class Style:
    """The look of a lane."""

    colour: str
    marker: str
    hatch: str
    line: Any


# fwbench's own lanes take the first of these, in the order in which they are listed; other lanes take the rest.
_STYLES = (
    Style("#D55E00", "o", "", "-"),
    Style("#E69F00", "^", "///", "-."),
    Style("#0072B2", "s", "\\\\\\", (0, (4, 1.5))),
    Style("#009E73", "D", "xxx", (0, (1, 1))),
    Style("#CC79A7", "v", "---", (0, (6, 1, 1, 1, 1, 1))),
    Style("#56B4E9", "P", "+++", (0, (8, 2))),
    Style("#7F7F7F", "X", "|||", (0, (2, 2))),
    # Okabe and Ito have no more colours; three of these are Paul Tol's.
    Style("#AA4499", "<", "...", (0, (5, 1, 1, 1))),
    Style("#999933", ">", "//--", (0, (3, 3))),
    Style("#6A5ACD", "p", "\\\\||", (0, (1, 3))),
    Style("#A0522D", "h", "oo", (0, (7, 1, 2, 1))),
    Style("#44AA99", "*", "++//", (0, (10, 1))),
)


def styles(lanes: Iterable[str]) -> dict[str, Style]:
    """The lanes' styles: the same in every report for fwbench's own lanes, by the order of names for others."""
    shown = list(dict.fromkeys(lanes))
    listed = [name for name, lane in LANES.items() if lane.package == "fwbench" and not lane.internal]
    known = {lane: _style(place) for place, lane in enumerate((*listed, *sorted(set(shown) - set(listed))))}
    return {lane: known[lane] for lane in shown}


def _style(place: int) -> Style:
    """The style at a place; after the last one, each colour returns with another's marker, hatch and line."""
    turn, place = divmod(place, len(_STYLES))
    return dataclasses.replace(_STYLES[(place + turn) % len(_STYLES)], colour=_STYLES[place].colour)


@contextmanager
def looking(sheet: Sheet = PAGE) -> Iterator[None]:
    """Give this look to every figure that is drawn and saved within the context."""
    token = _sheet.set(sheet)
    try:
        with rc_context(_LOOK | {"axes.titlesize": sheet.title}), warnings.catch_warnings():
            # A glyph in a name: for an SVG the viewer's font has it, and a PDF shows a box.
            warnings.filterwarnings("ignore", "Glyph .* missing from font")
            yield
    finally:
        _sheet.reset(token)


def grid_of(count: int) -> tuple[Figure, list[Axes]]:
    """A figure of `count` panels."""
    sheet = _sheet.get()
    columns = min(sheet.panels, count)
    rows = -(-count // columns)
    width = max(sheet.least, sheet.width * columns / sheet.panels)
    figure = Figure(figsize=(width, 0.5 + _PANEL * rows), layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for empty in panels[count:]:
        empty.set_axis_off()
    return figure, panels[:count]


def one_panel(height: float) -> tuple[Figure, Axes]:
    """A figure of one panel, as wide as the sheet; its height is in inches."""
    figure = Figure(figsize=(_sheet.get().width, height), layout="constrained")
    return figure, figure.subplots()


def paired(count: int) -> tuple[Figure, list[tuple[Axes, Axes]]]:
    """A figure of `count` pairs of panels: one above the other, or side by side if a row cannot hold all pairs."""
    sheet = _sheet.get()
    if count <= sheet.panels:
        width = max(sheet.least, sheet.width * count / sheet.panels)
        figure = Figure(figsize=(width, 0.4 + 2 * _PANEL), layout="constrained")
        upper, lower = figure.subplots(2, count, squeeze=False, sharex="col")
        return figure, list(zip(upper, lower, strict=True))
    figure = Figure(figsize=(sheet.width, 0.4 + _PANEL * count), layout="constrained")
    return figure, [(left, right) for left, right in figure.subplots(count, 2)]


def legend(figure: Figure, looks: dict[str, Style], bars: bool = False) -> None:
    """Draw the legend: the lanes above the panels, as lines or as bars."""
    handles = [
        Patch(facecolor=look.colour, hatch=look.hatch, edgecolor=PAPER, label=printable(title(lane)))
        if bars
        else Line2D([], [], color=look.colour, marker=look.marker, linestyle=look.line, label=printable(title(lane)))
        for lane, look in looks.items()
    ]
    columns = max(1, min(_sheet.get().lanes, len(handles), int(figure.get_figwidth() / _ENTRY)))
    figure.legend(handles=handles, loc="outside upper left", ncols=columns)


def logarithmic(axes: Axes, way: Literal["x", "y"], values: Sequence[float], show: Callable[[float], str]) -> None:
    """Set a logarithmic axis that runs from one round number to another, so that even a narrow one has two marks."""
    # A value is 0 if it took less time than the clock resolves; a logarithmic axis cannot show it.
    values = [value for value in values if value > 0] or [1.0]
    ticks = round_marks(values)
    axis = axes.xaxis if way == "x" else axes.yaxis
    axis.set_ticks(ticks, labels=[show(tick) for tick in ticks])
    axis.set_minor_locator(NullLocator())
    limits = (min(ticks[0], *values) * 0.9, max(ticks[-1], *values) * 1.1)
    axes.set(**{f"{way}lim": limits})


def round_marks(values: Sequence[float]) -> list[float]:
    """Two to four round numbers that enclose the values (one or more, above 0), as far as so few can."""
    low, high = min(values), max(values)
    decades = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    for steps in ((1, 2, 5), (1,)):
        marks = [step * 10.0**decade for decade in decades for step in steps]
        ticks = [
            *[mark for mark in marks if mark <= low][-1:],
            *[mark for mark in marks if low < mark < high],
            *[mark for mark in marks if mark >= high and mark > low][:1],
        ]
        if len(ticks) <= _MARKS:
            return ticks
    return ticks[:: -(-len(ticks) // _MARKS)]


def printable(text: str, most: int = 32) -> str:
    """A name without what XML cannot hold, cut to leave room for the figure; tables have it whole."""
    return cut(visible(re.sub(r"\s", " ", text)), most)


def thin(values: Sequence[float]) -> NDArray[Any]:
    """At most `_POINTS` of the values, evenly chosen, the first and the last among them."""
    places = np.linspace(0, len(values) - 1, min(len(values), _POINTS)).round().astype(int)
    return np.take(values, places)
