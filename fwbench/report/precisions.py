"""The gain and the cost of a lower precision or of quantised weights: speed over fp32's, errors beside fp32's."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fwbench.compare.cases import Case, OfCase, by_workload, reasons
from fwbench.compare.weighing import Weighed, judge
from fwbench.record.metrics import ERRORS
from fwbench.record.workload import LOWER
from fwbench.report.columns import workload_columns
from fwbench.report.tables import Column, Table, tabulate

# Two lanes of one precision whose errors differ by a larger factor do not round alike. An error is known to 8 %.
UNLIKE = 1.5


@dataclass(frozen=True)
class Price(OfCase):
    """A lane in a lower precision or with quantised weights.

    Attributes:
        beside: in fp32, the same lane or, if weights are quantised, another one; None if the run has no such row.
        weighed: its throughput over fp32's; None if the two may not be compared.
    """

    beside: Case | None
    weighed: Weighed | None

    def more(self, metric: str) -> float | None:
        """Its error over fp32's; None if one of the two is unknown or zero."""
        own, other = self.case.value(metric), self.beside.value(metric) if self.beside else None
        return own / other if own and other else None

    def __str__(self) -> str:
        """`1.83 (0.91 to 3.66) times as fast, 40 times the error`; for training, the error is the gradients'."""
        parts = []
        if self.weighed:
            parts += [f"{speed} times as fast"] if (speed := self.weighed.words) else []
        if (more := self.more(self.case.error)) is not None:
            parts.append(f"{many(more)} times the error")
        return ", ".join(parts)


def prices(cases: Iterable[Case]) -> list[Price]:
    """Every lane in a precision below fp32, and every lane with quantised weights beside each other lane in fp32."""
    workloads = by_workload(cases)
    rows = []
    for workload, lanes in workloads.items():
        in_fp32 = workloads.get(dataclasses.replace(workload, precision="fp32"), {})
        for case, beside in ((each, other) for each in lanes.values() for other in _beside(each, in_fp32)):
            both = beside is not None and case.value("throughput") and beside.value("throughput")
            weighed = judge(case, beside).weighed if beside and both else None
            rows.append(Price(case, beside, weighed))
    return rows


def _beside(case: Case, in_fp32: Mapping[str, Case]) -> Sequence[Case | None]:
    """The cases in fp32 that a case is set beside; None stands for a missing one. Empty if it has no price."""
    if case.quantised:
        return [other for other in in_fp32.values() if not other.quantised] or [None]
    return [in_fp32.get(case.workload.lane)] if case.workload.precision in LOWER else []


def _arithmetic(price: Price) -> str:
    quantised = price.case.quantised
    return f"{price.workload.precision}{f', {quantised} weights' if quantised else ''}"


def _against(price: Price) -> str | None:
    """The price in words, after the name of the lane in fp32 if that is another one."""
    other = price.beside.workload.lane if price.beside else ""
    named = f"{other}: " if other != price.workload.lane else ""
    return f"{named}{price}" if str(price) else None


def table(rows: Sequence[Price], *, brief: bool = False) -> Table:
    """The table of lower precisions: one row a lane and precision, or a pair of lanes if one's weights are quantised.

    In `brief` it is without fp32's own errors.
    """
    known = [metric for metric in ERRORS.values() if any(price.case.value(metric) is not None for price in rows)]
    cases, sides = [price.case for price in rows], (False,) if brief else (False, True)
    return tabulate(
        "precisions",
        "What a lower precision gains and costs",
        "Throughput over that of the same lane in fp32, or of each other lane if weights are quantised, and the errors "
        "against float64 at the same weights and inputs: the Euclidean distance of the output, of the first step's "
        "loss and of its gradients, over the length of what float64 computes. Errors are known to 8 %. Training with "
        "random layers, such as dropout, has none.",
        (
            *workload_columns(rows),
            Column("lane", lambda price: price.workload.lane),
            Column("precision", _arithmetic),
            Column("against fp32", _against),
            *(_error(metric, of_fp32) for metric in known for of_fp32 in sides),
        ),
        rows,
        [f"no {_words(metric)}: {reason}" for metric in ERRORS.values() for reason in reasons(cases, metric)],
    )


def _error(metric: str, of_fp32: bool) -> Column[Price]:
    def error(price: Price) -> float | None:
        case = price.beside if of_fp32 else price.case
        return case.value(metric) if case else None

    return Column(f"{_words(metric)}{' in fp32' if of_fp32 else ''}", error, "1", "{:.1e}".format)


def _words(metric: str) -> str:
    return metric.replace("_", " ")


def unlike(cases: Iterable[Case]) -> list[str]:
    """A sentence for each workload whose lanes round outputs differently in one lower precision.

    Losses and gradients show nothing: a loss is one number, whose error may be small by chance, and a gradient jumps
    where rounding carries a unit past the kink of a ReLU.
    """
    sentences = []
    for workload, lanes in by_workload(cases).items():
        kept = ((lane, case) for lane, case in lanes.items() if not case.quantised)
        cases_of = kept if workload.precision in LOWER else ()
        errors = sorted((error, lane) for lane, case in cases_of if (error := case.value(ERRORS["output"])))
        if not errors:
            continue
        (least, nearest), (most, farthest) = errors[0], errors[-1]
        if most > UNLIKE * least:
            sentences.append(
                f"{workload.subject} {workload.mode} b{workload.batch_size} in {workload.precision}: {farthest} has "
                f"{most / least:.1f} times the output error of {nearest}, {most:.1e} and {least:.1e}"
            )
    return sentences


def many(value: float) -> str:
    """26,000, 4.1, 0.025: two digits, as an error is known to 8 %."""
    return f"{float(f'{value:.2g}'):,.0f}" if value >= 9.95 else f"{value:.1f}" if value >= 1 else f"{value:.2g}"
