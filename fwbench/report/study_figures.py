"""The studies' figures of training: time, energy and accuracy against batch size, time and memory in bars.

Those of inference and the curves, which any report has, are in `fwbench.report.figures`.
"""

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from fwbench.report import units
from fwbench.report.cases import Case, grouped, over_seeds
from fwbench.report.figures import Drawing
from fwbench.report.fits import training_seconds
from fwbench.report.look import (
    PAGE,
    PAPER,
    Sheet,
    Style,
    grid_of,
    legend,
    logarithmic,
    looking,
    named,
    printable,
    styles,
)

# What shares a panel.
_Group = tuple[str, str, str]


@dataclass(frozen=True)
class Scaling:
    """A metric against the batch size, and how far its values lie apart.

    Attributes:
        of: the metric's name; of several the first that a case has.
        mean: whether values over seeds have a mean and a standard deviation, as scores do; others have a median, and
            their range over processes.
    """

    key: str
    title: str
    mode: str
    axis: str
    of: tuple[str, ...]
    show: Callable[[float], str]
    table: str
    mean: bool = False


SCALINGS = (
    Scaling(
        "training-steps-by-batch",
        "Throughput of training steps against batch size",
        "train_step",
        "samples/s",
        ("throughput",),
        units.rate,
        "the table of training steps",
    ),
    Scaling(
        "epoch-time-by-batch",
        "Time of an epoch against batch size",
        "fit",
        "a steady epoch",
        ("epoch_time",),
        units.seconds,
        "the table of epoch times",
    ),
    Scaling(
        "epoch-energy-by-batch",
        "Energy of an epoch against batch size",
        "fit",
        "energy of an epoch",
        ("epoch_energy",),
        units.joules,
        "Table IV",
    ),
    Scaling(
        "accuracy-by-batch",
        "Accuracy against batch size",
        "fit",
        "top-1",
        ("test_top1", "validation_top1"),
        "{:.0%}".format,
        "the table of epoch times",
        mean=True,
    ),
)


def draw(cases: Sequence[Case], sheet: Sheet = PAGE) -> list[Drawing]:
    """Every figure that these cases have something for, as wide as the sheet."""
    measured = [case for case in cases if case.replicates and not case.internal]
    fits = [case for case in measured if case.workload.mode == "fit"]
    with looking(sheet):
        drawings = (
            *(_scaling(scaling, [c for c in measured if c.workload.mode == scaling.mode]) for scaling in SCALINGS),
            _training_time(fits),
            *(_training_memory(fits, place, name) for place, name in (("host", "process"), ("device", "device"))),
        )
    return [drawing for drawing in drawings if drawing is not None]


def _scaling(scaling: Scaling, cases: Sequence[Case]) -> Drawing | None:
    groups = {
        group: members
        for group, members in grouped(over_seeds(cases), _group).items()
        if len({case.workload.batch_size for case in members if _values(scaling, case)}) > 1
    }
    if not groups:
        return None
    looks = styles(case.workload.lane for members in groups.values() for case in members)
    figure, panels = grid_of(len(groups))
    for axes, (group, members) in zip(panels, groups.items(), strict=True):
        found = [_line(axes, scaling, of_lane, looks) for of_lane in grouped(members, lambda case: case.lane).values()]
        sizes = sorted({case.workload.batch_size for case in members})
        axes.set(title=_title(group), xlabel="batch size", ylabel=scaling.axis, xscale="log")
        axes.set_xticks(sizes, [str(size) for size in sizes])
        axes.xaxis.set_minor_locator(NullLocator())
        if scaling.mean:
            axes.yaxis.set_major_formatter(lambda value, _: scaling.show(value))
        else:
            axes.set(yscale="log")
            logarithmic(axes, "y", [value for values in found for value in values], scaling.show)
    legend(figure, looks)
    spread = "mean and standard deviation over seeds" if scaling.mean else "median and range over processes and seeds"
    return Drawing(
        scaling.key,
        scaling.title,
        f"One panel a model: {spread}; dotted where optimizer or variant is not the default.",
        f"Lines of {scaling.axis} over batch size, one line a lane, one panel for each of {_named(groups)}. The "
        f"numbers are in {scaling.table}.",
        figure,
    )


