"""A figure's declaration: its words, the cases it shows, and the function that draws a panel of them."""

import io
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fwbench.compare.cases import OPTIONS, Case, grouped
from fwbench.record import files
from fwbench.report.columns import Placed
from fwbench.report.look import Style, grid_of, legend, looking, printable, styles

Looks = Mapping[str, Style]

DISTURBED = "disturbed, such as by other load"
_NAME = 22  # characters of a model's name above a panel
# The most panels of a figure; nobody compares more.
_PANELS = 18
# In a viewer with a dark theme the figure is dark, too, in the same hues.
_DARK = b"@media (prefers-color-scheme: dark){svg{filter: invert(0.9) hue-rotate(180deg)}}"


@dataclass(frozen=True)
class Drawing:
    """A figure and its words.

    Attributes:
        key: the name of its files.
        alternative: words for readers who cannot see the figure: its contents, and the table that has the numbers.
        mode: the mode of the workloads that it shows; empty if it shows several modes.
        rows: a link's words for each row of the table with this key; the page makes the artist `row-N` a link to row N.
    """

    key: str
    title: str
    caption: str
    alternative: str
    figure: Figure
    mode: str = ""
    rows: tuple[str, ...] = ()


Item = TypeVar("Item", bound=Placed)


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


def save(drawing: Drawing, path: Path) -> Path:
    """Write a figure as its path's ending says, `.svg` or `.pdf`, the same bytes for the same records."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure = drawing.figure
    with looking():
        # Lay out once: otherwise each format lays out again, and draws once more to do so.
        engine = figure.get_layout_engine()
        if engine is not None:
            engine.execute(figure)
            figure.set_layout_engine(None)
        drawn = io.BytesIO()
        metadata = {"Date" if path.suffix == ".svg" else "CreationDate": None}
        figure.savefig(drawn, format=path.suffix.removeprefix("."), metadata=metadata)
    # A PDF has no such tag. The page has colours of its own and removes the style.
    files.write(path, drawn.getvalue().replace(b'<style type="text/css">', b'<style type="text/css">' + _DARK, 1))
    return path
