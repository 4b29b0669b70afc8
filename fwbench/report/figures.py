"""How a figure is declared: its words, the cases it shows, and what draws a panel of them."""

import io
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fwbench.machine.disturbances import disturbances
from fwbench.record import files
from fwbench.report.cases import Case, grouped, over_seeds
from fwbench.report.columns import Placed, show
from fwbench.report.look import INK, PAPER, Style, grid_of, legend, looking, printable, styles

Looks = Mapping[str, Style]

WHISKERS = "Whiskers reach from the lowest to the highest process where there are several"
DISTURBED = "disturbed, such as by other load"
_NAME = 22  # characters of a model's name above a panel
# More panels than this nobody compares.
_PANELS = 18


@dataclass(frozen=True)
class Drawing:
    """A figure and its words.

    Attributes:
        key: names its files.
        alternative: what is to be seen, for who cannot see it, and which table has the numbers.
        mode: of the workloads that it shows; empty where it shows several modes.
    """

    key: str
    title: str
    caption: str
    alternative: str
    figure: Figure
    mode: str = ""


Item = TypeVar("Item", bound=Placed)


class Group(NamedTuple):
    """What items of one panel have in common; the data of trainings alone, the batch size where panels have one."""

    subject: str
    precision: str
    data: str
    batch: int | None

    @property
    def title(self) -> str:
        """For above the panel."""
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
    """A figure of a panel for each model, declared.

    Attributes:
        key, title, caption, mode: of the drawing.
        what: is drawn in a panel, for who cannot see it.
        table: that has the numbers.
        choose: what is shown, of a report's cases.
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
        """The figure; None where these cases have nothing for it."""
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


def bars(axes: Axes, cases: Sequence[Case], looks: Looks, *, quantity: str, before: str = "") -> None:
    """A bar for each case that has a quantity, from zero; of calls with whiskers, and a mark if it was disturbed.

    Args:
        before: a quantity that is a part of it, drawn pale in front of it; empty: none.
    """
    known = [(case, number) for case in cases if (number := case.value(quantity)) is not None]
    for place, (case, number) in enumerate(known):
        look, top, mark = looks[case.workload.lane], number, ""
        axes.bar(place, number, width=0.7, color=look.colour, hatch=look.hatch, edgecolor=PAPER, linewidth=0)
        if case.workload.mode != "fit":
            values = replicates(case, quantity)
            if len(values) > 1:
                top = max(values)
                axes.vlines(place, min(values), top, color=INK, linewidth=0.9)
            mark = " *" if disturbances(case.measurements) else ""
        words = f"{show(quantity)(number)}{mark}"
        axes.annotate(words, (place, top), (0, 1), textcoords="offset points", ha="center", va="bottom", fontsize=7)
        if before:
            axes.bar(place, case.value(before) or 0.0, width=0.7, color=PAPER, alpha=0.6, linewidth=0)
    axes.set(xticks=[], yticks=[], xlim=(-0.7, len(looks) - 0.3))
    axes.spines["left"].set_visible(False)
    axes.margins(y=0.18)


def replicates(case: Case, quantity: str) -> list[float]:
    """What each process found, those of a measurement by several processes too."""
    return case.throughputs if quantity == "throughput" else case.values(quantity)


def is_default(case: Case) -> bool:
    """Whether it has the default optimizer, and is no study's variant."""
    return not case.workload.variant and case.workload.optimizer == "adam"


def largest(quantity: str, cases: Sequence[Case]) -> Iterable[Case]:
    """One default case of each lane at the largest batch of a panel for which any lane has the quantity."""
    known = [case for case in over_seeds(cases) if is_default(case) and case.value(quantity) is not None]
    for members in grouped(known, group).values():
        most = max(case.workload.batch_size for case in members)
        at_most = (case for case in members if case.workload.batch_size == most)
        yield from (of_lane[0] for of_lane in grouped(at_most, lambda case: case.workload.lane).values())


def save(drawing: Drawing, path: Path) -> Path:
    """Write a figure as its path's ending says, `.svg` or `.pdf`, the same bytes for the same records."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure = drawing.figure
    with looking():
        # Laid out once: left to itself each format does it again, and draws once more to do so.
        engine = figure.get_layout_engine()
        if engine is not None:
            engine.execute(figure)
            figure.set_layout_engine(None)
        drawn = io.BytesIO()
        metadata = {"Date" if path.suffix == ".svg" else "CreationDate": None}
        figure.savefig(drawn, format=path.suffix.removeprefix("."), metadata=metadata)
    files.write(path, drawn.getvalue())
    return path
