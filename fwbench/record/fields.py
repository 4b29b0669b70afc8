"""What is stated once of each field of a dataclass, beside its type and default, and what follows from it.

seed: Annotated[int, Field("Seed of the drawn weights.", "s{}", least=0)] = 0
"""

import dataclasses
import math
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fwbench.errors import hint

# For each type of a field: its values in words, and what reads one of them from a text.
_KINDS: Mapping[Any, tuple[str, Callable[[str], Any]]] = {
    str: ("a text", str),
    bool: ("true or false", lambda text: {"true": True, "false": False}[text.lower()]),
    int: ("a whole number", int),
    str | None: ("a text", str),
    float | None: ("a number above 0", float),
    tuple[tuple[str, int], ...]: (
        "AXIS:SIZE,...",
        lambda text: tuple((axis, int(size)) for axis, _, size in (part.partition(":") for part in text.split(","))),
    ),
}


@dataclass(frozen=True)
class Field:
    """What is stated of a field.

    Attributes:
        help: its meaning, in one line.
        mark: how an id shows a value other than the default, `{}` standing for the value; empty: it does not.
        choices: all values that may be asked for; empty: any of its type.
        open: whether a record may hold other values than `choices`, as that of a newer fwbench does.
        least: the smallest whole number that it may be.
        modes: the modes that it is about; empty: all of them. The ids of its only mode show its default, too.
        source: what decides it in a run of pytest; empty: `--fwbench-set`.
        single: whether a run has one value of it, of which a comma is a part.
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
            asked: whether somebody asks for it, or else a record may hold it.

        Raises:
            ValueError: it is one; the sentence names the field and the value.
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
        """The option that sets it in a run of pytest; empty: none does."""
        return self.source if self.source.startswith("--") else "" if self.source else f"--fwbench-set={self.name}"

    @property
    def values(self) -> str:
        """The values that it may have, in words."""
        least = "" if self.least is None else f" of at least {self.least}"
        return ", ".join(self.choices) or f"{_KINDS[self.kind][0]}{least}"

    def parse(self, text: str) -> Any:
        """The value that a text states.

        Raises:
            ValueError: it states none that the field can have; one sentence.
        """
        try:
            value = _KINDS[self.kind][1](text)
        except (ValueError, KeyError):
            raise ValueError(f"{self.name}={text} is not {self.values}") from None
        self.check(value, asked=True)
        return value

    def text(self, value: Any) -> str:
        """The text that states a value: the inverse of `parse`."""
        if isinstance(value, tuple):
            return ",".join(f"{axis}:{size}" for axis, size in value)
        return str(value).lower() if isinstance(value, bool) else str(value)


def fields(of: type) -> dict[str, Field]:
    """The fields of a dataclass of which anything is stated, by name."""
    hints = typing.get_type_hints(of, include_extras=True)
    return {
        field.name: dataclasses.replace(
            hint.__metadata__[0], name=field.name, kind=hint.__origin__, default=field.default
        )
        for field in dataclasses.fields(of)
        if typing.get_origin(hint := hints[field.name]) is typing.Annotated
    }


def parse(texts: Iterable[str], known: Mapping[str, Field], *, several: bool = False) -> dict[str, tuple[Any, ...]]:
    """The values by field, of texts that each say `FIELD=VALUE`; a later text wins over an earlier one.

    Args:
        several: whether commas stand between several values, as in `seed=0,1,2`.

    Raises:
        ValueError: a text says something else; one sentence, without a full stop.
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
