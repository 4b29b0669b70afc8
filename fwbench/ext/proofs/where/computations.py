"""Computations that networks may make from the arrays on which both agree: a table of hypotheses with their aspects.

An aspect is a verb and its object, such as "computes" and "ReLU". Networks are compared by their aspects.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from fwbench.ext.proofs.where.arrays import distance
from fwbench.ext.proofs.where.attention import Aspects, attention
from fwbench.ext.proofs.where.calls import Array

# The largest distance at which a computed array explains another: to rounding, and to float32's precision.
EXPLAINED, FLOAT32 = 1e-12, 1e-6

# Epsilons of normalisations; the first cannot be distinguished from 0.
_EPSILONS = {"at most 1e-12": 1e-12, **{f"{epsilon:g}": epsilon for epsilon in (1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3)}}

# The fewest rows to which a normalisation's scale and bias, two numbers for each channel, are fitted.
_ROWS = 4

# Not SciPy's erf: an interpreter with one framework alone may lack SciPy.
_erf = np.vectorize(math.erf, otypes=[np.float64])


@dataclass(frozen=True)
class Explanation:
    """A computation that reproduces an array.

    Attributes:
        rounded: whether it reproduces the array only to float32's precision.
    """

    aspects: Mapping[str, str]
    rounded: bool


def explanations(agreed: Mapping[str, Array], value: Array) -> list[Explanation]:
    """All computations that reproduce a value to rounding; if there is none, those that do so to float32's precision.

    Args:
        agreed: by name, this network's arrays that equal the other's and from which the value comes.
    """
    for family in _FAMILIES:
        errors = [(aspects, distance(array, value)) for aspects, array in family(agreed, value)]
        for limit in (EXPLAINED, FLOAT32):
            if within := [Explanation(aspects, limit > EXPLAINED) for aspects, error in errors if error <= limit]:
                return within
    return []


def _expit(x: Array) -> Array:
    return (1 + np.tanh(x / 2)) / 2


def _leaky(slope: float) -> Callable[[Array], Array]:
    return lambda x: np.where(x > 0, x, slope * x)


def _softplus(beta: float) -> Callable[[Array], Array]:
    return lambda x: np.logaddexp(beta * x, 0) / beta


# Functions without weights that networks apply to each element.
FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "no activation": lambda x: x,
    "the exact GELU": lambda x: x * (1 + _erf(x / np.sqrt(2))) / 2,
    "GELU's tanh approximation": lambda x: x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2,
    "GELU's sigmoid approximation": lambda x: x * _expit(1.702 * x),
    "ReLU": lambda x: np.maximum(x, 0),
    "ReLU6": lambda x: np.clip(x, 0, 6),
    "squared ReLU": lambda x: np.maximum(x, 0) ** 2,
    "SiLU": lambda x: x * _expit(x),
    "hard swish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "sigmoid": _expit,
    "hard sigmoid": lambda x: np.clip(x + 3, 0, 6) / 6,
    "tanh": np.tanh,
    "softplus": _softplus(1),
    # The threshold is that of PyTorch.
    "softplus that is linear above 20": lambda x: np.where(x > 20, x, np.logaddexp(x, 0)),
    **{f"softplus of beta {beta:g}": _softplus(beta) for beta in (0.5, 2, 10, 100)},
    "softplus less the logarithm of 2": lambda x: np.logaddexp(x, 0) - np.log(2),
    "ELU": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    **{f"leaky ReLU of slope {slope}": _leaky(slope) for slope in (0.01, 0.2, 0.3)},
}


def _applied(x: Array) -> Iterator[tuple[str, Array]]:
    """Each function's result unless an earlier one equals it, as ReLU's equals ReLU6's if no number is above 6."""
    results: list[Array] = []
    for name, function in FUNCTIONS.items():
        result = function(x)
        if not any(np.array_equal(result, earlier) for earlier in results):
            results.append(result)
            yield name, result


def _functions(agreed: Mapping[str, Array], value: Array) -> Iterator[tuple[Aspects, Array]]:
    arrays = list(agreed.values())
    if len(arrays) == 1 and arrays[0].shape == value.shape:
        for name, array in _applied(arrays[0]):
            yield {"computes": name}, array


def _gated(agreed: Mapping[str, Array], value: Array) -> Iterator[tuple[Aspects, Array]]:
    """A function of one array times another array; they may be the two halves of one."""
    factors = dict(agreed)
    if len(agreed) == 1:
        ((name, array),) = agreed.items()
        halves = np.split(array, 2, axis=-1) if array.shape[-1] % 2 == 0 else ()
        factors = dict(zip((f"the first half of {name}", f"the second half of {name}"), halves, strict=False))
    if len(factors) == 2 and all(array.shape == value.shape for array in factors.values()):
        for (gate, x), (_, y) in itertools.permutations(factors.items()):
            for name, array in _applied(x):
                yield {"computes": name, "gates": f"by {gate}"}, array * y


def normalised(x: Array) -> Iterator[tuple[Aspects, Array]]:
    """An array normalised over its last axis, before scale and bias."""
    count = x.shape[-1]
    if count < 3:
        return
    centred = x - x.mean(-1, keepdims=True)
    kinds = (("layer normalisation", centred, (count, count - 1)), ("RMS normalisation", x, (count,)))
    for name, y, divisors in kinds:
        for divisor, (words, epsilon) in itertools.product(divisors, _EPSILONS.items()):
            variance = (y**2).sum(-1, keepdims=True) / divisor
            estimate = "n" if divisor == count else "n - 1"
            aspects = {"computes": name, "estimates": f"the variance with {estimate}"}
            yield {**aspects, "adds": f"{words} to the variance"}, y / np.sqrt(variance + epsilon)
            if epsilon > 1e-12:
                deviation = np.sqrt(variance) + epsilon
                yield {**aspects, "adds": f"{words} to the standard deviation"}, y / deviation


def _normalisations(agreed: Mapping[str, Array], value: Array) -> Iterator[tuple[Aspects, Array]]:
    """One array normalised over its last axis, with the scale and bias of each channel that fit best."""
    arrays = list(agreed.values())
    if len(arrays) == 1 and arrays[0].shape == value.shape and value.size >= _ROWS * value.shape[-1]:
        y = value.reshape(-1, value.shape[-1])
        for aspects, array in normalised(arrays[0]):
            x = array.reshape(y.shape)
            centred = x - x.mean(0)
            slope = (centred * (y - y.mean(0))).sum(0) / (centred**2).sum(0)
            fitted = (slope * centred + y.mean(0)).reshape(value.shape)
            # To float32's precision other epsilons fit, too, so such a fit shows nothing.
            if distance(fitted, value) <= EXPLAINED:
                yield aspects, fitted


# In the order in which they are tried. The first that explains a value counts.
_FAMILIES = (_functions, _gated, _normalisations, attention)
