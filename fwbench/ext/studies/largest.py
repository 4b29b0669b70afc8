"""Each lane's throughput at the largest batch of each model."""

import dataclasses
from collections.abc import Sequence

from fwbench import units
from fwbench.compare.cases import Case, by_workload, grouped, title
from fwbench.report import calls
from fwbench.report.columns import axis_columns
from fwbench.report.tables import Column, Table, tabulate


def table(cases: Sequence[Case], baseline: str | None) -> Table:
    """Every lane's throughput at the largest batch of each model's inference, and its speed-up over the baseline."""
    every = by_workload(cases)
    by_model = grouped(every, lambda workload: dataclasses.replace(workload, batch_size=workload.parts))
    largest = [max(of, key=lambda workload: workload.batch_size) for of in by_model.values()]
    # A lane without a number at any largest batch has its column all the same.
    lanes = list(dict.fromkeys(lane for of in every.values() for lane in of))
    # A row is any of its workload's cases.
    rows = [next(iter(every[workload].values())) for workload in largest]

    def case(row: Case, lane: str) -> Case:
        """A lane's case; one without numbers where it was not measured at the largest batch."""
        return every[row.workload.of_all].get(lane, Case(row.workload))

    def throughput(lane: str) -> Column[Case]:
        return Column(f"{title(lane)} /s", lambda row: case(row, lane).value("throughput"), "1/s", units.rate)

    def speed_up(lane: str, over: str) -> Column[Case]:
        def of(row: Case) -> float | str | None:
            return calls.speed_up(case(row, lane), case(row, over))

        return Column(f"{title(lane)} speed-up", of, "1", units.ratio)

    without = [workload for workload in largest if baseline and baseline not in every[workload]]
    named = ", ".join(f"{workload.subject} at batch {workload.batch_size}" for workload in without)
    of_baseline = title(baseline) if baseline else ""
    relative = f", and speed-up over {of_baseline}" if baseline else ""
    return tabulate(
        "summary",
        "Table I: inference at the largest batch",
        f"Samples per second by lane at the largest batch measured{relative}.",
        (
            Column("model", lambda row: row.workload.model),
            Column("precision", lambda row: row.workload.precision),
            Column("batch", lambda row: row.workload.batch_size, "1"),
            *axis_columns(rows),
            *map(throughput, lanes),
            *(speed_up(lane, baseline) for lane in lanes if baseline and lane != baseline),
        ),
        rows,
        [f"no speed-up of {named}: {of_baseline}, which it is relative to, has no number there"] if named else [],
    )
