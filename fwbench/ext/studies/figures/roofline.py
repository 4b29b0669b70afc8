"""The roofline: every row's FLOP/s over its FLOP for each byte, under the machine's ceilings.

After Williams, Waterman and Patterson, "Roofline", CACM 52(4), 2009.
"""

from collections.abc import Sequence
from functools import partial

from matplotlib.axes import Axes

from fwbench import units
from fwbench.compare.cases import Case
from fwbench.ext.studies.figures.panels import DISTURBED, Looks, Panels, logarithmic
from fwbench.ext.studies.limited import Limited, limited
from fwbench.machine.disturbances import disturbances
from fwbench.report.figures import Drawing
from fwbench.report.look import INK, PAPER, printable

_MODES = {"inference": "b", "train_step": "t"}
# Offsets in points from a mark to the middle of its label, the first choice first; and the least distance between two
# labels' middles, across and up.
_PLACES = ((9, 0), (-9, 0), (0, 8), (0, -8), (9, 8), (-9, 8), (9, -8), (-9, -8))
_APART = (12, 7)


def roofline(cases: Sequence[Case]) -> Drawing | None:
    """Draw the figure; None if no ceilings were measured, or no lane reports its bytes."""
    rows = [row for row in limited(cases) if row.intensity and row.ceiling and row.bandwidth]
    return Panels(
        "roofline",
        "How near the limit: rooflines",
        "One panel a model, the same axes in all, both logarithmic. The level line is the fastest matrix product "
        "that any lane reached, or on a CPU convolution, the slanted one what memory gives: a point on either is bound "
        "by it, one above the slanted line is fed by caches, one far below both is bound by neither. One point a row: "
        f"b8 is inference at batch 8, t2 a training step at batch 2; hollow: {DISTURBED}. Lanes that do not tell their "
        "bytes are left out.",
        "Points of FLOP/s over FLOP for each byte",
        "the table How near the limit",
        "",
        lambda _: rows,
        partial(_panel, every=rows),
    ).draw(())


def _panel(axes: Axes, rows: Sequence[Limited], looks: Looks, *, every: Sequence[Limited]) -> None:
    axes.set(xscale="log", yscale="log", xlabel="FLOP/B", ylabel="FLOP/s")
    intensities = [row.intensity or 0.0 for row in every]
    ridges = [(row.ceiling or 0.0) / (row.bandwidth or 1.0) for row in every]
    logarithmic(axes, "x", [*intensities, *ridges], units.rate)
    logarithmic(axes, "y", [*(row.rate for row in every), *(row.ceiling or 0.0 for row in every)], units.flop_rate)
    labels: list[tuple[float, float]] = []
    marks = [_in_points(axes, (row.intensity or 0.0, row.rate)) for row in rows]
    for row in rows:
        look, point = looks[row.workload.lane], (row.intensity or 0.0, row.rate)
        face = PAPER if disturbances(row.case.measurements) else look.colour
        axes.plot(*point, look.marker, color=look.colour, markerfacecolor=face, clip_on=False)
        label = printable(f"{_MODES.get(row.workload.mode, f'{row.workload.mode} ')}{row.workload.batch_size}")
        place = _free(_in_points(axes, point), marks, labels)
        box = {"facecolor": PAPER, "edgecolor": "none", "pad": 0.4}
        at = axes.annotate(label, point, xytext=place, textcoords="offset points", fontsize=6, ha="center", va="center")
        at.set(bbox=box, zorder=1.5)
    ceiling, bandwidth = rows[0].ceiling or 0.0, rows[0].bandwidth or 0.0
    low, high = axes.get_xlim()
    ridge = ceiling / bandwidth
    axes.plot([low, ridge, high], [low * bandwidth, ceiling, ceiling], color=INK, linewidth=0.9, zorder=1)


def _in_points(axes: Axes, point: tuple[float, float]) -> tuple[float, float]:
    """The position at which a panel shows a point, in typographic points."""
    x, y = axes.transData.transform(point) * 72 / axes.figure.dpi
    return float(x), float(y)


def _free(
    mark: tuple[float, float], marks: Sequence[tuple[float, float]], labels: list[tuple[float, float]]
) -> tuple[int, int]:
    """The first place for a mark's label that is free of other `marks` and of earlier `labels`; else the freest.

    The label joins `labels`.
    """
    x, y = mark

    def room(place: tuple[int, int]) -> float:
        others = [*labels, *(other for other in marks if other != mark)]
        distances = (max(abs(x + place[0] - a) / _APART[0], abs(y + place[1] - b) / _APART[1]) for a, b in others)
        return float(min([1.0, *distances]))

    chosen = max(_PLACES, key=room)
    labels.append((x + chosen[0], y + chosen[1]))
    return chosen
