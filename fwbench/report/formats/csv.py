"""Tables as CSV: exact values in SI; the header has the unit unless it is 1; a cell without a value is empty."""

import csv
import io

from fwbench.report.tables import Spread, Table, Value
from fwbench.text import cell


def write(table: Table) -> str:
    """Format one table; standard deviations stand beside a column of means, and failures in the last column."""
    columns: list[list[str]] = []
    for place, column in enumerate(table.columns):
        unit = "" if column.unit in ("", "1") else f" [{column.unit}]"
        values = [row.values[place] for row in table.rows]
        columns.append([cell(f"{column.name}{unit}"), *map(_cell, values)])
        if any(isinstance(value, Spread) for value in values):
            deviations = (repr(value.sd) if isinstance(value, Spread) else "" for value in values)
            columns.append([cell(f"{column.name} SD{unit}"), *deviations])
    columns.append(["failure", *(cell(row.failure) for row in table.rows)])
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(zip(*columns, strict=True))
    return file.getvalue()


def _cell(value: Value) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return cell(value)
    return repr(value if isinstance(value, int) else float(value))
