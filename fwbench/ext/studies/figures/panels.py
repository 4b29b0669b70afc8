"""Figures with a panel for each model: their declaration, their sheets and their axes."""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator
from numpy.typing import NDArray

from fwbench.compare.cases import OPTIONS, Case, grouped
from fwbench.report.columns import Placed
from fwbench.report.figures import Drawing
from fwbench.report.look import WIDTH, Style, legend, looking, printable, styles

Looks = Mapping[str, Style]
Item = TypeVar("Item", bound=Placed)

DISTURBED = "disturbed, such as by other load"
_PANEL = 1.9  # inches high
_NAME = 22  # characters of a model's name above a panel
# The most panels of a figure; nobody compares more.
_PANELS = 18
# The most points of a curve; no eye can tell more apart in a panel.
_POINTS = 200
# The most marks of a panel's axis.
_MARKS = 4


@dataclass(frozen=True)
class Sheet:
    """The place that figures are drawn for: the width that they fill, and the least of one with few panels, in inches.

    `panels`: the most beside each other; `title`: the size of a panel's title, in points.
    """

    width: float
    least: float
    panels: int
    title: int


PAGE = Sheet(WIDTH, 3.4, 3, 9)
# A column of a paper's page.
COLUMN = Sheet(3.4, 3.4, 2, 7)

# The height of a paper's page, in inches; a higher figure does not fit on it.
TALLEST = 9.0

_sheet = ContextVar("sheet", default=PAGE)


@contextmanager
def on(sheet: Sheet) -> Iterator[None]:
    """Draw every figure within the context for this sheet."""
    token = _sheet.set(sheet)
    try:
        with looking(), rc_context({"axes.titlesize": sheet.title}):
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


def thin(values: Sequence[float]) -> NDArray[Any]:
    """At most `_POINTS` of the values, evenly chosen, the first and the last among them."""
    places = np.linspace(0, len(values) - 1, min(len(values), _POINTS)).round().astype(int)
    return np.take(values, places)


class Group(NamedTuple):
    """The traits that a panel's items share: `data` for epochs of training alone, `batch` if panels have one each."""

    subject: str
    precision: str
    data: str
    batch: int | None

    @property
    def title(self) -> str:
        """The panel's title."""
        precision = "" if self.precision == "fp32" else f" {self.precision}"
        data = f"\n{printable(self.data)}" if self.data else ""
        batch = f", batch {self.batch}" if self.batch else ""
        return f"{printable(self.subject, _NAME)}{precision}{data}{batch}"


def group(item: Placed, by_size: bool = False) -> Group:
    """The panel that an item stands in."""
    workload = item.workload
    data = workload.data if workload.mode == "fit" else ""
    return Group(workload.subject, workload.precision, data, workload.batch_size if by_size else None)


@dataclass(frozen=True)
class Panels(Generic[Item]):
    """The declaration of a figure with a panel for each model.

    Attributes:
        key, title, caption, mode: as in `Drawing`.
        what: a panel's contents, in words for readers who cannot see it.
        table: the table that has the numbers, as the text names it.
        choose: selects the items to show from a report's cases.
        panel: draws the items of one panel.
        by_size: whether each batch size has panels of its own.
        bars: whether the legend shows bars, not lines.
    """

    key: str
    title: str
    caption: str
    what: str
    table: str
    mode: str
    choose: Callable[[Sequence[Case]], Iterable[Item]]
    panel: Callable[[Axes, Sequence[Item], Looks], None]
    by_size: bool = False
    bars: bool = False

    def draw(self, cases: Sequence[Case]) -> Drawing | None:
        """Draw the figure; None if these cases have no numbers for it."""
        of_mode = [case for case in cases if self.mode in ("", case.workload.mode)]
        every = grouped(self.choose(of_mode), lambda item: group(item, self.by_size))
        if not every:
            return None
        groups = dict(itertools.islice(every.items(), _PANELS))
        left_out = len(groups) < len(every)
        note = f" The first {len(groups)} of {len(every)} are drawn; the tables have all." if left_out else ""
        looks = styles(item.workload.lane for items in groups.values() for item in items)
        figure, panels = grid_of(len(groups))
        for axes, (shared, items) in zip(panels, groups.items(), strict=True):
            self.panel(axes, items, looks)
            axes.set_title(shared.title)
        legend(figure, looks, self.bars)
        names = ", ".join(dict.fromkeys(shared.subject for shared in groups))
        seen = f"{self.what}, one panel for each of {names}. The numbers are in {self.table}."
        return Drawing(self.key, self.title, f"{self.caption}{note}", seen, figure, self.mode)


def is_default(case: Case) -> bool:
    """True if the case has the default options and is no study's variant."""
    return not case.workload.variant and not case.workload.marks(OPTIONS)
