"""Figures of quantities that depend on the batch size: lines over it, and bars at the largest one."""

import math
import statistics
from collections.abc import Iterable, Sequence
from functools import partial

from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from fwbench import units
from fwbench.compare.cases import Case, grouped, over_seeds
from fwbench.compare.weighing import judge
from fwbench.ext.studies.figures.panels import DISTURBED, Looks, Panels, group, is_default, logarithmic
from fwbench.machine.disturbances import disturbances
from fwbench.report.answers import answers
from fwbench.report.columns import show
from fwbench.report.look import INK, PAPER


def _process_values(case: Case, quantity: str) -> list[float]:
    """The quantity's values, one a process; a measurement by several processes has a throughput for each."""
    return case.throughputs if quantity == "throughput" else case.values(quantity)


def _values(metrics: Sequence[str], case: Case) -> list[float]:
    """The positive values, one a process, of the first of these metrics for which the case has any."""
    return next((values for name in metrics if (values := [v for v in _process_values(case, name) if v > 0])), [])


def _at_sizes(metrics: Sequence[str], cases: Sequence[Case]) -> Iterable[Case]:
    """Cases of each group that has values at two batch sizes or more."""
    for members in grouped(over_seeds(cases), group).values():
        if len({case.workload.batch_size for case in members if _values(metrics, case)}) > 1:
            yield from members


def _against_size(
    axes: Axes, cases: Sequence[Case], looks: Looks, *, metrics: Sequence[str], label: str, mean: bool
) -> None:
    """Draw a line for each lane: means and standard deviations, or medians and ranges, hollow where disturbed."""
    every: list[float] = []
    for of_lane in grouped(cases, lambda case: case.lane).values():
        known = sorted((case for case in of_lane if _values(metrics, case)), key=lambda case: case.workload.batch_size)
        if not known:
            continue
        sizes, points = [case.workload.batch_size for case in known], [_values(metrics, case) for case in known]
        middles = [(statistics.mean if mean else statistics.median)(values) for values in points]
        deviations = [statistics.stdev(values) if len(values) > 1 else 0.0 for values in points]
        ranges = [(middle - min(values), max(values) - middle) for middle, values in zip(middles, points, strict=True)]
        look = looks[known[0].workload.lane]
        line = look.line if is_default(known[0]) else ":"
        ends = [deviations] * 2 if mean else list(zip(*ranges, strict=True))
        axes.errorbar(sizes, middles, yerr=ends, color=look.colour, marker=look.marker, linestyle=line, elinewidth=0.9)
        for size, middle, case in zip(sizes, middles, known, strict=True):
            if not mean and disturbances(case.measurements):
                axes.plot(size, middle, look.marker, color=look.colour, markerfacecolor=PAPER)
        every += [value for values in points for value in values]
    sizes = sorted({case.workload.batch_size for case in cases})
    axes.set(xlabel="batch size", xscale="log", ylabel=label)
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.xaxis.set_minor_locator(NullLocator())
    if mean:
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    else:
        axes.set_yscale("log")
        logarithmic(axes, "y", every, show(metrics[0]))


_STEPS, _TIMES = "the table of training steps", "the table of epoch times"
_RANGE = f"median and range over processes and seeds, hollow where {DISTURBED}"
_DEVIATION = "mean and standard deviation over seeds"
BY_BATCH = tuple(
    Panels(
        f"{key}-by-batch",
        f"{title} against batch size",
        f"One panel a model: {spread}; dotted where optimizer or variant is not the default.",
        f"Lines of {label} over batch size, one line a lane",
        table,
        mode,
        partial(_at_sizes, metrics),
        partial(_against_size, metrics=metrics, label=label, mean=spread == _DEVIATION),
    )
    for key, title, mode, label, metrics, table, spread in (
        ("throughput", "Throughput", "inference", "samples/s", ["throughput"], "Table II", _RANGE),
        ("training-steps", "Throughput of training steps", "train_step", "samples/s", ["throughput"], _STEPS, _RANGE),
        ("epoch-time", "Time of an epoch", "fit", "a steady epoch", ["epoch_time"], _TIMES, _RANGE),
        ("epoch-energy", "Energy of an epoch", "fit", "energy of an epoch", ["epoch_energy"], "Table IV", _RANGE),
        ("accuracy", "Accuracy", "fit", "top-1", ["test_top1", "validation_top1"], _TIMES, _DEVIATION),
    )
)


