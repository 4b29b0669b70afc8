"""The roofline: every row's FLOP/s over its FLOP for each byte, under what the machine can do.

After Williams, Waterman and Patterson, "Roofline", CACM 52(4), 2009.
"""

from collections.abc import Sequence

from matplotlib.axes import Axes

from fwbench.machine.disturbances import disturbances
from fwbench.report import units
from fwbench.report.cases import Case
from fwbench.report.figures import Drawing
from fwbench.report.limits import Limited, limited
from fwbench.report.look import (
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
    panels_of,
    styles,
)


def draw(cases: Sequence[Case], sheet: Sheet = PAGE) -> list[Drawing]:
    """The figure, where ceilings were measured and some lane tells its bytes."""
    groups: dict[tuple[str, str], list[Limited]] = {}
    for row in limited(cases):
        if row.intensity and row.ceiling and row.bandwidth:
            workload = row.case.workload
            groups.setdefault((workload.subject, workload.precision), []).append(row)
    shown, note = panels_of(groups)
    if not shown:
        return []
    looks = styles(row.case.workload.lane for rows in shown.values() for row in rows)
    with looking(sheet):
        figure, panels = grid_of(len(shown))
        every = [row for rows in shown.values() for row in rows]
        for axes, ((model, precision), rows) in zip(panels, shown.items(), strict=True):
            _panel(axes, rows, every, looks)
            axes.set(title=named(model, precision), xlabel="FLOP/B", ylabel="FLOP/s")
        legend(figure, looks)
    names = ", ".join(dict.fromkeys(model for model, _ in shown))
    return [
        Drawing(
            "roofline",
            "How near the limit: rooflines",
            "One panel a model, the same axes in all, both logarithmic. The level line is the fastest matrix product "
            "or convolution that any lane reached, the slanted one what memory gives: a point on either is bound by "
            "it, one above the slanted line is fed by caches, one far below both is bound by neither. One point a row: "
            "b8 is inference at batch 8, t2 a training step at batch 2; hollow: disturbed, such as by other load. "
            f"Lanes that do not tell their bytes are left out.{note}",
            f"Points of FLOP/s over FLOP for each byte, one panel for each of {names}. The numbers are in the table "
            "How near the limit.",
            figure,
        )
    ]


def _panel(axes: Axes, rows: Sequence[Limited], every: Sequence[Limited], looks: dict[str, Style]) -> None:
    axes.set(xscale="log", yscale="log")
    for row in rows:
        look, point = looks[row.case.workload.lane], (row.intensity or 0.0, row.rate)
        disturbed = disturbances(row.case.measurements)
        face = PAPER if disturbed else look.colour
        axes.plot(*point, look.marker, color=look.colour, markerfacecolor=face, clip_on=False)
        label = f"{_MODES[row.case.workload.mode]}{row.case.workload.batch_size}"
        axes.annotate(label, point, xytext=(4, -2), textcoords="offset points", fontsize=6, color=look.colour)
    intensities = [row.intensity or 0.0 for row in every]
    ridges = [(row.ceiling or 0.0) / (row.bandwidth or 1.0) for row in every]
    logarithmic(axes, "x", [*intensities, *ridges], units.rate)
    logarithmic(axes, "y", [*(row.rate for row in every), *(row.ceiling or 0.0 for row in every)], units.flop_rate)
    ceiling, bandwidth = rows[0].ceiling or 0.0, rows[0].bandwidth or 0.0
    low, high = axes.get_xlim()
    ridge = ceiling / bandwidth
    axes.plot([low, ridge, high], [low * bandwidth, ceiling, ceiling], color=INK, linewidth=0.9)


_MODES = {"inference": "b", "train_step": "t"}
