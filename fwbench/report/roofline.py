"""The roofline: every row's FLOP/s over its FLOP for each byte, under what the machine can do.

After Williams, Waterman and Patterson, "Roofline", CACM 52(4), 2009.
"""

from collections.abc import Sequence
from functools import partial

from matplotlib.axes import Axes

from fwbench.machine.disturbances import disturbances
from fwbench.report import units
from fwbench.report.cases import Case
from fwbench.report.figures import DISTURBED, Drawing, Looks, Panels
from fwbench.report.limits import Limited, limited
from fwbench.report.look import INK, PAPER, logarithmic, printable

_MODES = {"inference": "b", "train_step": "t"}


def roofline(cases: Sequence[Case]) -> Drawing | None:
    """The figure, where ceilings were measured and some lane tells its bytes."""
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
    for row in rows:
        look, point = looks[row.workload.lane], (row.intensity or 0.0, row.rate)
        face = PAPER if disturbances(row.case.measurements) else look.colour
        axes.plot(*point, look.marker, color=look.colour, markerfacecolor=face, clip_on=False)
        label = printable(f"{_MODES.get(row.workload.mode, f'{row.workload.mode} ')}{row.workload.batch_size}")
        axes.annotate(label, point, xytext=(4, -2), textcoords="offset points", fontsize=6, color=look.colour)
    intensities = [row.intensity or 0.0 for row in every]
    ridges = [(row.ceiling or 0.0) / (row.bandwidth or 1.0) for row in every]
    logarithmic(axes, "x", [*intensities, *ridges], units.rate)
    logarithmic(axes, "y", [*(row.rate for row in every), *(row.ceiling or 0.0 for row in every)], units.flop_rate)
    ceiling, bandwidth = rows[0].ceiling or 0.0, rows[0].bandwidth or 0.0
    low, high = axes.get_xlim()
    ridge = ceiling / bandwidth
    axes.plot([low, ridge, high], [low * bandwidth, ceiling, ceiling], color=INK, linewidth=0.9)
