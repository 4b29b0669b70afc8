"""What a record's JSON must be: types, signs, sizes and units of every field, stated once and checked by msgspec.

Fields and types are those of the dataclasses that JSON becomes. What stands here is what they cannot say: bounds, what
JSON writes in another way, and what is in the objects that anybody may add to. Fields that are not known are passed
over, so that a newer fwbench may add some; but not in a workload or a metric, where they could say that it is another
one. `tools/record_schema.py` states it all as JSON Schema.

Only whoever reads a record imports this module: workers have no msgspec.
"""

import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from fwbench.record.fingerprint import Fingerprint
from fwbench.record.machine import AcceleratorProcess, AcceleratorState, Machine, Node
from fwbench.record.measurement import Failure, Measurement, Metric, Moment, Pass, Rank
from fwbench.record.metrics import METRICS
from fwbench.record.rounds import PlayedRound
from fwbench.record.workload import FIELDS, Workload

# No time, size, rate or energy is larger, and but for 0 none is smaller, so that ratios of two are numbers.
MOST, LEAST = 1e30, 1e-30
# Objects in each other.
DEEPEST = 20

_FLOAT32 = 3.5e38  # a loss may be as large
Number = Annotated[float, Meta(ge=-_FLOAT32, le=_FLOAT32)]
Amount = Annotated[float, Meta(ge=0, le=MOST)]
Positive = Annotated[float, Meta(ge=LEAST, le=MOST)]
Count = Annotated[int, Meta(ge=0, le=2**53)]
_Integer = Annotated[int, Meta(ge=-(2**53), le=2**53)]
Size = Annotated[int, Meta(ge=1, le=2**31)]
_Name = Annotated[str, Meta(max_length=1_000)]
TEXT = Annotated[str, Meta(max_length=1_000_000)]
_Base64 = Annotated[str, Meta(max_length=100_000, pattern="^[A-Za-z0-9+/]*={0,2}$")]
_Samples = Annotated[list[Amount], Meta(max_length=10_000_000)]
_Open = dict[_Name, Any]

# What stands for a Python type wherever nothing narrower is said.
_BOUNDS: dict[Any, Any] = {float: Number, int: Count, str: TEXT}


def _bounded(kind: Any) -> Any:
    """A type with bounds for every number and text in it."""
    if kind in _BOUNDS:
        return _BOUNDS[kind]
    inner = typing.get_args(kind)
    origin = typing.get_origin(kind)
    if not inner or origin is Literal:
        return kind
    bounded = tuple(map(_bounded, inner))
    return typing.Union[bounded] if origin in (typing.Union, types.UnionType) else origin[bounded]  # noqa: UP007


def _shape(of: type, own: Mapping[str, Any] = types.MappingProxyType({}), strict: bool = False) -> Any:
    """The JSON of a dataclass: its fields and their types.

    Args:
        own: types by name that are narrower, or JSON's own; and fields that JSON has besides.
        strict: whether a field that is not known is a fault.
    """
    hints = typing.get_type_hints(of)
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


