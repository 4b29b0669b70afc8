"""What compiling costs, and the number of calls after which it has paid off."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fwbench import units
from fwbench.compare.cases import Case, OfCase, title
from fwbench.compare.weighing import Weighed
from fwbench.report.columns import workload_columns
from fwbench.report.ratios import ratios
from fwbench.report.tables import Column, Table, tabulate


@dataclass(frozen=True)
class BreakEven(OfCase):
    """A compiled lane against the baseline.

    Attributes:
        compiling: seconds that compiling costs, once, beyond the baseline's.
        baseline: seconds of a call of the baseline, in calls back to back, as throughput is measured.
        weighed: the compiled lane's throughput over the baseline's.
    """

    compiling: float
    baseline: float
    weighed: Weighed

    @property
    def compiled(self) -> float:
        """Seconds of a call of the compiled lane, from the ratio of throughputs on which all answers rest."""
        return self.baseline / self.weighed.ratio

    @property
    def calls(self) -> float | None:
        """The number of calls after which compiling has paid off; None if it never does."""
        gained = self.baseline - self.compiled
        return self.compiling / gained if gained > 0 else None


def break_evens(cases: Sequence[Case], baseline: str | None) -> list[BreakEven]:
    """Every compiled lane that may be compared with the baseline lane, in inference or training steps."""
    pairs = []
    for ratio in ratios(cases, baseline):
        compiling = _compiling(ratio.case, ratio.beside)
        if ratio.weighed and compiling is not None:
            call = ratio.beside.workload.samples / (ratio.beside.value("throughput") or math.inf)
            pairs.append(BreakEven(ratio.case, compiling, call, ratio.weighed))
    return pairs


def _compiling(case: Case, baseline: Case) -> float | None:
    """Seconds by which a compiling lane is steady later than the baseline; None if it has no time of compiling.

    If either record lacks the time to steady, tracing and compiling alone count.
    """
    ready = case.value("compiling")
    if ready is None:
        return None
    start, other = case.value("time_to_steady"), baseline.value("time_to_steady")
    if start is None or other is None:
        start, other = ready, baseline.value("compiling") or 0.0
    return max(0.0, start - other)


def table(cases: Sequence[Case], baseline: str | None) -> Table:
    """The table of break-even: the number of calls after which each compilation has paid off."""
    return tabulate(
        "break-even",
        "When compiling has paid off",
        "The seconds that compiling costs (by which the lane is steady later, with kernels tuned and graphs recorded; "
        "where that is not known, tracing and compiling alone), what a call takes back to back in "
        f"{title(baseline or '')} and, by the ratio of throughputs, in the compiled lane, and the number of calls "
        "after which the compiled lane has caught up; never where its throughput is lower. Confidence is in which "
        "throughput is higher: where that is undecided, chance decides between never and many.",
        (
            *workload_columns(cases),
            Column("lane", lambda pair: pair.case.lane),
            Column("compiling", lambda pair: pair.compiling, "s", units.seconds),
            Column("baseline call", lambda pair: pair.baseline, "s", units.seconds),
            Column("compiled call", lambda pair: pair.compiled, "s", units.seconds),
            Column("calls to break even", lambda pair: pair.calls, "1", "{:,.0f}".format, "never"),
            Column("confidence", lambda pair: pair.weighed.confidence),
        ),
        break_evens(cases, baseline),
    )
