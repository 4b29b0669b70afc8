"""Finds Python numbers that a PyTorch module changes as it trains, and by which it computes or branches."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from torch import nn

from fwbench.ext.proofs.choices import Choice, Site, site_of


class Counter(int):
    """A whole number that notes the lines that use it for anything but an addition.

    Attributes:
        sites: the expression of each use.
    """

    sites: list[Site]

    def __add__(self, other: Any) -> Any:
        total = int.__add__(self, other)
        return total if total is NotImplemented else _counter(total, self.sites)

    __radd__ = __add__


def _counter(value: int, sites: list[Site]) -> Counter:
    counter = Counter(value)
    counter.sites = sites
    return counter


def _noting(name: str) -> Callable[..., Any]:
    own = getattr(int, name)

    def used(self: Counter, *others: Any) -> Any:
        self.sites.append(site_of(sys._getframe(1)))
        return own(self, *others)

    return used


for _name in (
    *("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__bool__", "__mod__", "__mul__", "__rmul__"),
    *("__truediv__", "__rtruediv__", "__floordiv__", "__sub__", "__rsub__", "__pow__", "__rpow__", "__neg__"),
    *("__float__", "__index__", "__int__"),
):
    setattr(Counter, _name, _noting(_name))
# Equal numbers have equal hashes, as before.
Counter.__hash__ = int.__hash__  # type: ignore[method-assign]


def numbers(module: nn.Module) -> dict[tuple[str, str], int]:
    """The whole numbers among the attributes of a module's parts, by path and name."""
    return {
        (path, name): value
        for path, part in module.named_modules()
        for name, value in vars(part).items()
        if type(value) is int
    }


def watched(module: nn.Module, changing: Iterable[tuple[str, str]]) -> dict[tuple[str, str], list[Site]]:
    """Replace attributes by counters that note their uses; return the lists that will hold each counter's uses."""
    uses: dict[tuple[str, str], list[Site]] = {place: [] for place in changing}
    for (path, name), sites in uses.items():
        part = module.get_submodule(path)
        setattr(part, name, _counter(getattr(part, name), sites))
    return uses


def choices(changing: Mapping[tuple[str, str], int], uses: Mapping[tuple[str, str], list[Site]]) -> Iterator[Choice]:
    """The choices that a network may make by its counters, at their first uses. No point goes beyond one call."""
    for place, sites in uses.items():
        for site in sites[:1]:
            yield Choice(site, "count", float(changing[place]), place[1])
