"""Tables in Markdown, numbers flush right."""

from collections.abc import Iterable

from fwbench.report.tables import Table
from fwbench.text import markdown as escape
from fwbench.text import row


def document(title: str, parts: Iterable[tuple[str, Iterable[str], Iterable[Table]]]) -> str:
    """Format a whole report: each part's heading, the sentences before its tables, and its tables."""
    lines = [f"# {escape(title)}", ""]
    for heading, sentences, tables in parts:
        lines += [f"## {escape(heading)}", "", *(f"- {escape(sentence)}" for sentence in sentences), ""]
        for table in tables:
            lines += [f"### {escape(table.title)}", "", write(table)]
    return "\n".join(lines)


def write(table: Table) -> str:
    """Format one table, its caption above and the missing parts below."""
    names = [escape(column.name) for column in table.columns]
    rules = ["---:" if column.unit else ":---" for column in table.columns]
    body = [[escape(text) for text in table.texts(cells)] for cells in table.rows]
    lines = [escape(table.caption), "", *map(row, (names, rules, *body)), ""]
    for missing in table.missing:
        lines += [f"Missing: {escape(missing)}.", ""]
    return "\n".join(lines)
