"""Bounds of the numbers and texts in a record's JSON, and the fields read from objects that anybody may add to."""

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

# No time, size, rate or energy is larger, and none but 0 is smaller, so that the ratio of two is a finite number.
MOST, LEAST = 1e30, 1e-30
# The deepest nesting of objects.
DEEPEST = 20

_FLOAT32 = 3.5e38  # a loss may be as large
Number = Annotated[float, Meta(ge=-_FLOAT32, le=_FLOAT32)]
Amount = Annotated[float, Meta(ge=0, le=MOST)]
Positive = Annotated[float, Meta(ge=LEAST, le=MOST)]
Count = Annotated[int, Meta(ge=0, le=2**53)]
Integer = Annotated[int, Meta(ge=-(2**53), le=2**53)]
Size = Annotated[int, Meta(ge=1, le=2**31)]
Name = Annotated[str, Meta(max_length=1_000)]
TEXT = Annotated[str, Meta(max_length=1_000_000)]
Base64 = Annotated[str, Meta(max_length=100_000, pattern="^[A-Za-z0-9+/]*={0,2}$")]
Samples = Annotated[list[Amount], Meta(max_length=10_000_000)]
Open = dict[Name, Any]


class Protocol(msgspec.Struct):
    """The amounts of a measurement that are read by name."""

    profile: Name | None = None


class Settings(msgspec.Struct):
    """The settings of a lane that are read by name."""

    cpus: list[Count] = []
    caution: TEXT = ""
    also_imported: list[Name] = []
    changed: list[Name] = []
    quantised: Name = ""


class Probe(msgspec.Struct):
    """The precision probe's finding on one operation."""

    arithmetic: Name | None = None


class Proof(msgspec.Struct):
    """The proof of a lane's network, as its record states it."""

    framework: Name | UnsetType = UNSET
    program: Annotated[Name, Meta(description="the lane, if its own program is proved")] | UnsetType = UNSET
    state: Name | UnsetType = UNSET
    reason: TEXT | None = None
    training_alone: bool = False
    python: TEXT | None = None
    untried: list[TEXT] | UnsetType = UNSET
    errors: dict[Name, Number | None] | UnsetType = UNSET
    versions: dict[Name, Name] | UnsetType = UNSET


class Sketch(msgspec.Struct):
    """Arrays that the timed program computed, folded into a few numbers (`fwbench.record.sketch`)."""

    names: Annotated[Base64, Meta(description="a name for each group of arrays, lines packed by zlib")]
    slots: Annotated[Base64, Meta(description="sums of numbers with random signs, float32: as many for each group")]
    norms: Annotated[Base64, Meta(description="L2 length of each group, the upper halves of float32")]
    moved: Annotated[
        Base64,
        Meta(description="how far each group moved with every weight moved by rounding units, as norms; NaN: unknown"),
    ]


class Check(msgspec.Struct):
    """The results of the timed program: sketches, or the reason why there are none."""

    reason: TEXT | UnsetType = UNSET
    output: Sketch | UnsetType = UNSET
    before: Annotated[Sketch, Meta(description="the output before anything was timed, if it changed")] | UnsetType = (
        UNSET
    )
    margins: (
        Annotated[list[Amount], Meta(description="best logit less the second best of each sequence, over the output")]
        | UnsetType
    ) = UNSET
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
    """The evidence that a number may be compared."""

    weights: Name | None = None
    probe: dict[Name, Probe] | None = None
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

    samples: Samples
    stages: dict[Name, Amount] = {}
    metrics: dict[Name, Value] = {}
    processes: list[dict[Name, Positive]] = []
    failure: Reason | None = None


# The shapes of those objects of a measurement that lanes and meters may add to.
OPEN = {"protocol": Protocol, "settings": Settings, "parity": Parity, "training": Training, "duet": Duet}