def _line(axes: Axes, scaling: Scaling, cases: Sequence[Case], looks: dict[str, Style]) -> list[float]:
    """A lane's line with bars of its spread; returns all values in it."""
    points = sorted((case.workload.batch_size, values) for case in cases if (values := _values(scaling, case)))
    if not points:
        return []
    middles = [(statistics.mean if scaling.mean else statistics.median)(values) for _, values in points]
    below, above = [], []
    for middle, (_, values) in zip(middles, points, strict=True):
        deviation = statistics.stdev(values) if scaling.mean and len(values) > 1 else 0.0
        below.append(deviation if scaling.mean else middle - min(values))
        above.append(deviation if scaling.mean else max(values) - middle)
    look = looks[cases[0].workload.lane]
    axes.errorbar(
        [size for size, _ in points],
        middles,
        yerr=[below, above],
        color=look.colour,
        marker=look.marker,
        linestyle=look.line if _is_default(cases[0]) else ":",
        capsize=2,
    )
    return [value for _, values in points for value in values]


def _training_time(cases: Sequence[Case]) -> Drawing | None:
    """Of each model's largest batch: the three-framework study's seconds of all epochs after the first."""
    return _bars(
        cases,
        "training-time-bars",
        "Training time",
        "Seconds of all epochs after the first, which is the warm-up, at the largest batch.",
        "the table of training time",
        lambda case: [(training_seconds(case), units.seconds)],
    )


def _training_memory(cases: Sequence[Case], place: str, name: str) -> Drawing | None:
    """Of each model's largest batch: memory before training and at its peak."""
    return _bars(
        cases,
        f"training-memory-{place}",
        f"Memory of training ({name})",
        f"Memory of the {name}: before training (pale) and at its peak, at the largest batch.",
        "the table of training time",
        lambda case: [
            (case.value(f"{place}_peak_memory"), units.size),
            (case.value(f"{place}_initial_memory"), units.size),
        ],
    )


_Parts = list[tuple[float | None, Callable[[float], str]]]


def _bars(
    cases: Sequence[Case], key: str, title: str, caption: str, table: str, parts: Callable[[Case], _Parts]
) -> Drawing | None:
    """A panel a model, a bar a lane; a second part of a bar is drawn pale in front of the first."""
    found = [case for case in over_seeds(cases) if _is_default(case) and parts(case)[0][0] is not None]
    groups = {
        group: [c for c in members if c.workload.batch_size == max(m.workload.batch_size for m in members)]
        for group, members in grouped(found, _group).items()
    }
    if not groups:
        return None
    looks = styles(case.workload.lane for case in found)
    figure, panels = grid_of(len(groups))
    for axes, (group, members) in zip(panels, groups.items(), strict=True):
        for place, case in enumerate(members):
            look = looks[case.workload.lane]
            (whole, show), *rest = parts(case)
            assert whole is not None
            bars = axes.bar(place, whole, width=0.7, color=look.colour, hatch=look.hatch, edgecolor=PAPER, linewidth=0)
            axes.bar_label(bars, [show(whole)], fontsize=7, padding=1)
            for part, _ in rest:
                axes.bar(place, part or 0.0, width=0.7, color=PAPER, alpha=0.6, linewidth=0)
        axes.set(title=f"{_title(group)}, batch {members[0].workload.batch_size}", xlim=(-0.7, len(looks) - 0.3))
        axes.set(xticks=[], yticks=[])
        axes.spines["left"].set_visible(False)
        axes.margins(y=0.18)
    legend(figure, looks, bars=True)
    return Drawing(
        key,
        title,
        f"{caption} One panel a model, each with its own scale from zero.",
        f"Bars, one a lane, one panel for each of {_named(groups)}. The numbers are in {table}.",
        figure,
    )


def _values(scaling: Scaling, case: Case) -> list[float]:
    return next((values for name in scaling.of if (values := [v for v in case.values(name) if v > 0])), [])


def _is_default(case: Case) -> bool:
    return not case.workload.variant and case.workload.optimizer == "adam"


def _group(case: Case) -> _Group:
    workload = case.workload
    return workload.subject, workload.precision, workload.data if workload.mode == "fit" else ""


def _title(group: _Group) -> str:
    model, precision, data = group
    return named(model, precision) + (f"\n{printable(data)}" if data else "")


def _named(groups: Iterable[_Group]) -> str:
    return ", ".join(dict.fromkeys(group[0] for group in groups))
