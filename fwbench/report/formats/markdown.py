"""Tables in Markdown, numbers flush right."""

import re
from collections.abc import Iterable

from fwbench.report.tables import Table

# What would be markup or end a cell (GitHub's flavour), and what would be HTML.
_SPECIAL = re.compile(r"[\\`*_{}\[\]<>#|~$&!@]")


def document(title: str, tables: Iterable[tuple[str, Table]]) -> str:
    """All tables of a report, each under the heading of its setting where that changes."""
    lines, previous = [f"# {escape(title)}", ""], ""
    for setting, table in tables:
        if setting != previous:
            lines += [f"## {escape(setting)}", ""]
            previous = setting
        lines += [f"### {escape(table.title)}", "", write(table)]
    return "\n".join(lines)


def write(table: Table) -> str:
    """One table, its caption above and what is missing below."""
    names = [escape(column.name) for column in table.columns]
    rules = ["---:" if column.unit else ":---" for column in table.columns]
    body = [[escape(text) for text in table.texts(row)] for row in table.rows]
    lines = [escape(table.caption), "", *(f"| {' | '.join(cells)} |" for cells in (names, rules, *body)), ""]
    for missing in table.missing:
        lines += [f"Missing: {escape(missing)}.", ""]
    return "\n".join(lines)


def escape(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    return _SPECIAL.sub(lambda match: f"\\{match[0]}", " ".join(text.split()))
