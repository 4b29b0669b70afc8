"""The shape of a table: columns that read a value from an item, rows of values, and nothing of any format."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from fwbench.text import columns, line

Item = TypeVar("Item", contravariant=True)
Value = str | float | None


class Spread(float):
    """A mean over several values that knows their standard deviation."""

    sd: float

    def __new__(cls, mean: float, sd: float) -> "Spread":
        spread = super().__new__(cls, mean)
        spread.sd = sd
        return spread


@dataclass(frozen=True)
class Column(Generic[Item]):
    """One column.

    Attributes:
        of: returns the item's value: text, or a number in `unit`, or None.
        unit: the SI unit of the column's numbers (`1` for a share, a ratio, a count); empty for text.
        show: formats a number for the screen.
        absent: the text shown in place of a missing value.
        axis: true for an axis of a model, which may have the name of any other column.
    """

    name: str
    of: Callable[[Item], Value]
    unit: str = ""
    show: Callable[[float], str] = str
    absent: str = "-"
    axis: bool = False

    def text(self, value: Value) -> str:
        """The text that shows a value to people."""
        if value is None:
            return self.absent
        return value if isinstance(value, str) else self.show(value)


@dataclass(frozen=True)
class Row:
    """Values, one a column; a failed row shows its failure in place of its numbers."""

    values: tuple[Value, ...]
    failure: str = ""


@dataclass(frozen=True)
class Table:
    """A table, the same for every format.

    Attributes:
        key: the name of its files and of its place on the page.
        caption: what the numbers are and how they were made: a sentence or two.
        missing: what a reader would expect here and does not find, and why.
    """

    key: str
    title: str
    caption: str
    columns: tuple[Column[object], ...]
    rows: tuple[Row, ...]
    missing: tuple[str, ...] = ()

    def texts(self, row: Row) -> list[str]:
        """The texts that show a row to people."""
        texts = [column.text(value) for column, value in zip(self.columns, row.values, strict=True)]
        if row.failure:
            empty = [place for place, column in enumerate(self.columns) if column.unit and row.values[place] is None]
            for place in empty:
                texts[place] = row.failure if place == empty[0] else ""
        return texts


def tabulate(
    key: str,
    title: str,
    caption: str,
    columns: Sequence[Column[Item]],
    items: Iterable[Item],
    missing: Iterable[str] = (),
    failure: Callable[[Item], str] = lambda item: "",
) -> Table:
    """Make a table with a row an item; `failure` returns the reason why an item has no numbers."""
    rows = tuple(Row(tuple(column.of(item) for column in columns), failure(item)) for item in items)
    return Table(key, title, caption, tuple(columns), rows, tuple(missing))  # type: ignore[arg-type]


def lines(table: Table, left: int | None = None) -> list[str]:
    """Format a table for the terminal: a line of names and a line a row; no lines without a row.

    Args:
        left: the number of columns that are set flush left, the others flush right; None: all flush left.
    """
    if not table.rows:
        return []
    rows = [[line(text) for text in table.texts(row)] for row in table.rows]
    return columns([[column.name for column in table.columns], *rows], left)
