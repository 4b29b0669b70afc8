"""The figures of training, time and memory in bars and curves; and what stands against the batch size."""

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, NullLocator

from fwbench.machine.disturbances import disturbances
from fwbench.record.measurement import Measurement
from fwbench.report import units
from fwbench.report.cases import Case, grouped, over_seeds
from fwbench.report.columns import show
from fwbench.report.figures import DISTURBED, Drawing, Looks, Panels, bars, group, is_default, largest, replicates
from fwbench.report.look import PAPER, Style, legend, logarithmic, one_panel, paired, printable, styles, thin

_EPOCHS = ("first_epoch_time", "epoch_time")


def epochs(cases: Sequence[Case]) -> Drawing | None:
    """The figure of the first and a steady epoch of each training."""
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
        "fit",
    )


_Values = list[list[float]]


@dataclass(frozen=True)
class Curves:
    """Figures of how training went, one for each model and its data.

    Attributes:
        label: what the lower panels show; the upper panels show the training loss.
        of: returns, for each seed's training, the losses and the values of the lower panels.
    """

    key: str
    title: str
    unit: str
    label: str
    of: Callable[[Sequence[Measurement]], tuple[_Values, _Values]]

    def draw(self, cases: Sequence[Case]) -> list[Drawing]:
        """A figure for each pair of model and data that has curves."""
        groups = grouped(over_seeds(cases), lambda case: (case.workload.model, case.workload.data))
        drawings = (self._draw(number, *key, of) for number, (key, of) in enumerate(groups.items(), 1))
        return [drawing for drawing in drawings if drawing]

    def _draw(self, number: int, model: str, data: str, cases: Sequence[Case]) -> Drawing | None:
        sizes = sorted({case.workload.batch_size for case in cases})
        looks = styles(case.workload.lane for case in cases)
        figure, panels = paired(len(sizes))
        drawn = False
        for pair, size in zip(panels, sizes, strict=True):
            pair[0].set(title=f"batch {size}", ylabel="training loss")
            pair[1].set(xlabel=self.unit, ylabel=self.label)
            for case in (case for case in cases if case.workload.batch_size == size):
                # A second run with the same seed draws the same curve and is no replicate.
                runs = list({m.workload.seed: m for m in reversed(case.measurements)}.values())
                for axes, curves in zip(pair, self.of(runs), strict=True):
                    if known := list(filter(None, curves)):
                        _band(axes, known, looks[case.workload.lane], case)
                        drawn = True
        if not drawn:
            return None
        legend(figure, looks)
        return Drawing(
            f"{self.key}-{number}",
            f"{self.title}: {model} on {data}",
            f"Training loss and {self.label} by {self.unit}: mean over seeds, with the standard deviation (light) and "
            "the standard error (dark) where there are several seeds; dotted where optimizer or variant is not the "
            "default.",
            f"Lines over {self.unit}s, one a lane, one panel a batch size ({', '.join(map(str, sizes))}). The numbers "
            "are in Table IV.",
            figure,
            "fit",
        )


def _of_epochs(runs: Sequence[Measurement]) -> tuple[_Values, _Values]:
    seeds = [m.training.get("epochs", ()) for m in runs]
    losses = [[epoch["train_loss"] for epoch in epochs] for epochs in seeds]
    return losses, [[epoch["validation"]["top1"] for epoch in epochs if epoch.get("validation")] for epochs in seeds]


def _of_steps(runs: Sequence[Measurement]) -> tuple[_Values, _Values]:
    return [list(m.training.get("losses", ())) for m in runs], [list(m.training.get("accuracies", ())) for m in runs]


CURVES = (
    Curves("training-curves", "Training curves", "epoch", "validation top-1", _of_epochs),
    Curves("learning-curves", "Learning curves", "step", "top-1", _of_steps),
)


def _band(axes: Axes, seeds: Sequence[Sequence[float]], look: Style, case: Case) -> None:
    """The mean of curves with bands of one standard deviation and one standard error."""
    columns = list(zip(*seeds, strict=False))
    steps = thin(list(range(1, len(columns) + 1)))
    means = thin([statistics.mean(column) for column in columns])
    marker = look.marker if len(columns) <= 40 else ""
    axes.plot(steps, means, color=look.colour, marker=marker, linestyle=look.line if is_default(case) else ":")
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    if len(seeds) > 1:
        for divisor, alpha in ((1.0, 0.15), (len(seeds) ** 0.5, 0.3)):
            spreads = thin([statistics.stdev(column) / divisor for column in columns])
            low = [mean - spread for mean, spread in zip(means, spreads, strict=True)]
            high = [mean + spread for mean, spread in zip(means, spreads, strict=True)]
            axes.fill_between(steps, low, high, color=look.colour, alpha=alpha, linewidth=0)


def _values(metrics: Sequence[str], case: Case) -> list[float]:
    """What each process found of the first of these metrics that a case has."""
    return next((values for name in metrics if (values := [v for v in replicates(case, name) if v > 0])), [])


def _at_sizes(metrics: Sequence[str], cases: Sequence[Case]) -> Iterable[Case]:
    """Cases of each group that has values at two batch sizes or more."""
    for members in grouped(over_seeds(cases), group).values():
        if len({case.workload.batch_size for case in members if _values(metrics, case)}) > 1:
            yield from members


def _against_size(
    axes: Axes,
    cases: Sequence[Case],
    looks: Looks,
    *,
    metrics: Sequence[str],
    label: str,
    mean: bool,
) -> None:
    """Draw a line for each lane: means and standard deviations, or medians and ranges, hollow where disturbed."""
    every: list[float] = []
    for of_lane in grouped(cases, lambda case: case.lane).values():
        known = sorted((case for case in of_lane if _values(metrics, case)), key=lambda case: case.workload.batch_size)
        if not known:
            continue
        sizes, points = [case.workload.batch_size for case in known], [_values(metrics, case) for case in known]
        middles = [(statistics.mean if mean else statistics.median)(values) for values in points]
        spreads = [
            (statistics.stdev(values) if len(values) > 1 else 0.0,) * 2
            if mean
            else (middle - min(values), max(values) - middle)
            for middle, values in zip(middles, points, strict=True)
        ]
        look = looks[known[0].workload.lane]
        line = look.line if is_default(known[0]) else ":"
        bars = list(zip(*spreads, strict=True))
        axes.errorbar(sizes, middles, yerr=bars, color=look.colour, marker=look.marker, linestyle=line, elinewidth=0.9)
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
THROUGHPUT, *SCALINGS = (
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


_STEADY = "Seconds of all epochs after the first, which is the warm-up"
BARS = tuple(
    Panels(
        key,
        title,
        f"{caption}, at the largest batch. One panel a model, each with its own scale from zero.",
        "Bars, one a lane",
        "the table of training time",
        "fit",
        partial(largest, quantity),
        partial(bars, quantity=quantity, before=before),
        by_size=True,
        bars=True,
    )
    for key, title, caption, quantity, before in (
        ("training-time-bars", "Training time", _STEADY, "training", ""),
        *(
            (
                f"training-memory-{place}",
                f"Memory of training ({name})",
                f"Memory of the {name}: before training (pale) and at its peak",
                f"{place}_peak_memory",
                f"{place}_initial_memory",
            )
            for place, name in (("host", "process"), ("device", "device"))
        ),
    )
)
