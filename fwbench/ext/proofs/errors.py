"""The errors between the results of two sides, and the bounds on these errors."""

import math
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import numpy as np

from fwbench.ext.proofs.case import MAIN, Array, Case, Point, Side
from fwbench.ext.proofs.lengths import distance, length
from fwbench.models import Model

Quantity = Literal["output", "loss", "gradients", "statistics", "sgd", "adam"]

FORWARD: tuple[Quantity, ...] = ("output", "loss", "statistics")

# Errors by the name of a tensor, or of the quantity if that is one number or array.
Errors = dict[str, float]

# Largest admissible error in float64, unless the model has a tolerance of its own. A correct port reaches 1e-13 where
# nothing amplifies rounding; every mutation in tests/correctness/test_mutations.py is above 1e-9. Trajectories amplify
# rounding: a small image leaves few numbers at the end of a network, and batch normalisation over them makes training
# chaotic. When each input moves by one unit in the last place of float64, five SGD steps carry PyTorch's ResNet-50 away
# from itself by 1e-5 over eight numbers (64 pixels, batch of 2), by 3e-9 over 16 (32 pixels, batch of 16; JAX was 4e-8
# away with one thread) and by less than 1e-9 over 32, as EfficientNet over eight. Hence the catalog's `proof_batch`.
BOUNDS: dict[Quantity, float] = {
    "output": 1e-10,
    "loss": 1e-10,
    "gradients": 1e-8,
    "statistics": 1e-10,
    "sgd": 1e-7,
    "adam": 1e-7,
}

# The factor by which rounding may move a result further than one unit in the last place of all weights and inputs does.
# The error of a sum of n terms, added one after the other, is up to about sqrt(n) times the error of its terms. The
# longest sums have a million terms.
ROUNDINGS = 1e3

# A tensor that underflows in float64 has no digits to compare.
_UNDERFLOW = 1e-290

# Relative errors above this are of a result that is 0, or underflows, in the reference alone.
_OF_ZEROS = 1e100

# Errors between these bounds suggest networks that are the same except for a part that rounds to float32.
_OF_FLOAT32 = (1e-9, 1e-6)


class NotTheSame(AssertionError):  # noqa: N818 (a finding about two networks rather than an error in a program)
    """Two sides are further apart than a bound allows, or do not have the same weights."""


def bound(model: Model, quantity: Quantity) -> float:
    """The model's own bound, or the usual one."""
    return model.tolerance.get(quantity, BOUNDS[quantity])


def prove(quantity: Quantity, reference: Side, candidate: Side) -> float:
    """The largest error of a quantity over its tensors.

    Raises:
        NotTheSame: it exceeds its bound; the sentence names the tensor.
    """
    return check(quantity, measure(quantity, reference, candidate), reference.case)


def check(
    quantity: Quantity, errors: Errors, case: Case, point: Point = MAIN, *, beyond: Iterable[float] = ()
) -> float:
    """The largest of a quantity's errors.

    Args:
        beyond: errors of other quantities and points that exceed their bounds.

    Raises:
        NotTheSame: it exceeds its bound; the sentence names the tensor.
    """
    worst = max(errors, key=lambda name: np.nan_to_num(errors[name], nan=np.inf))
    if not errors[worst] <= bound(case.model, quantity):
        where = "" if worst == quantity else f" in {worst!r}"
        at = "" if point == MAIN else f" at {point}"
        low, high = _OF_FLOAT32
        every = [*beyond, *(error for error in errors.values() if not error <= bound(case.model, quantity))]
        hint = (
            ". Errors of this size can come from a part that computes in float32 whatever its input; tolerance= of the "
            "model admits them where both networks have it"
            if all(low < error < high for error in every)
            else ""
        )
        raise NotTheSame(
            f"{case.model.name} ({case.mode}): the difference in {quantity} is {in_words(errors[worst], case.model)}"
            f"{where}{at}, more than {bound(case.model, quantity):.0e}{hint}"
        )
    return errors[worst]


def in_words(error: float, model: Model) -> str:
    """A relative error for readers; a number of no meaning becomes words."""
    return f"infinite (0 in {model.reference} alone)" if _OF_ZEROS < error < math.inf else f"{error:.1e}"


def measure(quantity: Quantity, reference: Side, candidate: Side, point: Point = MAIN) -> Errors:
    """The error of each of a quantity's tensors by name; NaN where a result is NaN.

    Each is relative to the tensor's length (L2 norm), or to a floor if the tensor is shorter. The floor is needed where
    a result is rounding alone, as a gradient that cancels out (that of a bias just before batch normalisation). With
    it, the bound admits `ROUNDINGS` times the rounding that the reference itself shows there.
    """
    if quantity in ("sgd", "adam"):
        pairs = zip(candidate.losses(quantity), reference.losses(quantity), strict=True)
        return {f"step {step}": _ratio(abs(float(a - b)), abs(float(b))) for step, (a, b) in enumerate(pairs, start=1)}
    admitted = bound(reference.case.model, quantity)
    if quantity == "gradients":
        return gradient_errors(
            candidate.backward(point).gradients,
            reference.backward(point).gradients,
            reference.rounding(point).gradients,
            admitted,
        )
    actual, expected = (_answers(quantity, answers.forward(point)) for answers in (candidate, reference))
    # At the canonical weights nothing saturates, so rounding is left out, which saves further passes of full size.
    rounding = _answers(quantity, reference.rounding(point)) if point != MAIN else dict.fromkeys(expected, 0.0)
    return {
        name: relative_l2(actual[name], array, _floor(rounding[name], admitted)) for name, array in expected.items()
    }


def _answers(quantity: Quantity, answers: Any) -> dict[str, Any]:
    """The numbers of a quantity by name, in a forward pass or in its rounding."""
    values = getattr(answers, quantity)
    return dict(values) if quantity == "statistics" else {quantity: np.asarray(values)}


def _floor(rounding: float, admitted: float) -> float:
    """The least length that a tensor is taken to have."""
    return max(float(rounding) * ROUNDINGS, _UNDERFLOW) / admitted


def relative_l2(actual: Array, expected: Array, floor: float = 0.0) -> float:
    """Length of the difference over the expected length, or over a larger floor, in float64. Shapes must be equal."""
    if actual.shape != expected.shape:
        raise NotTheSame(f"a result has the shape {actual.shape}, and {expected.shape} in the reference")
    return _ratio(distance(actual, expected), max(length(expected), floor))


def gradient_errors(
    actual: Mapping[str, Array],
    expected: Mapping[str, Array],
    rounding: Mapping[str, float] | None = None,
    admitted: float = BOUNDS["gradients"],
) -> Errors:
    """The relative L2 error of each gradient, by its own length.

    Args:
        rounding: the distance by which one unit in the last place of float64 moves each tensor. Default: unknown; then
            a tensor's floor is its share, by size, of the length of all.
        admitted: the bound on these errors.
    """
    if rounding is None:
        size = sum(array.size for array in expected.values())
        typical = math.sqrt(sum(length(array) ** 2 for array in expected.values()) / size)
        floors = {name: typical * math.sqrt(array.size) for name, array in expected.items()}
    else:
        floors = {name: _floor(rounding[name], admitted) for name in expected}
    return {name: relative_l2(actual[name], array, floors[name]) for name, array in expected.items()}


def _ratio(difference: float, size: float) -> float:
    """A difference relative to a size. If the size is 0, any difference is infinitely large."""
    return difference / size if size else (math.inf if difference else 0.0)
