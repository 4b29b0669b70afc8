"""Decodes JSON into frozen dataclasses by their annotations, also in workers, which have no msgspec."""

import dataclasses
import functools
import types
import typing
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any, Literal, Self

# Numbers and texts of records with narrower bounds than others; `fwbench.record.schema` states and checks them.
Amount = Annotated[float, "at least 0"]
Positive = Annotated[float, "above 0"]
Whole = Annotated[int, "at least 1"]
Name = Annotated[str, "short"]


class Decoded:
    """A dataclass that can be written as JSON and read back."""

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON primitives."""
        of: Any = self
        return dataclasses.asdict(of)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`.

        Raises:
            TypeError: an unknown field, a field of another type, or one that is missing.
        """
        of: Any = cls
        hints, fields = _hints(of), {}
        for name, value in data.items():
            try:
                fields[name] = _decoded(hints.get(name, Any), value)
            except TypeError as error:
                raise TypeError(f"{name}: {error}") from None
        return cls(**fields)


@functools.cache
def _hints(of: Any) -> dict[str, Any]:
    return typing.get_type_hints(of)


def _decoded(kind: Any, value: Any) -> Any:
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return _first(inner, value)
    if kind in (int, float):
        fits = isinstance(value, int | kind) and not isinstance(value, bool)
    elif origin is Literal:
        fits = value in inner
    elif origin is tuple and isinstance(value, list | tuple):
        # A measurement has up to ten thousand samples.
        if set(map(type, value)) == {float} == {inner[0]}:
            return tuple(value)
        kinds = inner[:1] * len(value) if inner[-1] is Ellipsis else inner
        return tuple(map(_decoded, kinds, value))
    elif origin is Mapping and isinstance(value, Mapping):
        return {name: _decoded(inner[1], each) for name, each in value.items()}
    elif hasattr(kind, "from_json") and isinstance(value, Mapping):
        return kind.from_json(value)
    else:
        fits = kind is Any or isinstance(value, origin or kind)
    if not fits:
        raise TypeError(f"it cannot be {value!r:.40}")
    return value


def _first(kinds: tuple[Any, ...], value: Any) -> Any:
    """The value, decoded as the first of several types that it fits."""
    *others, last = [kind for kind in kinds if (kind is type(None)) == (value is None)] or kinds
    for kind in others:
        with suppress(TypeError):
            return _decoded(kind, value)
    return _decoded(last, value)
