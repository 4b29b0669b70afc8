"""Lengths of arrays, which are L2 norms in float64."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def length(array: Array) -> float:
    """The L2 norm in float64, even if the squares of the numbers are out of float64's range."""
    numbers = np.ravel(array).astype(np.float64, copy=False)
    largest = float(np.max(np.abs(numbers), initial=0.0))
    if largest == 0 or not math.isfinite(largest):
        return largest
    # A power of two: dividing by it rounds nothing.
    scale = 1.0 if 1e-140 < largest < 1e140 else 2.0 ** (math.frexp(largest)[1] - 1)
    return float(np.linalg.norm(numbers if scale == 1 else numbers / scale)) * scale


def distance(one: Array, other: Array) -> float:
    """Length of the difference, in float64."""
    return length(one.astype(np.float64, copy=False) - other)


def relative(one: Array, other: Array) -> float:
    """The length of the difference relative to the longer of two arrays; 0 if both are 0, infinite for other shapes."""
    if one.shape != other.shape:
        return math.inf
    size = max(length(one), length(other))
    return distance(one, other) / size if size else 0.0
