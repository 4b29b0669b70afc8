"""All figures of a setting, in the order of reading."""

import dataclasses
from collections.abc import Sequence

from fwbench.compare.cases import Case, measured
from fwbench.report import forest
from fwbench.report.batch_figures import BARS, BY_BATCH
from fwbench.report.call_figures import LATENCIES, TRADE_OFFS, break_even
from fwbench.report.figures import Drawing
from fwbench.report.fit_figures import CURVES, epochs
from fwbench.report.look import PAGE, Sheet, looking
from fwbench.report.ratios import ratios
from fwbench.report.roofline import roofline

# Figures that show the answers; the others show what each process measured.
_OF_ANSWERS = ("ratios", "throughput-bars", "break-even")
_OF_PROCESSES = (
    " These are the numbers of single processes; the answers rest on rounds of turns, and can differ from them."
)


def draw(cases: Sequence[Case], baseline: str | None, sheet: Sheet = PAGE) -> list[Drawing]:
    """Every figure for which these cases have numbers, as wide as the sheet; none of ratios without a baseline lane."""
    # Most figures show one device alone: lines and bars of several devices beside it would compare nothing.
    alone = [case for case in measured(cases) if case.workload.devices == 1]
    fits = [case for case in alone if case.workload.mode == "fit"]
    on_page = sheet is PAGE
    with looking(sheet):
        drawings = (
            # A column of a paper has no room for names, intervals and numbers beside each other.
            forest.draw(ratios(cases, baseline), baseline) if baseline and on_page else None,
            *(panels.draw(alone) for panels in (*BY_BATCH, *BARS, *TRADE_OFFS)),
            # Nor for a panel for each workload.
            *(panels.draw(alone) for panels in LATENCIES if on_page),
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
