"""Placement of a Keras variable's numbers in the reference's weight: by its axes, or by a function of the user's."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fwbench.frameworks.faults import faults
from fwbench.models.importing import ModelError, load
from fwbench.models.weights import Shape


@dataclass(frozen=True)
class Transposed:
    """A variable whose axes have another order in the weight.

    Attributes:
        shape: the weight's.
        axes: the variable's axes, in the weight's order.
    """

    shape: Shape
    axes: tuple[int, ...]

    def weight(self, array: NDArray[Any]) -> NDArray[Any]:
        """Turn an array in the variable's layout into the weight's."""
        return np.ascontiguousarray(array.transpose(self.axes))

    def variable(self, array: NDArray[Any]) -> NDArray[Any]:
        """The inverse of `weight`."""
        return array.transpose(np.argsort(self.axes))


@dataclass(frozen=True)
class Rearranged:
    """A variable whose numbers have any other order in the weight.

    Attributes:
        own: the variable's shape.
        places: for each of the weight's numbers, its place in the flat variable; in the weight's shape.
    """

    own: Shape
    places: NDArray[np.int64]

    @property
    def shape(self) -> Shape:
        """The weight's shape."""
        return tuple(self.places.shape)

    def weight(self, array: NDArray[Any]) -> NDArray[Any]:
        """Turn an array in the variable's layout into the weight's."""
        return np.ascontiguousarray(array.reshape(-1)[self.places])

    def variable(self, array: NDArray[Any]) -> NDArray[Any]:
        """The inverse of `weight`."""
        flat = np.empty(array.size, array.dtype)
        flat[self.places.reshape(-1)] = array.reshape(-1)
        return flat.reshape(self.own)


def by_function(path: str, own: Mapping[str, Shape]) -> dict[str, tuple[str, Rearranged]]:
    """The rearrangement of each variable by a user's function.

    Args:
        path: import path of the function from arrays by the variables' names to arrays by the reference's names.
        own: the shapes of all variables.

    Returns:
        By the weight's name, the name of its variable and the variable's rearrangement.

    Raises:
        ModelError: the function raised an exception, leaves variables out, or does more than rename and rearrange each.
    """
    function = load(path)
    sizes = {name: math.prod(shape) for name, shape in own.items()}
    ends = np.cumsum(list(sizes.values()))
    starts = dict(zip(own, ends - list(sizes.values()), strict=True))
    # Each number is its own place, counted from 1: a zero is one that the function added.
    numbers = {name: np.arange(sizes[name]).reshape(shape) + starts[name] + 1.0 for name, shape in own.items()}
    with faults(repr(path)):
        made = {name: np.asarray(array, np.float64) for name, array in function(dict(numbers)).items()}
    origins = {}
    for name, array in made.items():
        first = int(array.min()) - 1 if array.size else -1
        source = next((variable for variable, start in starts.items() if start == first), "")
        expected = numbers.get(source, np.empty(0)).reshape(-1)
        if not np.array_equal(np.sort(array, axis=None), expected):
            raise ModelError(
                f"{path!r} does not make {name!r} of the numbers of one variable: in Keras it may rename, transpose "
                "and reshape variables, and neither join nor split them"
            )
        origins[name] = source, Rearranged(own[source], (array - starts[source] - 1).astype(np.int64))
    if lost := [name for name in own if name not in {source for source, _ in origins.values()}]:
        raise ModelError(f"{path!r} leaves out {', '.join(map(repr, lost[:5]))}")
    return origins
