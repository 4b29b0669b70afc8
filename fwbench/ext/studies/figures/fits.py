"""The figures of training: its first epoch, and its curves."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from fwbench import units
from fwbench.compare.cases import Case, grouped, over_seeds
from fwbench.ext.studies.figures.panels import is_default, logarithmic, one_panel, paired, thin
from fwbench.record.measurement import Measurement
from fwbench.report.figures import Drawing
from fwbench.report.look import Style, legend, printable, styles

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


@dataclass(frozen=True)
class Curves:
    """Figures of how training went, one for each model, its data and precision.

    Attributes:
        label: what the lower panels show; the upper panels show the training loss.
        of: returns the losses of a training, and the values of the lower panels.
    """

    key: str
    title: str
    unit: str
    label: str
    of: Callable[[Measurement], tuple[Sequence[float], Sequence[float]]]

    def draw(self, cases: Sequence[Case]) -> list[Drawing]:
        """A figure for each model, data and precision that have curves."""
        groups = grouped(over_seeds(cases), lambda c: (c.workload.subject, c.workload.data, c.workload.precision))
        drawings = (self._draw(number, *key, of) for number, (key, of) in enumerate(groups.items(), 1))
        return [drawing for drawing in drawings if drawing]

    def _draw(self, number: int, subject: str, data: str, precision: str, cases: Sequence[Case]) -> Drawing | None:
        sizes = sorted({case.workload.batch_size for case in cases})
        looks = styles(case.workload.lane for case in cases)
        figure, panels = paired(len(sizes))
        drawn = False
        for pair, size in zip(panels, sizes, strict=True):
            pair[0].set(title=f"batch {size}", ylabel="training loss")
            pair[1].set(xlabel=self.unit, ylabel=self.label)
            for case in (case for case in cases if case.workload.batch_size == size):
                # A second run with the same seed draws the same curve and is no replicate.
                runs = {m.workload.seed: m for m in reversed(case.measurements)}.values()
                for axes, curves in zip(pair, zip(*map(self.of, runs), strict=True), strict=True):
                    if known := list(filter(None, curves)):
                        _band(axes, known, looks[case.workload.lane], case)
                        drawn = True
        if not drawn:
            return None
        legend(figure, looks)
        return Drawing(
            f"{self.key}-{number}",
            f"{self.title}: {subject} on {data}{'' if precision == 'fp32' else f' in {precision}'}",
            f"Training loss and {self.label} by {self.unit}: mean over seeds, with the standard deviation (light) and "
            "the standard error (dark) where there are several seeds; dotted where optimizer or variant is not the "
            "default.",
            f"Lines over {self.unit}s, one a lane, one panel a batch size ({', '.join(map(str, sizes))}). The numbers "
            "are in Table IV.",
            figure,
            "fit",
        )


def _of_epochs(m: Measurement) -> tuple[list[float], list[float]]:
    epochs = m.training.get("epochs", ())
    tops = [epoch["validation"]["top1"] for epoch in epochs if epoch.get("validation")]
    return [epoch["train_loss"] for epoch in epochs], tops


def _of_steps(m: Measurement) -> tuple[Sequence[float], Sequence[float]]:
    return m.training.get("losses", ()), m.training.get("accuracies", ())


CURVES = (
    Curves("training-curves", "Training curves", "epoch", "validation top-1", _of_epochs),
    Curves("learning-curves", "Learning curves", "step", "top-1", _of_steps),
)


def _band(axes: Axes, seeds: Sequence[Sequence[float]], look: Style, case: Case) -> None:
    """Draw the mean of curves, with bands of one standard deviation and one standard error."""
    columns = np.array(list(zip(*seeds, strict=False)))
    steps = thin(range(1, len(columns) + 1))
    means = columns.mean(axis=1)[steps - 1]
    marker = look.marker if len(columns) <= 40 else ""
    axes.plot(steps, means, color=look.colour, marker=marker, linestyle=look.line if is_default(case) else ":")
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    if len(seeds) > 1:
        deviations = columns.std(axis=1, ddof=1)[steps - 1]
        for reach, alpha in ((deviations, 0.15), (deviations / len(seeds) ** 0.5, 0.3)):
            axes.fill_between(steps, means - reach, means + reach, color=look.colour, alpha=alpha, linewidth=0)
