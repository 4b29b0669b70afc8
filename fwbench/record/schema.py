"""The shape of a record's JSON: types, signs, sizes and units of every field, stated once and checked by msgspec.

Fields and types are those of the dataclasses that JSON becomes. This module adds what they cannot express: bounds,
types that JSON writes in another way, and the contents of objects that anybody may add to. Unknown fields are ignored,
so that a newer fwbench may add some; but not in a workload or a metric, where they could make it another one.
`tools/record_schema.py` prints it all as JSON Schema.

Only readers of records import this module: workers have no msgspec. Its checks raise a ValueError, whose sentence
names the place and the fault.
"""

import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from fwbench.record import decoding
from fwbench.record.bounds import (
    DEEPEST,
    LEAST,
    OPEN,
    TEXT,
    Amount,
    Attempt,
    Count,
    Integer,
    Name,
    Number,
    Open,
    Positive,
    Samples,
    Size,
)
from fwbench.record.fingerprint import Fingerprint
from fwbench.record.machine import Machine
from fwbench.record.measurement import Measurement, Metric
from fwbench.record.metrics import METRICS
from fwbench.record.rounds import PlayedRound
from fwbench.record.workload import FIELDS, Workload

# The bounded type that stands for a Python type, unless a narrower one is given.
_BOUNDS: dict[Any, Any] = {
    **{float: Number, int: Count, str: TEXT, Mapping[str, Any]: Open},
    **{decoding.Amount: Amount, decoding.Positive: Positive, decoding.Whole: Size, decoding.Name: Name},
}


def _bounded(kind: Any) -> Any:
    """A type with bounds for every number and text in it."""
    inner = typing.get_args(kind)
    origin = typing.get_origin(kind)
    if kind in _BOUNDS:
        return _BOUNDS[kind]
    if origin is Annotated:
        return _bounded(inner[0])
    if dataclasses.is_dataclass(kind):
        return _BOUNDS.setdefault(kind, _shape(kind))
    if not inner or origin is Literal:
        return kind
    bounded = tuple(map(_bounded, inner))
    return typing.Union[bounded] if origin in (typing.Union, types.UnionType) else origin[bounded]  # noqa: UP007


def _shape(of: Any, own: Mapping[str, Any] = types.MappingProxyType({}), strict: bool = False) -> Any:
    """The JSON of a dataclass: its fields and their types.

    Args:
        own: by field, types that are narrower or JSON's own; and fields that only JSON has.
        strict: whether an unknown field is a fault.
    """
    hints = typing.get_type_hints(of, include_extras=True)
    optional = {
        field.name
        for field in dataclasses.fields(of)
        if field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
    }
    kinds = {name: own.get(name) or _bounded(kind) for name, kind in hints.items()} | dict(own)
    fields: list[Any] = [
        (name, typing.Union[kind, UnsetType], UNSET) if name in optional else (name, kind)  # noqa: UP007
        for name, kind in kinds.items()
    ]
    return msgspec.defstruct(of.__name__, fields, kw_only=True, forbid_unknown_fields=strict)


def _one_of(names: tuple[str, ...]) -> Any:
    return Literal.__getitem__(names)


FINGERPRINT = _bounded(Fingerprint)
MACHINE = _shape(Machine)
WORKLOAD = _BOUNDS[Workload] = _shape(
    Workload,
    {
        **dict.fromkeys(("lane", "model", "mode", "data", "variant"), Name),
        **{name: Size for name, field in FIELDS.items() if field.least == 1},
        **{name: _one_of(field.choices) for name, field in FIELDS.items() if field.choices and not field.open},
        "learning_rate": Positive | None,
        "axes": dict[Name, Integer | Annotated[list[Size], Meta(min_length=2)]],
        "target": Name | None,
    },
    strict=True,
)

_Blocks = Annotated[list[Positive], Meta(min_length=1, max_length=1_000)]


class _Taken(typing.TypedDict):
    """The turns of a lane in a round."""

    call: _Blocks
    latency: typing.NotRequired[_Blocks]
    memory: typing.NotRequired[_Blocks]


