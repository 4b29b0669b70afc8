"""Watches the whole numbers that a PyTorch module counts in, and by which it computes or branches."""

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from torch import nn

from fwbench.ext.proofs.choices import COMPARISONS, Choice, Site, site_of

# An expression that uses a counter: how (a comparison, or `count` for any other use), its other operand, and whether
# the comparison holds.
Use = tuple[Site, str, Any, bool]


class Counter(int):
    """A whole number that notes the expressions that use it for anything but an addition.

    Attributes:
        uses: each use.
    """

    uses: list[Use]

    def __add__(self, other: Any) -> Any:
        total = int.__add__(self, other)
        return total if total is NotImplemented else _counter(total, self.uses)

    __radd__ = __add__


def _counter(value: int, uses: list[Use]) -> Counter:
    counter = Counter(value)
    counter.uses = uses
    return counter


def _noting(name: str) -> Callable[..., Any]:
    own, how = getattr(int, name), name.strip("_")

    def used(self: Counter, *others: Any) -> Any:
        result, other = own(self, *others), others[0] if others else None
        if how in COMPARISONS and isinstance(result, bool):
            self.uses.append((site_of(sys._getframe(1)), how, other, result))
        else:
            self.uses.append((site_of(sys._getframe(1)), "count", other, int.__index__(self) <= _least(other)))
        return result

    return used


def _least(operand: Any) -> float:
    """The number beyond which a use that is no comparison counts as tried: the other operand if that is above 1."""
    return float(operand) if isinstance(operand, (int, float)) and 1 < operand < math.inf else 1.0


for _name in (
    *("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__bool__", "__mod__", "__mul__", "__rmul__"),
    *("__truediv__", "__rtruediv__", "__floordiv__", "__sub__", "__rsub__", "__pow__", "__rpow__", "__neg__"),
    *("__float__", "__index__", "__int__"),
):
    setattr(Counter, _name, _noting(_name))
# Equal numbers have equal hashes, as before.
Counter.__hash__ = int.__hash__  # type: ignore[method-assign]


def watched(module: nn.Module, changing: Iterable[str]) -> dict[str, list[Use]]:
    """Replace whole numbers among these attributes by counters; return the lists that will hold each one's uses."""
    uses: dict[str, list[Use]] = {}
    for name in changing:
        path, _, own = name.rpartition(".")
        part = module.get_submodule(path)
        if type(value := getattr(part, own, None)) is int:
            setattr(part, own, _counter(value, uses.setdefault(name, [])))
    return uses


def choices(uses: Mapping[str, Sequence[Use]]) -> Iterator[tuple[Choice, bool]]:
    """The choices that a network makes by its counters, each with whether its condition holds.

    Of the uses of a counter that are no comparisons, the first stands for all.
    """
    for name, of in uses.items():
        others = [use for use in of if use[1] == "count"]
        for site, how, operand, holds in (*(use for use in of if use[1] != "count"), *others[:1]):
            yield Choice(site, how, _least(operand) if how == "count" else float(operand), name), holds
