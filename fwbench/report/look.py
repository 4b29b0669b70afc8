"""The look of figures: a lane's colour, marker, hatch and line; and legends.

A lane looks the same everywhere: one colour (Okabe and Ito's, which colour-blind readers can tell apart), one marker,
one hatch and one kind of line, so that a figure can be read in grey too.
"""

import dataclasses
import re
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

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
    "axes.titlesize": 9,
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
_ENTRY = 1.8  # inches of a lane in the legend
# Inches of a whole line of the page.
WIDTH = 7.5


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
def looking() -> Iterator[None]:
    """Give this look to every figure that is drawn and saved within the context."""
    with rc_context(_LOOK), warnings.catch_warnings():
        # A glyph in a name: for an SVG the viewer's font has it, and a PDF shows a box.
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        yield


def legend(figure: Figure, looks: dict[str, Style], bars: bool = False) -> None:
    """Draw the legend: the lanes above the panels, as lines or as bars."""
    handles = [
        Patch(facecolor=look.colour, hatch=look.hatch, edgecolor=PAPER, label=printable(title(lane)))
        if bars
        else Line2D([], [], color=look.colour, marker=look.marker, linestyle=look.line, label=printable(title(lane)))
        for lane, look in looks.items()
    ]
    columns = max(1, min(len(handles), int(figure.get_figwidth() / _ENTRY)))
    figure.legend(handles=handles, loc="outside upper left", ncols=columns)


def printable(text: str, most: int = 32) -> str:
    """A name without what XML cannot hold, cut to leave room for the figure; tables have it whole."""
    return cut(visible(re.sub(r"\s", " ", text)), most)
