"""The shape of a table: columns that know where a value comes from, rows of values, nothing of any format."""

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
        """A mean and its standard deviation, in the same unit."""
        spread = super().__new__(cls, mean)
        spread.sd = sd
        return spread


@dataclass(frozen=True)
class Column(Generic[Item]):
    """One column.

    Attributes:
        of: the item's value: text, or a number in `unit`, or None.
        unit: SI, of the column's numbers (`1` for a share, a ratio, a count); empty for text.
        show: a number for the screen.
        absent: what stands where there is no value.
    """

    name: str
    of: Callable[[Item], Value]
    unit: str = ""
    show: Callable[[float], str] = str
    absent: str = "-"

    def text(self, value: Value) -> str:
        """A value as people read it."""
        if value is None:
            return self.absent
        return value if isinstance(value, str) else self.show(value)


@dataclass(frozen=True)
class Row:
    """Values, one a column; a failed row says what failed where its numbers would be."""

    values: tuple[Value, ...]
    failure: str = ""


@dataclass(frozen=True)
class Table:
    """A table as every format writes it.

    Attributes:
        key: names its files and its place on the page.
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
        """The row as people read it."""
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
    """A row an item; `failure` says of an item why it has no numbers."""
    rows = tuple(Row(tuple(column.of(item) for column in columns), failure(item)) for item in items)
    return Table(key, title, caption, tuple(columns), rows, tuple(missing))  # type: ignore[arg-type]


def lines(table: Table, left: int | None = None) -> list[str]:
    """For the terminal: a line of names and a line a row; none where there is no row.

    Args:
        left: how many columns are set flush left, the others flush right; None: all are.
    """
    if not table.rows:
        return []
    rows = [[line(text) for text in table.texts(row)] for row in table.rows]
    return columns([[column.name for column in table.columns], *rows], left)
