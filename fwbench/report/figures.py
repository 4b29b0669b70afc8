"""The figures: each takes a setting's cases and draws, or is left out where there is nothing to draw."""

import io
import itertools
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from fwbench.machine.disturbances import disturbances
from fwbench.record import files
from fwbench.report import answers, calls, units
from fwbench.report.cases import Case, Comparison, comparisons, grouped, over_seeds, title
from fwbench.report.look import (
    GRID,
    INK,
    PAGE,
    PAPER,
    Sheet,
    Style,
    grid_of,
    legend,
    logarithmic,
    looking,
    named,
    one_panel,
    paired,
    panels_of,
    printable,
    round_marks,
    styles,
    thin,
)


@dataclass(frozen=True)
class Drawing:
    """A figure and its words.

    Attributes:
        key: names its files.
        alternative: what is to be seen, for who cannot see it, and which table has the numbers.
    """

    key: str
    title: str
    caption: str
    alternative: str
    figure: Figure


def draw(cases: Sequence[Case], baseline: str | None, sheet: Sheet = PAGE) -> list[Drawing]:
    """Every figure that these cases have something for, as wide as the sheet.

    Args:
        baseline: the lane that what compares does so with.
    """
    # Beside one device several would be lines and bars that compare nothing.
    measured = [case for case in cases if case.replicates and not case.internal and case.workload.devices == 1]
    inference = over_seeds(case for case in measured if case.workload.mode == "inference")
    fits = [case for case in measured if case.workload.mode == "fit"]
    with looking(sheet):
        drawings = (
            _by_batch(inference),
            *(_bars(inference, quantity) for quantity in _QUANTITIES),
            # A column of a paper has no room for a panel for each workload.
            *(
                _latencies([case for case in measured if case.workload.mode == mode], mode)
                for mode in _MODES
                if sheet is PAGE
            ),
            _break_even([case for case in measured if case.workload.mode in _MODES], baseline),
            _epochs(fits),
            *_curves(fits, "training-curves", "Training curves", "epoch", _of_epochs),
            *_curves(fits, "learning-curves", "Learning curves", "step", _of_steps),
        )
        return [drawing for drawing in drawings if drawing is not None]


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


_MODES = {"inference": "inference", "train_step": "training steps"}


def _by_batch(cases: Sequence[Case]) -> Drawing | None:
    cases = [case for case in cases if case.value("throughput")]
    groups, note = panels_of(grouped(cases, lambda case: (case.workload.subject, case.workload.precision)))
    if not groups:
        return None
    looks = styles(case.workload.lane for members in groups.values() for case in members)
    figure, panels = grid_of(len(groups))
    for axes, ((model, precision), members) in zip(panels, groups.items(), strict=False):
        sizes = sorted({case.workload.batch_size for case in members})
        speeds: list[float] = []
        for lane, of_lane in grouped(members, lambda case: case.workload.lane).items():
            speeds += _line(axes, sorted(of_lane, key=lambda case: case.workload.batch_size), looks[lane])
        axes.set(title=named(model, precision), xlabel="batch size", ylabel="samples/s", xscale="log", yscale="log")
        axes.set_xticks(sizes, [str(size) for size in sizes])
        axes.xaxis.set_minor_locator(NullLocator())
        logarithmic(axes, "y", speeds, units.rate)
    legend(figure, looks)
    return Drawing(
        "throughput-by-batch",
        "Throughput against batch size",
        f"One panel a model; both axes are logarithmic. {_WHISKERS}; hollow: {_DISTURBED}.{note}",
        _alternative("Lines of samples per second over batch size, one line a lane", groups, "Table II"),
        figure,
    )


_WHISKERS = "Whiskers reach from the lowest to the highest process where there are several"
_DISTURBED = "disturbed, such as by other load"


def _line(axes: Axes, cases: Sequence[Case], look: Style) -> list[float]:
    """A lane's line over batch sizes; returns the throughputs that it needs room for."""
    sizes = [case.workload.batch_size for case in cases]
    speeds = [case.value("throughput") or 0.0 for case in cases]
    calm = [place for place, case in enumerate(cases) if not disturbances(case.measurements)]
    axes.plot(sizes, speeds, color=look.colour, marker=look.marker, linestyle=look.line, markevery=calm)
    for place in set(range(len(cases))) - set(calm):
        axes.plot(sizes[place], speeds[place], look.marker, color=look.colour, markerfacecolor=PAPER)
    for case, size in zip(cases, sizes, strict=True):
        speeds += _whisker(axes, size, case.throughputs, look.colour)
    return speeds


