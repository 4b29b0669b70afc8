"""Reads a pair from a duet's journal, and checks it before use."""

from typing import Annotated, Any, Generic, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from fwbench.compare.pair import Pair, Stage
from fwbench.record import bounds, schema
from fwbench.record.plain import PlainTest
from fwbench.record.workload import Workload

_Of = TypeVar("_Of")

# The bounds keep the ratio, and products of such ratios, a finite number.
_Logarithm = Annotated[float, msgspec.Meta(ge=-100, le=100)]


class _Sides(msgspec.Struct, Generic[_Of]):
    base: _Of
    head: _Of


class _Outputs(msgspec.Struct):
    weights: bounds.Name | UnsetType = UNSET
    numbers: bounds.Count | UnsetType = UNSET
    check: bounds.Check | UnsetType = UNSET


class _Described(msgspec.Struct):
    settings: dict[str, Any]
    versions: dict[str, str]
    outputs: _Outputs | UnsetType = UNSET
    program: schema.FINGERPRINT | None = None
    sources: dict[str, str] | None = None
    after_crash: str | None = None


class _Pair(msgspec.Struct):
    differences: dict[str, _Logarithm]
    rounds: _Sides[list[bounds.Amount]]
    values: _Sides[dict[str, bounds.Positive]]
    described: _Sides[_Described]
    drift: _Logarithm
    seconds: bounds.Amount
    flags: str = ""
    unfit: list[bounds.Size] = []
    held: bool = False


class _Kept(msgspec.Struct):
    stage: Stage
    pair: _Pair
    workload: schema.WORKLOAD | None = None
    test: str | None = None


def pair(record: Any) -> tuple[Stage, Workload | PlainTest, Pair]:
    """A line of a duet's journal: the stage, the workload or plain test, and the pair; a ValueError if it is none."""
    checked = schema.read(record, _Kept, "it")
    name, given = checked["test"], checked["workload"]
    if (name is None) == (given is None):
        raise ValueError("it is not of either a workload or a test")
    made = Pair.from_json(checked["pair"])
    of = Workload.from_json(given) if given else PlainTest(name)
    if not {"latency"} <= made.differences.keys() <= made.values["base"].keys() & made.values["head"].keys():
        raise ValueError("its differences are not those of values that both sides have")
    return checked["stage"], of, made
