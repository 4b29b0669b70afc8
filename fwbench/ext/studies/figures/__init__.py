"""The studies' figures, on a report's page and for a paper: the numbers of each process, by model and batch size."""

import dataclasses
from collections.abc import Sequence

from fwbench.compare.cases import Case, measured
from fwbench.ext.studies.figures.batches import BARS, BY_BATCH
from fwbench.ext.studies.figures.calls import LATENCIES, TRADE_OFFS, break_even
from fwbench.ext.studies.figures.fits import CURVES, epochs
from fwbench.ext.studies.figures.panels import PAGE, Sheet, on
from fwbench.ext.studies.figures.roofline import roofline
from fwbench.report.figures import Drawing

# Figures that show the answers; the others show what each process measured.
_OF_ANSWERS = ("throughput-bars", "break-even")
_OF_PROCESSES = (
    " These are the numbers of single processes; the answers rest on rounds of turns, and can differ from them."
)


def draw(cases: Sequence[Case], baseline: str | None, sheet: Sheet = PAGE) -> list[Drawing]:
    """Every figure for which these cases have numbers, as wide as the sheet."""
    # Most figures show one device alone: lines and bars of several devices beside it would compare nothing.
    alone = [case for case in measured(cases) if case.workload.devices == 1]
    fits = [case for case in alone if case.workload.mode == "fit"]
    with on(sheet):
        drawings = (
            *(panels.draw(alone) for panels in (*BY_BATCH, *BARS, *TRADE_OFFS)),
            # A column of a paper has no room for a panel for each workload.
            *(panels.draw(alone) for panels in LATENCIES if sheet is PAGE),
            break_even([case for case in alone if case.workload.mode in ("inference", "train_step")], baseline),
            epochs(fits),
            *(drawing for curves in CURVES for drawing in curves.draw(fits)),
            roofline(cases),
        )
    in_turns = any(case.turns for case in alone)
    return [
        dataclasses.replace(drawing, caption=drawing.caption + _OF_PROCESSES)
        if in_turns and drawing.key not in _OF_ANSWERS and drawing.mode != "fit"
        else drawing
        for drawing in drawings
        if drawing
    ]
