"""Mistakes planted in a network of one of the suite's own models, which its proof must find, framework by framework.

With the bounds of every proof, on small images for the sake of time. What finds nothing wrong with a wrong network has
proved nothing of a right one.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from fwbench.models import CATALOG
from fwbench.parity.case import Case, Mode, Side
from fwbench.parity.errors import Quantity, bound, measure, prove
from fwbench.parity.torch import TorchSide

Patch = pytest.MonkeyPatch

_SIZE = {"resnet50": 64, "vit_b_16": 64, "mobilenet_v3_small": 32, "efficientnet_b0": 32}


@dataclass(frozen=True)
class Mutation:
    """One mistake.

    Attributes:
        model: name of the model in whose network it is planted.
        mode: in which it shows.
        quantity: in which it shows.
        plant: changes the network that it is given, or, through the patch, the modules that build and run it.
    """

    model: str
    mode: Mode
    quantity: Quantity
    plant: Callable[[Any, Patch], None]

    @property
    def name(self) -> str:
        """Among those of its model."""
        return f"{self.plant.__name__}-{self.quantity}"


def find(mutation: Mutation, side: type[Side], planted: Callable[[Case, Patch], Side]) -> float:
    """The error that a mutation makes in the quantity in which it shows.

    Args:
        side: of the framework, without the mutation.
        planted: the same with the mutation, as far as it goes through the patch while the side answers.

    Raises:
        AssertionError: it is not above the bound, or no number: then it was found for having broken the arithmetic
            alone. Or, as `NotTheSame`, the network is wrong without it.
    """
    case, quantity = _small(mutation.model, mutation.mode), mutation.quantity
    _is_right(case, quantity, side)
    with Patch.context() as patch:
        errors = measure(quantity, _reference(case), planted(case, patch))
    # Unlike Python's own, not a number where any of them is not.
    error = float(np.max(list(errors.values())))
    if not bound(case.model, quantity) < error < float("inf"):
        raise AssertionError(f"{case.model.name}: the proof of {quantity} does not find {mutation.name} ({error:.1e})")
    return error


def _small(model: str, mode: Mode) -> Case:
    axes = (("image_size", _SIZE[model]),) if model in _SIZE else ()
    return Case(CATALOG[model], mode, axes=axes)


@functools.cache
def _is_right(case: Case, quantity: Quantity, side: type[Side]) -> None:
    """Raises NotTheSame where the network as it is does not pass, so that no mutation would have made the error."""
    prove(quantity, _reference(case), side(case))


@functools.cache
def _reference(case: Case) -> TorchSide:
    """PyTorch's side, which no mutation touches."""
    return TorchSide(case)