_BOUNDS[AcceleratorProcess] = _shape(AcceleratorProcess)
_BOUNDS[AcceleratorState] = _shape(AcceleratorState)
_BOUNDS[Moment] = _shape(Moment, {"held": dict[_Name, Amount]})
_BOUNDS[Pass] = _shape(
    Pass,
    {
        "name": _Name,
        **dict.fromkeys(("seconds", "cpu", "gap", "throttled", "suspended", "switches"), Amount),
        "waited": Amount | None,
    },
)
_BOUNDS[Rank] = _shape(Rank, {"host": _Name, "device": _Name, "metrics": dict[_Name, Number], "settings": _Open})
_BOUNDS[Node] = _shape(Node, {"machine": _Open})
_BOUNDS[Failure] = _shape(Failure)
FINGERPRINT = _BOUNDS[Fingerprint] = _shape(Fingerprint)
MACHINE = _shape(Machine, {"threads": Size, "quota": Positive | None})
WORKLOAD = _BOUNDS[Workload] = _shape(
    Workload,
    {
        **dict.fromkeys(("lane", "model", "mode", "data", "variant"), _Name),
        **{name: Size for name, field in FIELDS.items() if field.least == 1},
        **{name: _one_of(field.choices) for name, field in FIELDS.items() if field.choices and not field.open},
        "learning_rate": Positive | None,
        "axes": dict[_Name, _Integer],
        "target": _Name | None,
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


ROUND = _shape(PlayedRound, {"begun": Amount, "turns": dict[_Name, _Taken], "pace": Amount})

MEASUREMENT = _shape(
    Measurement,
    {
        "samples": _Samples,
        # Each by its own shape.
        "metrics": _Open,
        "processes": list[dict[_Name, Positive]],
        "turns": list[_Turns],
        "attempts": list[_Open],
        "unfit": list[Size],
        "stages": dict[_Name, Amount],
        "versions": dict[_Name, _Name],
        "sources": dict[_Name, _Name],
        **dict.fromkeys(("protocol", "settings", "parity", "training", "duet"), _Open),
    },
)


class Protocol(msgspec.Struct):
    """The amounts of a measurement that are read by name."""

    profile: _Name | None = None


class Settings(msgspec.Struct):
    """The settings of a lane that are read by name."""

    cpus: list[Count] = []
    caution: TEXT = ""
    also_imported: list[_Name] = []
    changed: list[_Name] = []


class Probe(msgspec.Struct):
    """What the precision probe found of one operation."""

    arithmetic: _Name | None = None


class Proof(msgspec.Struct):
    """What a record says of the proof of its lane's network."""

    framework: _Name | UnsetType = UNSET
    state: _Name | UnsetType = UNSET
    reason: TEXT | None = None
    python: TEXT | None = None
    untried: list[TEXT] | UnsetType = UNSET
    errors: dict[_Name, Number | None] | UnsetType = UNSET
    versions: dict[_Name, _Name] | UnsetType = UNSET


class Sketch(msgspec.Struct):
    """Arrays that the timed program computed, folded into a few numbers (`fwbench.record.sketch`)."""

    names: Annotated[_Base64, Meta(description="a name for each group of arrays, lines packed by zlib")]
    slots: Annotated[_Base64, Meta(description="sums of numbers with random signs, float32: as many for each group")]
    norms: Annotated[_Base64, Meta(description="L2 length of each group, the upper halves of float32")]
    moved: Annotated[
        _Base64,
        Meta(description="how far each group moved with every weight moved by rounding units, as norms; NaN: unknown"),
    ]


class Check(msgspec.Struct):
    """What the timed program computed: sketches, or the reason why there are none."""

    reason: TEXT | UnsetType = UNSET
    output: Sketch | UnsetType = UNSET
    before: Annotated[Sketch, Meta(description="the output before anything was timed, if it changed")] | UnsetType = (
        UNSET
    )
    follows: Annotated[bool, Meta(description="whether outputs differ where inputs do")] | UnsetType = UNSET
    remembers: (
        Annotated[
            list[Amount],
            Meta(min_length=2, max_length=2, description="seconds of a call on new inputs, and of the same call again"),
        ]
        | UnsetType
    ) = UNSET
    loss: Sketch | UnsetType = UNSET
    gradients: Sketch | UnsetType = UNSET
    updates: Sketch | UnsetType = UNSET
    statistics: Sketch | UnsetType = UNSET
    draws: (
        Annotated[
            list[Number], Meta(min_length=2, description="first loss of a random training step, drawn several times")
        ]
        | UnsetType
    ) = UNSET


class Parity(msgspec.Struct):
    """Why a number may be compared."""

    weights: _Name | None = None
    probe: dict[_Name, Probe] | None = None
    proof: Proof | None = None
    check: Check | None = None


class Scores(msgspec.Struct):
    """Loss and accuracies on a split."""

    top1: Number
    loss: Number | None = None
    top5: Number | None = None


class Epoch(msgspec.Struct):
    """One epoch of a training: seconds, joules, loss and accuracy."""

    seconds: Amount
    train_loss: Number
    training: Amount | None = None
    waiting: Amount | None = None
    computing: Amount | None = None
    evaluating: Amount | None = None
    samples: Count | None = None
    train_top1: Number | None = None
    validation: Scores | None = None
    energy: Number | None = None


class Training(msgspec.Struct):
    """A training, epoch by epoch and step by step."""

    epochs: list[Epoch] = []
    losses: list[Number] = []
    accuracies: list[Number] = []


class Screened(msgspec.Struct):
    """A pair of a duet's screening."""

    seconds: Amount


class Duet(msgspec.Struct):
    """The fields of a duet that are read by name."""

    screening: list[Screened] = []


class Value(msgspec.Struct):
    """A metric of another attempt."""

    value: Number | None = None


class Reason(msgspec.Struct):
    """The failure of another attempt."""

    message: TEXT = ""


class Attempt(msgspec.Struct):
    """The fields that are read by name of another measurement of the workload in the same run."""

    samples: _Samples
    stages: dict[_Name, Amount] = {}
    metrics: dict[_Name, Value] = {}
    processes: list[dict[_Name, Positive]] = []
    failure: Reason | None = None


# What is in the objects of a measurement that lanes and meters may add to.
OPEN = {"protocol": Protocol, "settings": Settings, "parity": Parity, "training": Training, "duet": Duet}


class Stats(msgspec.Struct):
    """The statistics of pytest-benchmark that are read, in seconds."""

    median: Amount
    mean: Amount
    stddev: Amount
    rounds: Count
    data: _Samples = []


class Commit(msgspec.Struct, omit_defaults=True):
    """The tree that was measured."""

    id: _Name | None = None
    branch: _Name | None = None
    dirty: bool | None = None


# Energy less its idle share can be below zero, and so can a loss.
_VALUES = {"s": Amount, "B": Amount, "1/s": Amount, "FLOP/s": Amount}


def _metric(name: str) -> Any:
    """A metric by its name; of one that `METRICS` does not list unit and direction are any."""
    known = METRICS.get(name)
    value = Positive if name == "throughput" else _VALUES.get(known.unit, Number) if known else Number
    of_name = {"unit": _one_of((known.unit,)), "direction": _one_of((known.direction,))} if known else {}
    return _shape(Metric, {"value": value | None, "unit": _Name, "direction": _Name, **of_name}, strict=True)


METRIC = {name: _metric(name) for name in METRICS}
ANY_METRIC = _metric("")


def measurement(data: object) -> dict[str, Any]:
    """What `Measurement.from_json` may have of an object of JSON: checked, and less what is not known.

    Raises:
        ValueError: a field is missing, of another type, or out of its bounds; the sentence names it.
    """
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
    """JSON that is sound, as its shape has it.

    Raises:
        ValueError: it is not.
    """
    sound(data, what)
    return shaped(data, shape, what)


def shaped(data: object, shape: Any, what: str = "") -> Any:
    """JSON as its shape has it, less what the shape does not know.

    Args:
        what: the data is, for the sentence.

    Raises:
        ValueError: it has another shape; the sentence names the place and the fault.
    """
    try:
        return msgspec.to_builtins(msgspec.convert(data, shape))
    except msgspec.ValidationError as error:
        fault, _, place = str(error).partition(" - at `$")
        where = f"{what}{place.rstrip('`')}".lstrip(".")
        raise ValueError(f"{where or 'it'}: {fault[0].lower()}{fault[1:]}") from None


def sound(value: object, place: str = "", depth: int = 0) -> None:
    """Whatever anybody may have added: no number but finite ones, no half characters, not too deep.

    Raises:
        ValueError: it is not so; the sentence names the place and the fault.
    """
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