def _whisker(axes: Axes, place: float, values: Sequence[float], colour: str) -> list[float]:
    """A line from the lowest to the highest of several values, which it returns."""
    if len(values) < 2:
        return []
    ends = [min(values), max(values)]
    axes.vlines(place, ends[0], ends[1], color=colour, linewidth=0.9)
    return ends


@dataclass(frozen=True)
class _Quantity:
    """What bars are of.

    Attributes:
        value: of a case, in SI.
        values: of its processes.
    """

    key: str
    name: str
    label: str
    value: Callable[[Case], float | None]
    values: Callable[[Case], Sequence[float]]
    show: Callable[[float], str]


_QUANTITIES = (
    _Quantity(
        "throughput",
        "Throughput",
        "samples per second",
        lambda case: case.value("throughput"),
        lambda case: case.throughputs,
        units.rate,
    ),
    _Quantity(
        "memory",
        "Peak memory",
        "memory",
        lambda case: case.memory,
        lambda case: case.values(case.memory_metric),
        units.size,
    ),
    _Quantity(
        "energy",
        "Energy of a sample",
        "energy",
        lambda case: case.value("energy_per_sample"),
        lambda case: case.values("energy_per_sample"),
        units.joules,
    ),
)


def _bars(cases: Sequence[Case], quantity: _Quantity) -> Drawing | None:
    largest: dict[tuple[str, str], Comparison] = {}
    for comparison in comparisons(cases):
        workload = comparison.workload
        group = (workload.subject, workload.precision)
        if any(quantity.value(case) for case in comparison.lanes.values()) and (
            group not in largest or workload.batch_size > largest[group].workload.batch_size
        ):
            largest[group] = comparison
    largest, note = panels_of(largest)
    if not largest:
        return None
    looks = styles(lane for comparison in largest.values() for lane in comparison.lanes)
    figure, panels = grid_of(len(largest))
    for axes, ((model, precision), comparison) in zip(panels, largest.items(), strict=False):
        _bars_of(axes, comparison, quantity, looks)
        axes.set(
            title=f"{named(model, precision)}, batch {comparison.workload.batch_size}", xlim=(-0.7, len(looks) - 0.3)
        )
    legend(figure, looks, bars=True)
    undecided = " Undecided: which lane has the highest is not known." if quantity.key == "throughput" else ""
    return Drawing(
        f"{quantity.key}-bars",
        f"{quantity.name} at the largest batch",
        f"One panel a model, each with its own scale from zero ({quantity.label}). {_WHISKERS}; *: {_DISTURBED}."
        f"{undecided}{note}",
        _alternative(f"Bars of {quantity.label}, one bar a lane", largest, "Table II"),
        figure,
    )


def _bars_of(axes: Axes, comparison: Comparison, quantity: _Quantity, looks: Mapping[str, Style]) -> None:
    found = {lane: value for lane, case in comparison.lanes.items() if (value := quantity.value(case)) is not None}
    for place, (lane, number) in enumerate(found.items()):
        look, case = looks[lane], comparison.lanes[lane]
        axes.bar(place, number, width=0.7, color=look.colour, hatch=look.hatch, edgecolor=PAPER, linewidth=0)
        top = max([number, *_whisker(axes, place, quantity.values(case), INK)])
        text = f"{quantity.show(number)}{' *' if disturbances(case.measurements) else ''}"
        axes.annotate(text, (place, top), (0, 1), textcoords="offset points", ha="center", va="bottom", fontsize=7)
    if quantity.key == "throughput" and _is_undecided(comparison):
        axes.set_xlabel("undecided", fontsize=7)
    axes.set(xticks=[], yticks=[])
    axes.spines["left"].set_visible(False)
    axes.margins(y=0.18)


def _is_undecided(comparison: Comparison) -> bool:
    found = answers.answers(list(comparison.lanes.values()))
    return any(answer.confidence == "undecided" for answer in found)


