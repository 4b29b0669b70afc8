"""The figures of inference and training steps: latency, trade-offs, and what compiling costs."""

import itertools
from collections.abc import Iterable, Sequence
from functools import partial

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from fwbench import units
from fwbench.compare.cases import Case, grouped, over_seeds, title
from fwbench.ext.studies.compiling import break_evens
from fwbench.ext.studies.figures.panels import (
    DISTURBED,
    Looks,
    Panels,
    group,
    logarithmic,
    one_panel,
    round_marks,
    thin,
)
from fwbench.machine.disturbances import disturbances
from fwbench.record.quantiles import quantile
from fwbench.report.columns import show
from fwbench.report.figures import Drawing
from fwbench.report.look import GRID, legend, printable, styles

# The most points that get labels; more labels would cover each other.
_LABELS = 24


def _latencies(axes: Axes, cases: Sequence[Case], looks: Looks) -> None:
    """Draw, for each process, the share of calls that took at most a given time."""
    every: list[float] = []
    for m in (m for case in cases for m in case.measurements):
        look, times = looks[m.workload.lane], sorted(m.samples)
        shares = [place / len(times) for place in range(len(times) + 1)]
        axes.step(thin([times[0], *times]), thin(shares), where="post", color=look.colour, linestyle=look.line)
        filled = "none" if disturbances([m]) else "full"
        axes.plot(quantile(times, 50), 0.5, look.marker, color=look.colour, fillstyle=filled)
        every += times
    axes.set(xscale="log", ylim=(0, 1.02), xlabel="time of a call", ylabel="share of calls")
    logarithmic(axes, "x", every, units.seconds)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{share:.0%}"))


LATENCIES = tuple(
    Panels(
        f"latency-{mode.replace('_', '-')}",
        f"Latency of {words}",
        "The share of synchronised calls that took at most so long; one line a process, its median marked (hollow: "
        f"{DISTURBED}).",
        "Cumulative distributions of latency, one line a process",
        "the tables of calls",
        mode,
        lambda cases: [case for case in cases if any(max(m.samples, default=0.0) > 0 for m in case.measurements)],
        _latencies,
        by_size=True,
    )
    for mode, words in (("inference", "inference"), ("train_step", "training steps"))
)


def _positive(metric: str, case: Case) -> float:
    """The metric's value, or 0 if a logarithmic axis cannot show it."""
    return max(0.0, case.value(metric) or 0.0)


def _with_both(metric: str, cases: Sequence[Case]) -> Iterable[Case]:
    """Cases that have both the latency and the metric, of models for which at least two lanes have such cases."""
    positive = (case for case in over_seeds(cases) if _positive("latency_p50", case) and _positive(metric, case))
    for of_model in grouped(positive, group).values():
        if len({case.workload.lane for case in of_model}) > 1:
            yield from of_model


def _against_latency(axes: Axes, cases: Sequence[Case], looks: Looks, *, metric: str, label: str) -> None:
    every: list[tuple[float, float]] = []
    # A lane with other options is a line of its own.
    for of_lane in grouped(cases, lambda case: case.lane).values():
        of_lane = sorted(of_lane, key=lambda case: case.workload.batch_size)
        points = [(_positive("latency_p50", case), _positive(metric, case)) for case in of_lane]
        look = looks[of_lane[0].workload.lane]
        axes.plot(*zip(*points, strict=True), color=look.colour, marker=look.marker, linestyle=look.line)
        # Only the first lane's points show the batch sizes; labels at every lane's points would cover each other.
        for case, point in zip(of_lane if not every else (), points, strict=False):
            axes.annotate(f"b{case.workload.batch_size}", point, xytext=(4, -7), textcoords="offset points", fontsize=7)
        every += points
    axes.set(xscale="log", yscale="log", xlabel="latency (p50)", ylabel=label)
    logarithmic(axes, "x", [x for x, _ in every], units.seconds)
    logarithmic(axes, "y", [y for _, y in every], show(metric))


TRADE_OFFS = tuple(
    Panels(
        f"{key}-latency",
        f"{key.capitalize()} against latency",
        "One panel a model, one line a lane, one point a batch size, which is written at the first lane's points. "
        f"{better} is better; both axes are logarithmic.",
        f"Points of {label} over latency",
        "Table II",
        "inference",
        partial(_with_both, metric),
        partial(_against_latency, metric=metric, label=label),
    )
    for key, metric, label, better in (
        ("throughput", "throughput", "samples/s", "Up and to the left"),
        ("energy", "energy_per_sample", "energy of a sample", "Down and to the left"),
    )
)


def break_even(cases: Sequence[Case], baseline: str | None) -> Drawing | None:
    """The figure of break-even: the number of calls after which compiling has paid off, over seconds of compiling."""
    compared = [pair for pair in break_evens(cases, baseline) if pair.compiling > 0]
    if not compared:
        return None
    looks = styles(pair.workload.lane for pair in compared)
    paid = [pair.calls for pair in compared if pair.calls]
    # The height of compilations that never pay off, above the axis's last mark.
    never = 6 * round_marks(paid or [1.0])[-1]
    figure, axes = one_panel(3.6)
    heights = itertools.cycle(never * step for step in (1.0, 1.5, 2.25, 3.4))
    for pair in sorted(compared, key=lambda pair: pair.compiling):
        look, workload = looks[pair.workload.lane], pair.workload
        alpha = 0.4 if pair.weighed.confidence == "undecided" else 1.0
        if pair.calls is None:
            # Marks at the same height could hide one another.
            axes.plot(pair.compiling, next(heights), look.marker, color=look.colour, fillstyle="none", alpha=alpha)
            continue
        point = (pair.compiling, pair.calls)
        axes.plot(*point, look.marker, color=look.colour, alpha=alpha)
        if len(paid) <= _LABELS:
            name = printable(f"{workload.subject} {workload.mode} b{workload.batch_size}")
            axes.annotate(name, point, xytext=(5, 3), textcoords="offset points", fontsize=7)
    axes.axhspan(never / 1.3, never * 4.4, color=GRID, alpha=0.18, linewidth=0)
    axes.set(xscale="log", yscale="log", xlabel="compiling", ylabel="calls to break even")
    axes.grid(axis="x")
    logarithmic(axes, "x", [pair.compiling for pair in compared], units.seconds)
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
        f"{len(paid)} of {len(compared)} compilations pay off. The numbers are in the table of the same name.",
        figure,
    )
