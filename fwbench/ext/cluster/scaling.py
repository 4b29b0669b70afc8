"""The scaling of throughput: a workload over several devices against the same lane on one of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from fwbench import units
from fwbench.compare.cases import Case, OfCase, Setting, cases, measured, over_seeds
from fwbench.compare.weighing import Interval, Weighed, judge
from fwbench.record.measurement import Measurement
from fwbench.report.columns import unit, workload_columns
from fwbench.report.tables import Column, Table, tabulate


@dataclass(frozen=True)
class Scaled(OfCase):
    """A workload over several devices.

    Attributes:
        kind: `weak`: beside one device with the batch that each of them has; `strong`: with the batch of all; empty
            where neither was measured.
        weighed: its throughput over that of one device; None if there is none to compare it with.
        why: the reason why `weighed` is None; else empty.
    """

    kind: str
    weighed: Weighed | None
    why: str

    @property
    def efficiency(self) -> float | None:
        """The efficiency: 1 if N devices do N times the work of one; for disturbed rows, with its bounds."""
        if self.weighed is None:
            return None
        devices, shown = self.workload.devices, self.weighed.shown
        return units.Within(shown / devices, *(end / devices for end in units.bounds(shown)))

    @property
    def interval(self) -> Interval | None:
        """The efficiency's interval over pairs of processes."""
        interval, devices = self.weighed.interval if self.weighed else None, self.workload.devices
        return interval and Interval(interval.low / devices, interval.high / devices, interval.level)


def scaled(given: Sequence[Case]) -> list[Scaled]:
    """A row for each workload over several devices; two rows if one device was measured with both batches."""
    merged = over_seeds(measured(given))
    alone = {case.workload: case for case in merged if case.workload.devices == 1 and case.value("throughput")}
    rows = []
    for case in merged:
        workload = case.workload
        if workload.devices == 1 or not case.value("throughput"):
            continue
        batches = {"weak": workload.batch_size // workload.devices, "strong": workload.batch_size}
        both = ((kind, alone.get(replace(workload, devices=1, batch_size=batch))) for kind, batch in batches.items())
        beside = {kind: row for kind, row in both if row}
        if not beside:
            why = f"no record of one device at batch {batches['weak']} or {batches['strong']}"
            rows.append(Scaled(case, "", None, why))
        for kind, row in beside.items():
            # Threads are not compared, as each of several processes has a part of them.
            judged = judge(case, row, threads=False)
            rows.append(Scaled(case, kind, judged.weighed, judged.why))
    return rows


def of_report(setting: Setting, baseline: str | None) -> list[Table]:
    """The table of scaling in a report."""
    return [table(setting.cases)]


def of_run(measurements: Sequence[Measurement], study: str | None, numbers: bool) -> list[Table]:
    """The table of scaling at a run's end, if the lanes' own numbers are shown there."""
    return [table(cases(measurements))] if numbers else []


def table(given: Sequence[Case]) -> Table:
    """The table of scaling: one row a workload over several devices and kind of scaling."""
    rows = scaled(given)

    def metric(name: str, metric: str, show: Callable[[float], str]) -> Column[Scaled]:
        return Column(name, lambda row: row.case.value(metric), unit(metric), show)

    def of_each(row: Scaled) -> float:
        return (row.case.value("throughput") or 0.0) / row.workload.devices

    def interval(name: str, part: str) -> Column[Scaled]:
        return Column(name, lambda row: getattr(row.interval, part, None), "1", units.share)

    intervals = (interval("from", "low"), interval("to", "high"), interval("at", "level"))
    one_cpu = "scaling of any accelerator: these devices are parts of one CPU"
    return tabulate(
        "scaling",
        "Several devices",
        "Throughput of all devices and of each; efficiency is throughput over that of one device in the same lane, "
        "divided by the number of devices: weak beside one device with as large a batch as each has, strong beside one "
        "with the whole batch. From two pairs of processes on, the ends of its interval; an efficiency from one number "
        "to another is of rows that were disturbed. Spread is by how much the "
        "slowest rank's median call is above the fastest one's; exchange is the time in communication in a step, part "
        "of which passes while gradients are computed; joining is from the start of the processes until the last has "
        "joined, and no part of any other time. Ranks on a CPU share its memory and its caches: their rows prove that "
        "the lanes compute the same, and tell nothing of scaling.",
        (
            *workload_columns(rows),
            Column("lane", lambda row: row.case.lane),
            metric("throughput/s", "throughput", units.rate),
            Column("per device/s", of_each, "1/s", units.rate),
            Column("scaling", lambda row: row.kind or None),
            Column("efficiency", lambda row: row.why or row.efficiency, "1", units.share),
            *(intervals if any(row.interval for row in rows) else ()),
            metric("spread", "rank_spread", "{:.1%}".format),
            metric("exchange", "communication_time", units.seconds),
            metric("joining", "join_time", units.seconds),
        ),
        rows,
        [one_cpu] if any(row.workload.device == "cpu" for row in rows) else [],
    )