def _latencies(cases: Sequence[Case], mode: str) -> Drawing | None:
    found = grouped(
        [case for case in cases if any(max(m.samples, default=0.0) > 0 for m in case.measurements)],
        lambda case: (case.workload.subject, case.workload.precision, str(case.workload.batch_size)),
    )
    groups, note = panels_of(found)
    if not groups:
        return None
    looks = styles(case.workload.lane for members in groups.values() for case in members)
    figure, panels = grid_of(len(groups))
    for axes, ((model, precision, batch), members) in zip(panels, groups.items(), strict=False):
        every: list[float] = []
        for case in members:
            look = looks[case.workload.lane]
            for m in case.measurements:
                times = sorted(m.samples)
                shares = [place / len(times) for place in range(len(times) + 1)]
                axes.step(thin([times[0], *times]), thin(shares), where="post", color=look.colour, linestyle=look.line)
                filled = "none" if disturbances([m]) else "full"
                axes.plot(statistics.median(times), 0.5, look.marker, color=look.colour, fillstyle=filled)
                every += times
        axes.set(title=f"{named(model, precision)}, batch {batch}", xscale="log", ylim=(0, 1.02))
        axes.set(xlabel="time of a call", ylabel="share of calls")
        logarithmic(axes, "x", every, units.seconds)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{share:.0%}"))
    legend(figure, looks)
    return Drawing(
        f"latency-{mode.replace('_', '-')}",
        f"Latency of {_MODES[mode]}",
        "The share of synchronised calls that took at most so long; one line a process, its median marked (hollow: "
        f"{_DISTURBED}).{note}",
        _alternative("Cumulative distributions of latency, one line a process", groups, "the tables of calls"),
        figure,
    )


# Points that have a label; more labels would cover each other.
_LABELS = 24


def _break_even(cases: Sequence[Case], baseline: str | None) -> Drawing | None:
    found = [one for one in calls.break_evens(cases, baseline) if one.compiling > 0]
    if not found:
        return None
    looks = styles(one.case.workload.lane for one in found)
    paid = [one.calls for one in found if one.calls]
    # Above the last mark of the axis.
    never = 6 * round_marks(paid or [1.0])[-1]
    figure, axes = one_panel(3.6)
    heights = itertools.cycle(never * step for step in (1.0, 1.5, 2.25, 3.4))
    for one in sorted(found, key=lambda one: one.compiling):
        look = looks[one.case.workload.lane]
        alpha = 0.4 if one.weighed.confidence == "undecided" else 1.0
        if one.calls is None:
            # Beside each other they would hide one another.
            axes.plot(one.compiling, next(heights), look.marker, color=look.colour, fillstyle="none", alpha=alpha)
            continue
        axes.plot(one.compiling, one.calls, look.marker, color=look.colour, alpha=alpha)
        if len(paid) <= _LABELS:
            workload = one.case.workload
            axes.annotate(
                printable(f"{workload.subject} {workload.mode} b{workload.batch_size}"),
                (one.compiling, one.calls),
                xytext=(5, 3),
                textcoords="offset points",
                fontsize=7,
            )
    axes.axhspan(never / 1.3, never * 4.4, color=GRID, alpha=0.18, linewidth=0)
    axes.set(xscale="log", yscale="log", xlabel="compiling", ylabel="calls to break even")
    axes.grid(axis="x")
    logarithmic(axes, "x", [one.compiling for one in found], units.seconds)
    logarithmic(axes, "y", paid or [1.0], "{:,.0f}".format)
    axes.set_yticks([*axes.get_yticks(), never], [*(f"{tick:,.0f}" for tick in axes.get_yticks()), "never"])
    axes.set_ylim(top=never * 4.4)
    legend(figure, looks)
    return Drawing(
        "break-even",
        "When compiling has paid off",
        "Seconds of compiling against the number of calls after which the compiled lane has caught up with "
        f"{title(baseline or '')}; hollow marks in the grey band at the top never do, whatever their height there. "
        "Pale: which of the two is faster is undecided.",
        f"{len(paid)} of {len(found)} compilations pay off. The numbers are in the table of the same name.",
        figure,
    )


_EPOCHS = ("first_epoch_time", "epoch_time")


def _epochs(cases: Sequence[Case]) -> Drawing | None:
    rows = [case for case in over_seeds(cases) if case.value("first_epoch_time")]
    if not rows:
        return None
    looks = styles(case.workload.lane for case in rows)
    figure, axes = one_panel(0.9 + 0.32 * len(rows))
    for place, case in enumerate(rows):
        look, first, steady = looks[case.workload.lane], case.value("first_epoch_time"), case.value("epoch_time")
        assert first is not None
        if steady is not None:
            axes.plot((steady, first), (place, place), color=look.colour)
            axes.plot(steady, place, marker=look.marker, color=look.colour)
        axes.plot(first, place, marker=look.marker, color=look.colour, fillstyle="none", linestyle="")
    labels = [printable(f"{c.workload.model} {c.workload.data} b{c.workload.batch_size}, {c.lane}", 48) for c in rows]
    axes.set_yticks(range(len(rows)), labels)
    axes.set(xscale="log", xlabel="seconds of an epoch", ylim=(len(rows) - 0.5, -0.5))
    axes.grid(axis="x")
    logarithmic(axes, "x", [value for name in _EPOCHS for case in rows for value in case.values(name)], units.seconds)
    legend(figure, looks)
    return Drawing(
        "epochs",
        "First against steady epoch",
        "Hollow: the first epoch, compilation included; filled: the median of the later ones. The axis is logarithmic.",
        f"A line for each of {len(rows)} trainings from its steady to its first epoch. The numbers are in the table of "
        "epoch times.",
        figure,
    )


