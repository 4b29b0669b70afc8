"""The cause of a difference between two networks. It is named only where their numbers or settings show it."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fwbench.parity.where.calls import Array, Call

# The largest distance of a computed array from the array that it explains; the second if part is rounded to float32.
_EXPLAINED, _FLOAT32 = 1e-12, 1e-6


@dataclass(frozen=True)
class Part:
    """One network's arrays and settings at a place.

    Attributes:
        before: the last array that is equal in both networks; None if there is none.
        value: the first array that differs; None if there is none.
        settings: those of the module that computes `value`, if the place is a module.
    """

    framework: str
    before: Array | None
    value: Array | None
    settings: Mapping[str, Any] = field(default_factory=dict)


def distance(one: Array, other: Array) -> float:
    """Length of the difference of two arrays of one shape over the second's length; equal infinities do not differ."""
    equal = (one == other) | (np.isnan(one) & np.isnan(other))
    difference = np.subtract(one, other, out=np.zeros(one.shape), where=~equal)
    size = float(np.linalg.norm(other[np.isfinite(other)]))
    return float(np.linalg.norm(difference)) / size if size else float(not equal.all())


def aligned(candidate: Array, reference: Array) -> Array:
    """The candidate in the reference's shape, with its channels moved if that brings it nearer; the sizes are equal."""
    moved = [np.moveaxis(candidate, *axes) for axes in ((-1, 1), (1, -1)) if candidate.ndim > 2]
    options = [array.reshape(reference.shape) for array in (candidate, *moved)]
    return min(options, key=lambda array: distance(array, reference))


def apart(candidate: Array | None, reference: Array | None) -> float | None:
    """The distance of two arrays, each in its own layout; None if one is missing or the sizes differ.

    If the shapes differ, as where batch and length are exchanged, the distance of the sorted values counts if smaller.
    """
    if candidate is None or reference is None or candidate.size != reference.size:
        return None
    error = distance(aligned(candidate, reference), reference)
    return error if candidate.shape == reference.shape else min(error, distance(*_sorted(candidate, reference)))


def cause(reference: Part, candidate: Part, calls: Sequence[Call] = ()) -> str:
    """The cause of a difference as a sentence without a full stop; empty if none is known.

    Args:
        calls: the reference's calls; a term that one network lacks may be among their arrays.
    """
    # Infinities and cubes of large numbers make NumPy warn, and explain nothing.
    with np.errstate(all="ignore"):
        return _settings(reference, candidate) or _shown(reference, candidate, calls)


def _shown(reference: Part, candidate: Part, calls: Sequence[Call]) -> str:
    """The cause that the two differing arrays show, as `cause` returns it."""
    one, other = reference.value, candidate.value
    if one is None or other is None or one.size != other.size:
        return ""
    names = [_function(part.before, part.value) for part in (reference, candidate)]
    if names[0] and names[1] and names[0] != names[1]:
        return f"There {reference.framework} computes {names[0]}, and {candidate.framework} {names[1]}"
    theirs = aligned(other, one)
    for framework, term in ((reference.framework, one - theirs), (candidate.framework, theirs - one)):
        if name := _term(term, calls):
            return f"There {framework} alone adds what {name}"
    square = float(np.vdot(one, one))
    factor = float(np.vdot(theirs, one)) / square if square else 0.0
    if factor and np.isfinite(factor) and distance(one * factor, theirs) <= _EXPLAINED:
        return f"There all values in {candidate.framework} are {factor:.6g} times those in {reference.framework}"
    if distance(*_sorted(other, one)) <= _EXPLAINED:
        return "There both have the same values in another order"
    return ""


def _sorted(*arrays: Array) -> list[Array]:
    return [np.sort(array, axis=None) for array in arrays]


def _settings(reference: Part, candidate: Part) -> str:
    """Sentences on settings that both modules have and that differ."""
    one, other = ({name: _plain(value) for name, value in part.settings.items()} for part in (reference, candidate))
    both = [name for name in one.keys() & other.keys() if isinstance(one[name], str) == isinstance(other[name], str)]
    told = [
        f"Their {name} differ{'' if name == 'heads' else 's'}: {one[name]} in {reference.framework} and {other[name]} "
        f"in {candidate.framework}"
        for name in both
        if one[name] != other[name]
    ]
    for part, own, others in ((reference, one, other), (candidate, other, one)):
        same = str(own.get("padding")).upper() == "SAME" and not isinstance(others.get("padding", ""), str)
        if same and own.get("stride", 1) != 1:
            told.append(f"SAME in {part.framework} pads at stride {own['stride']} another side than numbers do")
    return ". ".join(sorted(told))


def _plain(value: Any) -> Any:
    """A setting; a single number if it is the same for all axes."""
    while isinstance(value, (tuple, list)) and value and all(part == value[0] for part in value):
        value = value[0]
    return value


# Not SciPy's: an interpreter of one framework alone need not have it.
_erf = np.vectorize(math.erf, otypes=[np.float64])


def _expit(x: Array) -> Array:
    return (1 + np.tanh(x / 2)) / 2


def _leaky(slope: float) -> Callable[[Array], Array]:
    return lambda x: np.where(x > 0, x, slope * x)


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
    "softplus": lambda x: np.logaddexp(x, 0),
    "ELU": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    **{f"leaky ReLU of slope {slope}": _leaky(slope) for slope in (0.01, 0.2, 0.3)},
}


def _function(before: Array | None, value: Array | None) -> str:
    """The name of the function that computes a value from the array before it; empty if none is known."""
    if before is None or value is None or before.shape != value.shape:
        return ""
    errors = {name: distance(function(before), value) for name, function in FUNCTIONS.items()}
    name = min(errors, key=errors.__getitem__)
    if not errors[name] <= _FLOAT32:
        return ""
    return name if errors[name] <= _EXPLAINED else f"{name} rounded to float32 somewhere"


def _term(term: Array, calls: Sequence[Call]) -> str:
    """Name the input or output of a call that equals a term; empty if there is none."""
    for call in calls:
        for name, arrays in (("enters", call.inputs), ("leaves", (call.output,))):
            for array in arrays:
                if array is not None and array.shape == term.shape and distance(array, term) <= _EXPLAINED:
                    return f"{name} `{call.module.path}`"
    return ""
