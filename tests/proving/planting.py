"""Mistakes planted in a network of one of the suite's own models, which its proof must find, framework by framework.

With the bounds of every proof, on small images for the sake of time. What finds nothing wrong with a wrong network has
proved nothing of a right one.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from fwbench.ext.proofs.case import Case, Mode, Side
from fwbench.ext.proofs.errors import Quantity, bound, measure, prove
from fwbench.ext.proofs.torch import TorchSide
from fwbench.models import CATALOG
from fwbench.models.project import complete

Patch = pytest.MonkeyPatch

_SIZE = {"resnet50": 64, "vit_b_16": 64, "mobilenet_v3_small": 32, "efficientnet_b0": 32}


Plant = Callable[[Any, Patch], None]


@dataclass(frozen=True)
class Mutation:
    """One mistake.

    Attributes:
        model: name of the model in whose network it is planted.
        mode: in which it shows.
        quantity: in which it shows.
        mistake: its own name, in code.
        plant: changes the network that it is given, or, through the patch, the modules that build and run it.
    """

    model: str
    mode: Mode
    quantity: Quantity
    mistake: str
    plant: Plant

    @property
    def name(self) -> str:
        """Among those of its model."""
        return f"{self.mistake}-{self.quantity}"


def mutations(table: Mapping[tuple[str, Mode, Quantity], Mapping[str, Plant]]) -> tuple[Mutation, ...]:
    """A table's mistakes, by model, mode and quantity, and then by name."""
    return tuple(Mutation(*where, *mistake) for where, mistakes in table.items() for mistake in mistakes.items())


def setting(path: str, value: Any) -> Plant:
    """A mistake that sets what a path in the network leads to; its numbers are indices."""
    *parts, last = path.split(".")

    def plant(module: Any, patch: Patch) -> None:
        for part in parts:
            module = module[int(part)] if part.isdigit() else getattr(module, part)
        if last.isdigit():
            module[int(last)] = value
        else:
            setattr(module, last, value)

    return plant


def patching(owner: Any, name: str, wrong: Callable[[Any], Any]) -> Plant:
    """A mistake that replaces a name of a module or class by what `wrong` makes of it."""
    return lambda module, patch: patch.setattr(owner, name, wrong(getattr(owner, name)))


def find(mutation: Mutation, side: type[Side], planted: Callable[[Case, Patch], Side]) -> float:
    """The error that a mutation makes in the quantity in which it shows.

    Args:
        side: of the framework, without the mutation.
        planted: the same with the mutation, as far as it goes through the patch while the side answers.

    Raises:
        AssertionError: it is not above the bound, or no number: then it was found for having broken the arithmetic
            alone. Or, as `NotTheSame`, the network is wrong without it.
    """
    size, quantity = _SIZE.get(mutation.model), mutation.quantity
    case = Case(complete(CATALOG[mutation.model]), mutation.mode, axes=(("image_size", size),) if size else ())
    _is_right(case, quantity, side)
    with Patch.context() as patch:
        errors = measure(quantity, _reference(case), planted(case, patch))
    # Unlike Python's own, not a number where any of them is not.
    error = float(np.max(list(errors.values())))
    if not bound(case.model, quantity) < error < float("inf"):
        raise AssertionError(f"{case.model.name}: the proof of {quantity} does not find {mutation.name} ({error:.1e})")
    return error


@functools.cache
def _is_right(case: Case, quantity: Quantity, side: type[Side]) -> None:
    """Raises NotTheSame where the network as it is does not pass, so that no mutation would have made the error."""
    prove(quantity, _reference(case), side(case))


# PyTorch's side, which no mutation touches.
_reference = functools.cache(TorchSide)
