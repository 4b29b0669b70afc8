"""Each lane's throughput at the largest batch of each model."""

import dataclasses
import functools
from collections.abc import Iterable, Sequence

from fwbench import units
from fwbench.compare.cases import Case, Comparison, comparisons, grouped, title
from fwbench.report import calls
from fwbench.report.columns import axis_columns
from fwbench.report.tables import Column, Table, tabulate


def table(cases: Sequence[Case], baseline: str | None) -> Table:
    """Every lane's throughput at the largest batch of each model's inference, and its speed-up over the baseline."""
    every = comparisons(cases)
    by_model = grouped(every, lambda each: dataclasses.replace(each.workload, batch_size=each.workload.parts))
    largest = [max(of, key=lambda comparison: comparison.workload.batch_size) for of in by_model.values()]
    # A lane without a number at any largest batch has its column all the same.
    lanes = list(dict.fromkeys(lane for comparison in every for lane in comparison.lanes))
    others = [lane for lane in lanes if baseline and lane != baseline]

    # A lane that was not measured at the largest batch is a case without numbers.
    def throughput(lane: str, comparison: Comparison) -> float | None:
        return comparison.lanes.get(lane, Case(comparison.workload)).value("throughput")

    def speed_up(lane: str, comparison: Comparison) -> float | str | None:
        case = comparison.lanes.get(lane, Case(comparison.workload))
        return calls.speed_up(case, comparison.lanes.get(baseline or ""))

    relative = f", and speed-up over {title(baseline)}" if baseline else ""
    return tabulate(
        "summary",
        "Table I: inference at the largest batch",
        f"Samples per second by lane at the largest batch measured{relative}.",
        (
            Column("model", lambda comparison: comparison.workload.model),
            Column("precision", lambda comparison: comparison.workload.precision),
            Column("batch", lambda comparison: comparison.workload.batch_size, "1"),
            *axis_columns(largest),
            *(Column(f"{title(lane)} /s", functools.partial(throughput, lane), "1/s", units.rate) for lane in lanes),
            *(
                Column(f"{title(lane)} speed-up", functools.partial(speed_up, lane), "1", units.ratio)
                for lane in others
            ),
        ),
        largest,
        _without(baseline, largest) if baseline else [],
    )


def _without(baseline: str, largest: Iterable[Comparison]) -> list[str]:
    """A note on the workloads without a speed-up because the baseline was not measured; none where it always was."""
    workloads = (comparison.workload for comparison in largest if baseline not in comparison.lanes)
    named = ", ".join(f"{workload.subject} at batch {workload.batch_size}" for workload in workloads)
    return [f"no speed-up of {named}: {title(baseline)}, which it is relative to, has no number there"] if named else []
