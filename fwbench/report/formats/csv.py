"""Tables as CSV: exact values in SI; the header has the unit unless it is 1; a cell without a value is empty."""

import csv
import io

from fwbench.report.tables import Spread, Table, Value
from fwbench.text import cell


def write(table: Table) -> str:
    """Format one table; standard deviations stand beside a column of means, and failures in the last column."""
    spread = [any(isinstance(row.values[place], Spread) for row in table.rows) for place in range(len(table.columns))]
    header: list[str] = []
    for column, doubled in zip(table.columns, spread, strict=True):
        unit = "" if column.unit in ("", "1") else f" [{column.unit}]"
        header.append(f"{column.name}{unit}")
        if doubled:
            header.append(f"{column.name} SD{unit}")
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([*map(cell, header), "failure"])
    for row in table.rows:
        cells: list[str] = []
        for value, doubled in zip(row.values, spread, strict=True):
            cells.append(_cell(value))
            if doubled:
                cells.append(repr(value.sd) if isinstance(value, Spread) else "")
        writer.writerow([*cells, cell(row.failure)])
    return file.getvalue()


def _cell(value: Value) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return cell(value)
    return repr(value if isinstance(value, int) else float(value))
