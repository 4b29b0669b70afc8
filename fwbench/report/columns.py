"""Columns that several tables share: those of a row's workload and options, and that of a metric."""

import functools
from collections.abc import Callable, Iterable
from typing import Protocol

from fwbench import units
from fwbench.compare.cases import DERIVED, OPTIONS, Case
from fwbench.record.metrics import METRICS
from fwbench.record.workload import Workload, shown
from fwbench.report.tables import Column


class Placed(Protocol):
    """An item of one workload, to be shown as a row of a table or a point of a figure."""

    @property
    def workload(self) -> Workload:
        """The workload, which decides the place of the row or point."""


def workload_columns(rows: Iterable[Placed]) -> list[Column[Placed]]:
    """The columns of a row's workload: model, mode, batch size, and the axes."""
    return [
        Column("model", lambda row: row.workload.model),
        Column("mode", lambda row: row.workload.mode),
        Column("batch", lambda row: row.workload.batch_size, "1"),
        *axis_columns(rows),
    ]


def option_columns(rows: Iterable[Placed]) -> list[Column[Placed]]:
    """Columns of the precision and of other options, for rows that name no lane with them; none if all are defaults."""
    workloads = [row.workload for row in rows]
    precise = any(workload.precision != "fp32" for workload in workloads)
    optional = any(workload.marks(OPTIONS) for workload in workloads)
    return [
        *([Column[Placed]("precision", lambda row: row.workload.precision)] if precise else []),
        *([Column[Placed]("options", lambda row: " ".join(row.workload.marks(OPTIONS)))] if optional else []),
    ]


def axis_columns(rows: Iterable[Placed]) -> list[Column[Placed]]:
    """A column for each axis that a model of these rows has; without a value where a row's model lacks the axis.

    If any row is about several devices, a column with their number comes first.
    """

    def value(axis: str, row: Placed) -> int | str | None:
        size = dict(row.workload.axes).get(axis)
        return None if size is None else shown(size)

    workloads = [row.workload for row in rows]
    axes = dict.fromkeys(axis for workload in workloads for axis, _ in workload.axes)
    devices = [Column[Placed]("devices", lambda row: row.workload.devices, "1")]
    return [
        *(devices if any(workload.devices > 1 for workload in workloads) else ()),
        *(Column[Placed](axis, functools.partial(value, axis), "1", axis=True) for axis in axes),
    ]


def metric_column(name: str, quantity: str, absent: str = "-") -> Column[Case]:
    """A column of medians over processes: of a metric, or of another quantity of a case, in its unit."""
    return Column(name, lambda case: case.value(quantity), unit(quantity), show(quantity), absent)


def unit(quantity: str) -> str:
    """The SI unit of a metric or of another quantity of a case."""
    return DERIVED[quantity][0] if quantity in DERIVED else METRICS[quantity].unit


def show(quantity: str) -> Callable[[float], str]:
    """The function that formats such a quantity for readers."""
    return units.SHOW[unit(quantity)]