class _Turns(_Taken):
    """A round as measurements had it when rounds were no records of their own."""

    begun: Amount
    pace: typing.NotRequired[Amount]


ROUND = _shape(PlayedRound, {"turns": dict[Name, _Taken]})

# Each metric is checked by its own shape.
MEASUREMENT = _shape(Measurement, {"samples": Samples, "metrics": Open, "turns": list[_Turns]})


class Stats(msgspec.Struct):
    """The statistics of pytest-benchmark that are read, in seconds."""

    median: Amount
    mean: Amount
    stddev: Amount
    rounds: Count
    data: Samples = []


class Commit(msgspec.Struct, omit_defaults=True):
    """The tree that was measured."""

    id: Name | None = None
    branch: Name | None = None
    dirty: bool | None = None


# Energy less its idle share can be below zero, and so can a loss.
_VALUES = {"s": Amount, "B": Amount, "1/s": Amount, "FLOP/s": Amount}


def _metric(name: str) -> Any:
    """The shape of a metric by its name; one that `METRICS` does not list may have any unit and direction."""
    known = METRICS.get(name)
    value = Positive if name == "throughput" else _VALUES.get(known.unit, Number) if known else Number
    of_name = {"unit": _one_of((known.unit,)), "direction": _one_of((known.direction,))} if known else {}
    return _shape(Metric, {"value": value | None, "unit": Name, "direction": Name, **of_name}, strict=True)


METRIC = {name: _metric(name) for name in METRICS}
ANY_METRIC = _metric("")


def measurement(data: object) -> dict[str, Any]:
    """Check a measurement's JSON and return it for `Measurement.from_json`, without unknown fields."""
    if isinstance(data, Mapping):
        sound({name: value for name, value in data.items() if name != "samples"})
    checked: dict[str, Any] = shaped(data, MEASUREMENT)
    for name, shape in OPEN.items():
        shaped(checked.get(name, {}), shape, name)
    for attempt in checked.get("attempts", ()):
        shaped(attempt, Attempt, "attempts")
    metrics = {
        name: shaped(metric, METRIC.get(name, ANY_METRIC), f"metric {name}")
        for name, metric in checked.get("metrics", {}).items()
    }
    for name, metric in metrics.items():
        if name in METRICS and METRICS[name].unit in _VALUES and 0 < (metric["value"] or 0) < LEAST:
            raise ValueError(f"metric {name}: {metric['value']!r} is smaller than anything that can be measured")
    if any(0 < sample < LEAST for sample in checked.get("samples", ())):
        raise ValueError("samples: one is smaller than anything that can be measured")
    return {**checked, "metrics": metrics}


def read(data: object, shape: Any, what: str) -> Any:
    """Check that JSON is sound and has its shape, and return it without unknown fields."""
    sound(data, what)
    return shaped(data, shape, what)


def shaped(data: object, shape: Any, what: str = "") -> Any:
    """Check that JSON has its shape, and return it without unknown fields.

    Args:
        what: a name of the data, for the sentence.
    """
    try:
        return msgspec.to_builtins(msgspec.convert(data, shape))
    except msgspec.ValidationError as error:
        fault, _, place = str(error).partition(" - at `$")
        where = f"{what}{place.rstrip('`')}".lstrip(".")
        raise ValueError(f"{where or 'it'}: {fault[0].lower()}{fault[1:]}") from None


def sound(value: object, place: str = "", depth: int = 0) -> None:
    """Check any JSON: numbers are finite, texts have no half characters, and objects are not nested too deeply."""
    if depth > DEEPEST:
        raise ValueError(f"{place}: objects are more than {DEEPEST} deep in each other")
    if isinstance(value, str):
        if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
            raise ValueError(f"{place}: a text holds a byte that is not UTF-8, or half a character")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{place}: {value!r} is not a finite number")
    elif isinstance(value, Mapping):
        for name, each in value.items():
            sound(name, f"{place}, a key", depth + 1)
            sound(each, f"{place}.{name:.60}".lstrip("."), depth + 1)
    elif isinstance(value, list):
        for each in value:
            sound(each, place, depth + 1)