def _largest(quantity: str, cases: Sequence[Case]) -> Iterable[Case]:
    """One default case of each lane at the largest batch of a panel for which any lane has the quantity."""
    known = [case for case in over_seeds(cases) if is_default(case) and case.value(quantity) is not None]
    for members in grouped(known, group).values():
        most = max(case.workload.batch_size for case in members)
        at_most = (case for case in members if case.workload.batch_size == most)
        yield from (of_lane[0] for of_lane in grouped(at_most, lambda case: case.workload.lane).values())


# A bar from zero: its height, the values that its whisker spans (with fewer than two, none), and its label.
_Bar = tuple[float, Sequence[float], str]


def _of_processes(case: Case, quantity: str) -> _Bar:
    number, mark = case.value(quantity) or 0.0, " *" if disturbances(case.measurements) else ""
    return number, _process_values(case, quantity), f"{show(quantity)(number)}{mark}"


def _over(case: Case, first: Case) -> _Bar:
    """A lane's throughput over that of the answer's first lane, with its interval."""
    if case.workload.lane == first.workload.lane:
        return 1.0, (), units.ratio(1.0)
    judged = judge(case, first)
    if not (weighed := judged.weighed):
        return 0.0, (), judged.why
    ends = [end for end in (weighed.reach.low, weighed.reach.high) if math.isfinite(end)]
    return weighed.ratio, ends, f"{units.ratio(weighed.ratio)}{' *' if weighed.disturbed else ''}"


def _bars(axes: Axes, cases: Sequence[Case], looks: Looks, *, quantity: str, before: str) -> None:
    """Draw a bar for each case: its median, or for throughput in rounds of turns its ratio to the answer's first lane.

    A part of the quantity is drawn pale in front of its bar, if `before` names one.
    """
    given = answers(cases) if quantity == "throughput" else []
    in_turns = len(given) == 1 and given[0].weighed and any(case.turns for case in cases)
    first = given[0].case if in_turns else None
    for place, case in enumerate(cases):
        look = looks[case.workload.lane]
        height, ends, words = _over(case, first) if first else _of_processes(case, quantity)
        axes.bar(place, height, width=0.7, color=look.colour, hatch=look.hatch, edgecolor=PAPER, linewidth=0)
        if len(ends) > 1:
            axes.vlines(place, min(ends), max(ends), color=INK, linewidth=0.9)
        top = place, max(height, *ends, 0.0)
        axes.annotate(words, top, (0, 1), textcoords="offset points", ha="center", va="bottom", fontsize=7)
        if before:
            axes.bar(place, case.value(before) or 0.0, width=0.7, color=PAPER, alpha=0.6, linewidth=0)
    if any(answer.confidence == "undecided" for answer in given):
        axes.set_xlabel("undecided", fontsize=7)
    axes.set(xticks=[], yticks=[], xlim=(-0.7, len(looks) - 0.3))
    axes.spines["left"].set_visible(False)
    axes.margins(y=0.18)


_SPEED = (
    "Where lanes took turns: throughput over that of the answer's first lane, with the ratio's interval. Elsewhere: "
    "samples per second. Undecided: which lane has the highest is not known"
)
_STEADY = "Seconds of all epochs after the first, which is the warm-up"
_PALE = "Memory before training (pale) and at its peak"
BARS = tuple(
    Panels(
        key,
        f"{title} at the largest batch",
        f"{caption}. One panel a model, each with its own scale from zero. Whiskers of processes reach from the "
        f"lowest to the highest, and one process has none; *: {DISTURBED}.",
        "Bars, one a lane",
        "the table of training time" if mode == "fit" else "Table II",
        mode,
        partial(_largest, quantity),
        partial(_bars, quantity=quantity, before=before),
        by_size=True,
        bars=True,
    )
    for key, title, caption, mode, quantity, before in (
        ("throughput-bars", "Throughput", _SPEED, "inference", "throughput", ""),
        ("memory-bars", "Peak memory", "Memory", "inference", "peak_memory", ""),
        ("energy-bars", "Energy of a sample", "Energy", "inference", "energy_per_sample", ""),
        ("training-time-bars", "Training time", _STEADY, "fit", "training", ""),
        ("training-memory-host", "Memory of the process", _PALE, "fit", "host_peak_memory", "host_initial_memory"),
        ("training-memory-device", "Memory of the device", _PALE, "fit", "device_peak_memory", "device_initial_memory"),
    )
)
