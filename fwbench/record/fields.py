"""Descriptions of a dataclass's fields, stated once beside type and default, and the checks and parsers made of them.

seed: Annotated[int, Field("Seed of the drawn weights.", "s{}", least=0)] = 0

A value that a field cannot have is a ValueError of one sentence, without a full stop.
"""

import dataclasses
import math
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fwbench.errors import hint

# A value of each of a model's axes: a size, or a list of sizes that a call takes in turn.
Size = int | tuple[int, ...]
Axes = tuple[tuple[str, Size], ...]


def spelled(size: Size) -> str:
    """A size, or the sizes of a list with hyphens between them."""
    return str(size) if isinstance(size, int) else "-".join(map(str, size))


def _axes(text: str) -> Axes:
    parts = (part.partition(":") for part in text.split(","))
    return tuple((axis, tuple(map(int, of.split("-"))) if "-" in of else int(of)) for axis, _, of in parts)


# For each type of a field: its values in words, and a parser of one value.
_KINDS: Mapping[Any, tuple[str, Callable[[str], Any]]] = {
    str: ("a text", str),
    bool: ("true or false", lambda text: {"true": True, "false": False}[text.lower()]),
    int: ("a whole number", int),
    str | None: ("a text", str),
    float | None: ("a number above 0", float),
    Axes: ("AXIS:SIZE,...", _axes),
}


@dataclass(frozen=True)
class Field:
    """The description of a field.

    Attributes:
        help: its meaning, in one line.
        mark: text by which an id shows a value other than the default, with `{}` for the value; empty: ids show none.
        choices: all values that may be asked for; empty: any of its type.
        open: whether a record may hold other values than `choices`, as that of a newer fwbench does.
        least: the smallest whole number that it may be.
        modes: the modes that use it; empty: all of them. If only one mode does, that mode's ids show the default, too.
        source: what sets it in a run of pytest; empty: `--fwbench-set`.
        single: whether a run has only one value of it, so that a comma is part of the value.
        name, kind, default: as the dataclass declares them.
    """

    help: str
    mark: str = ""
    choices: tuple[str, ...] = ()
    open: bool = False
    least: int | None = None
    modes: tuple[str, ...] = ()
    source: str = ""
    single: bool = False
    name: str = ""
    kind: Any = str
    default: Any = None

    def check(self, value: Any, *, asked: bool = False) -> None:
        """Refuse a value that the field cannot have.

        Args:
            asked: whether a user asks for the value; otherwise it comes from a record.
        """
        name = self.name.replace("_", " ")
        if self.choices and value not in self.choices and (asked or not self.open):
            raise ValueError(f"unknown {name} {value!r}: {hint(str(value), self.choices)}")
        if self.least is not None and (type(value) is not int or value < self.least):
            raise ValueError(f"{name} {value!r} is not a whole number of at least {self.least}")
        if value is not None and self.kind == float | None and not 0 < value < math.inf:
            raise ValueError(f"{name} {value!r} is not a number above 0")

    @property
    def option(self) -> str:
        """The option that sets the field in a run of pytest; empty: none does."""
        return self.source if self.source.startswith("--") else "" if self.source else f"--fwbench-set={self.name}"

    @property
    def values(self) -> str:
        """The values that the field may have, in words."""
        least = "" if self.least is None else f" of at least {self.least}"
        return ", ".join(self.choices) or f"{_KINDS[self.kind][0]}{least}"

    def parse(self, text: str) -> Any:
        """Parse a value from a text."""
        try:
            value = _KINDS[self.kind][1](text)
        except (ValueError, KeyError):
            raise ValueError(f"{self.name}={text} is not {self.values}") from None
        self.check(value, asked=True)
        return value

    def text(self, value: Any) -> str:
        """The text that states a value: the inverse of `parse`."""
        if isinstance(value, tuple):
            return ",".join(f"{axis}:{spelled(size)}" for axis, size in value)
        return str(value).lower() if isinstance(value, bool) else str(value)


def fields(of: type) -> dict[str, Field]:
    """The fields of a dataclass that have a description, by name."""
    hints = typing.get_type_hints(of, include_extras=True)
    return {
        field.name: dataclasses.replace(
            hint.__metadata__[0], name=field.name, kind=hint.__origin__, default=field.default
        )
        for field in dataclasses.fields(of)
        if typing.get_origin(hint := hints[field.name]) is typing.Annotated
    }


def parse(texts: Iterable[str], known: Mapping[str, Field], *, several: bool = False) -> dict[str, tuple[Any, ...]]:
    """Parse texts of the form `FIELD=VALUE` into values by field; a later text wins over an earlier one.

    Args:
        several: whether commas stand between several values, as in `seed=0,1,2`.
    """
    by_field = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not equals:
            raise ValueError(f"{text!r} is not FIELD=VALUE, as in seed=1")
        if name not in known:
            raise ValueError(f"there is no field {name!r}: {hint(name, sorted(known))}")
        parts = values.split(",") if several and not known[name].single else [values]
        by_field[name] = tuple(dict.fromkeys(known[name].parse(part.strip()) for part in parts))
    return by_field