Curves = Callable[[Case], tuple[list[list[float]], list[list[float]]]]


def _of_epochs(case: Case) -> tuple[list[list[float]], list[list[float]]]:
    """Training loss and validation top-1 by epoch, one curve a seed."""
    seeds = [m.training.get("epochs", ()) for m in _one_a_seed(case)]
    losses = [[epoch["train_loss"] for epoch in epochs] for epochs in seeds]
    scores = [[epoch["validation"]["top1"] for epoch in epochs if epoch.get("validation")] for epochs in seeds]
    return losses, scores


def _of_steps(case: Case) -> tuple[list[list[float]], list[list[float]]]:
    """Loss and top-1 of every training step, one curve a seed."""
    seeds = _one_a_seed(case)
    return [list(m.training.get("losses", ())) for m in seeds], [list(m.training.get("accuracies", ())) for m in seeds]


def _curves(cases: Sequence[Case], key: str, name: str, unit: str, of: Curves) -> list[Drawing]:
    drawings = []
    groups = grouped(over_seeds(cases), lambda case: (case.workload.model, case.workload.data))
    for number, ((model, data), members) in enumerate(groups.items(), 1):
        sizes = sorted({case.workload.batch_size for case in members})
        looks = styles(case.workload.lane for case in members)
        figure, panels = paired(len(sizes))
        drawn = False
        label = "validation top-1" if of is _of_epochs else "top-1"
        for pair, size in zip(panels, sizes, strict=True):
            pair[0].set(title=f"batch {size}", ylabel="training loss")
            pair[1].set(xlabel=unit, ylabel=label)
            for case in (case for case in members if case.workload.batch_size == size):
                for axes, seeds in zip(pair, of(case), strict=True):
                    drawn = _band(axes, [curve for curve in seeds if curve], looks[case.workload.lane], case) or drawn
        if not drawn:
            continue
        legend(figure, looks)
        drawings.append(
            Drawing(
                f"{key}-{number}",
                f"{name}: {model} on {data}",
                f"Training loss and {label} by {unit}: mean over seeds, with the standard deviation (light) and the "
                "standard error (dark) where there are several seeds; dotted where optimizer or variant is not the "
                "default.",
                f"Lines over {unit}s, one a lane, one panel a batch size ({', '.join(map(str, sizes))}). The numbers "
                "are in Table IV.",
                figure,
            )
        )
    return drawings


def _band(axes: Axes, seeds: Sequence[Sequence[float]], look: Style, case: Case) -> bool:
    """The mean of curves with bands of one standard deviation and one standard error."""
    if not seeds:
        return False
    columns = list(zip(*seeds, strict=False))
    steps = thin(list(range(1, len(columns) + 1)))
    means = thin([statistics.mean(column) for column in columns])
    marker = look.marker if len(columns) <= 40 else ""
    default = not case.workload.variant and case.workload.optimizer == "adam"
    axes.plot(steps, means, color=look.colour, marker=marker, linestyle=look.line if default else ":")
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    if len(seeds) > 1:
        for divisor, alpha in ((1.0, 0.15), (len(seeds) ** 0.5, 0.3)):
            spreads = thin([statistics.stdev(column) / divisor for column in columns])
            low = [mean - spread for mean, spread in zip(means, spreads, strict=True)]
            high = [mean + spread for mean, spread in zip(means, spreads, strict=True)]
            axes.fill_between(steps, low, high, color=look.colour, alpha=alpha, linewidth=0)
    return True


def _one_a_seed(case: Case) -> list[Any]:
    """The first run's training of each seed: the same seed again draws the same curve and is no replicate."""
    return list({m.workload.seed: m for m in reversed(case.measurements)}.values())


def _alternative(what: str, groups: Iterable[tuple[str, ...]], table: str) -> str:
    names = ", ".join(dict.fromkeys(group[0] for group in groups))
    return f"{what}, one panel for each of {names}. The numbers are in {table}."
