"""How far the networks of two frameworks are apart, and how far they may be."""

import difflib
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fwbench.models import Model
from fwbench.models.weights import Shape
from fwbench.parity.case import MODES, Array, Case, Mode, Side, is_statistic, side

Quantity = Literal["output", "loss", "gradients", "statistics", "sgd", "adam"]

_FORWARD: tuple[Quantity, ...] = ("output", "loss", "statistics")

# By the name of a tensor, or of the quantity where it is one number or array.
Errors = dict[str, float]

# Largest admissible error in float64, unless the model has a tolerance of its own. A right port reaches 1e-13 where
# nothing amplifies rounding; every mutation in tests/correctness/test_mutations.py is above 1e-9. Trajectories do
# amplify: batch normalisation over the few numbers that a small image leaves at the end of a network makes training
# chaotic. Over ResNet-50's eight numbers (64 pixels, batch of 2) five SGD steps carry PyTorch 1e-5 away from itself
# when each input moves by one unit in the last place of float64; over 16 (32 pixels, batch of 16) 3e-9, where JAX was
# 4e-8 away with one thread; over 32 less than 1e-9, as EfficientNet over eight. Hence the catalog's `proof_batch`.
BOUNDS: dict[Quantity, float] = {
    "output": 1e-10,
    "loss": 1e-10,
    "gradients": 1e-8,
    "statistics": 1e-10,
    "sgd": 1e-7,
    "adam": 1e-7,
}

# Between these lie the errors of networks that are the same but for a part that rounds to float32.
_OF_FLOAT32 = (1e-9, 1e-6)

# Samples of a proof, and of one in training mode, whose batch normalisation needs some.
_BATCH, _TRAIN_BATCH = 2, 8

# Unmatched weights that a sentence lists.
_LISTED = 6


class NotTheSame(AssertionError):  # noqa: N818 (a finding about two networks rather than an error in a program)
    """Two sides are further apart than a bound allows, or do not have the same weights."""


class Proof:
    """One model in one mode: the errors between a framework's answers and the reference's, computed when asked for.

    Errors are kept, but no network, gradient or optimizer state: ViT-B/16's take gigabytes in float64.
    """

    def __init__(self, model: Model, candidate: str, mode: Mode = "eval") -> None:
        """
        Args:
            candidate: the framework that is proved against the model's reference.
            mode: one of `modes(model)`.

        Raises:
            NotTheSame: the two networks have not the same weights.
            ModelError: one of them cannot be built as the model describes it.
        """
        self.model, self.candidate, self.mode = model, candidate, mode
        _match(model, candidate)
        axes = tuple(model.proof_axes.items())
        batch_size = (model.proof_batch or _TRAIN_BATCH) if mode == "train" else _BATCH
        # Whatever differentiates is small, for the sake of time; a forward pass in eval mode takes the model's sizes.
        self._backward = Case(model, mode, axes=axes, batch_size=batch_size)
        self._forward = self._backward if mode == "train" else Case(model, mode)

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        """What there is to compare: a plain function has an output alone, and not every network running statistics."""
        names = _shapes(self.model, self.model.reference)
        if not names:
            return ("output",)
        return tuple(q for q in BOUNDS if q != "statistics" or any(map(is_statistic, names)))

    def prove(self, quantity: Quantity) -> float:
        """The largest error of a quantity in float64.

        Raises:
            NotTheSame: it exceeds its bound.
        """
        found = self._found(quantity)
        try:
            return check(quantity, found.errors[quantity], self._case(quantity))
        except NotTheSame as error:
            note = f". {found.note}" if quantity == "statistics" and found.note else ""
            raise NotTheSame(f"{error}{note}") from None

    @property
    def note(self) -> str:
        """What is known of the reason of an error, even of one that a tolerance admits; else empty."""
        return self._found("statistics").note if "statistics" in self.quantities else ""

    def _found(self, quantity: Quantity) -> "_Found":
        case = self._case(quantity)
        return _find(case, self.candidate, tuple(q for q in self.quantities if self._case(q) == case))

    def _case(self, quantity: Quantity) -> Case:
        return self._forward if quantity in _FORWARD else self._backward


def modes(model: Model) -> tuple[Mode, ...]:
    """Both, where there are running statistics among the weights: nothing else may compute otherwise while training."""
    return MODES if any(map(is_statistic, _shapes(model, model.reference))) else MODES[:1]


def bound(model: Model, quantity: Quantity) -> float:
    """The model's own, or the usual one."""
    return model.tolerance.get(quantity, BOUNDS[quantity])


def prove(quantity: Quantity, reference: Side, candidate: Side) -> float:
    """The largest error of a quantity over its tensors.

    Raises:
        NotTheSame: it exceeds its bound; the sentence names the tensor.
    """
    return check(quantity, measure(quantity, reference, candidate), reference.case)


def check(quantity: Quantity, errors: Errors, case: Case) -> float:
    """The largest error.

    Raises:
        NotTheSame: it exceeds its bound; the sentence names the tensor.
    """
    worst = max(errors, key=lambda name: np.nan_to_num(errors[name], nan=np.inf))
    if not errors[worst] <= bound(case.model, quantity):
        where = "" if worst == quantity else f" in {worst!r}"
        low, high = _OF_FLOAT32
        hint = (
            ". Errors of this size come from a part that computes in float32 whatever its input; tolerance= of the "
            "model admits them where both networks have it"
            if low < errors[worst] < high
            else ""
        )
        raise NotTheSame(
            f"{case.model.name} ({case.mode}): the difference in {quantity} is {errors[worst]:.1e}{where}, "
            f"more than {bound(case.model, quantity):.0e}{hint}"
        )
    return errors[worst]


def measure(quantity: Quantity, reference: Side, candidate: Side) -> Errors:
    """The error of each of a quantity's tensors by name; not a number where a result is not."""
    if quantity == "output":
        return {quantity: relative_l2(candidate.forward.output, reference.forward.output)}
    if quantity == "loss":
        return {quantity: _relative(candidate.forward.loss, reference.forward.loss)}
    if quantity == "gradients":
        return gradient_errors(candidate.backward.gradients, reference.backward.gradients)
    if quantity == "statistics":
        actual, expected = candidate.forward.statistics, reference.forward.statistics
        return {name: relative_l2(actual[name], expected[name]) for name in expected}
    pairs = zip(candidate.losses(quantity), reference.losses(quantity), strict=True)
    return {f"step {step}": _relative(float(one), float(other)) for step, (one, other) in enumerate(pairs, start=1)}


def relative_l2(actual: Array, expected: Array) -> float:
    """Length of the difference over the expected length, in float64. Shapes must be equal."""
    if actual.shape != expected.shape:
        raise NotTheSame(f"a result has the shape {actual.shape}, and {expected.shape} in the reference")
    difference = float(np.linalg.norm(np.ravel(actual.astype(np.float64) - expected)))
    return _ratio(difference, float(np.linalg.norm(np.ravel(expected.astype(np.float64)))))


def gradient_errors(actual: Mapping[str, Array], expected: Mapping[str, Array]) -> dict[str, float]:
    """Relative L2 of each tensor, floored by its share of the global norm.

    A gradient that vanishes (a bias just before a batch normalisation) consists of rounding and has no direction, so a
    tensor is taken to be at least as long as its number of elements would make it, were all gradients equal in size.
    """
    norms = {name: float(np.linalg.norm(np.ravel(array))) for name, array in expected.items()}
    size = sum(array.size for array in expected.values())
    typical = np.sqrt(sum(norm**2 for norm in norms.values()) / size)
    return {
        name: _ratio(
            float(np.linalg.norm(np.ravel(actual[name] - array))),
            max(norms[name], float(typical * np.sqrt(array.size))),
        )
        for name, array in expected.items()
    }


def _relative(actual: float, expected: float) -> float:
    return _ratio(abs(actual - expected), abs(expected))


def _ratio(difference: float, size: float) -> float:
    """A difference relative to a size, which may be 0: then any difference at all is infinitely large."""
    return difference / size if size else (math.inf if difference else 0.0)


@dataclass(frozen=True)
class _Found:
    """Each quantity's errors, and where they are of one kind that has a name, a sentence on it."""

    errors: dict[Quantity, Errors]
    note: str


@functools.cache
def _find(case: Case, candidate: str, quantities: tuple[Quantity, ...]) -> _Found:
    """From two sides built once."""
    one, other = side(case.model.reference)(case), side(candidate)(case)
    # What differentiates first: its forward pass serves the other quantities too.
    errors = {quantity: measure(quantity, one, other) for quantity in sorted(quantities, key=_FORWARD.__contains__)}
    worst = max(errors.get("statistics", {}).values(), default=0.0)
    if case.mode == "eval" or not worst > BOUNDS["statistics"] or not _is_bias(one, other):
        return _Found(errors, "")
    return _Found(
        errors,
        f"The running variances differ because {candidate} updates them with the biased estimate of a batch's "
        f"variance, as Flax's own BatchNorm does, and {case.model.reference} with the unbiased one, n / (n - 1) times "
        "as large, as PyTorch's does: use fwbench.frameworks.jax.layers.BatchNorm, which does as PyTorch does, or "
        "accept it with "
        f'tolerance={{"statistics": {10 ** math.ceil(math.log10(worst)):g}}}',
    )


def _is_bias(reference: Side, candidate: Side) -> bool:
    """Whether running variances differ in the estimate of the variance alone, and nothing else of the statistics does.

    The new value is a mix of the old one and the batch's estimate. A candidate with the biased estimate, (n - 1) / n of
    the reference's, therefore has a mix of the reference's new value, in this share, and of the old one; the batch's n,
    its size times that of the images, is a whole number.
    """
    actual, expected = candidate.forward.statistics, reference.forward.statistics
    before = reference.case.weights({name: array.shape for name, array in expected.items()})
    for name in expected:
        if relative_l2(actual[name], expected[name]) <= BOUNDS["statistics"]:
            continue
        parts = np.stack([expected[name].ravel(), before[name].ravel()], axis=1)
        # Two numbers are a mix of any others.
        if not name.endswith("running_var") or len(parts) < 3 or not np.isfinite(actual[name]).all():
            return False
        (share, rest), *_ = np.linalg.lstsq(parts, actual[name].ravel(), rcond=None)
        mixed = relative_l2(parts @ (share, rest), actual[name].ravel()) <= BOUNDS["statistics"]
        if not mixed or not 0 < share < 1 or not 0 <= rest <= 1:
            return False
        count = 1 / (1 - share)
        if abs(count / round(count) - 1) > 1e-6:
            return False
    return True


@functools.cache
def _shapes(model: Model, framework: str) -> dict[str, Shape]:
    return side(framework).shapes(model, model.sizes())


def _match(model: Model, candidate: str) -> None:
    """Raises NotTheSame where a weight of one network has no counterpart of its shape in the other."""
    reference = model.reference
    shapes = {reference: _shapes(model, reference), candidate: _shapes(model, candidate)}
    expected, actual = shapes[reference], shapes[candidate]
    unmatched = [name for name in {**actual, **expected} if actual.get(name) != expected.get(name)]
    if not unmatched:
        return

    def line(name: str) -> str:
        if name in actual and name in expected:
            return f"{name!r} is {actual[name]} in {candidate} and {expected[name]} in {reference}"
        one, other = (candidate, reference) if name in actual else (reference, candidate)
        shape = shapes[one][name]
        left = {n: shapes[other][n] for n in unmatched if n in shapes[other]}
        alike = [n for n, of in left.items() if of == shape] or list(left)
        near = difflib.get_close_matches(name, alike, n=1, cutoff=0.0)
        nearest = f"; the nearest in {other} is {near[0]!r} {left[near[0]]}" if near else ""
        return f"{name!r} {shape} is in {one} alone{nearest}"

    more = [f"and {len(unmatched) - _LISTED} more"] if len(unmatched) > _LISTED else []
    raise NotTheSame(
        f"{model.name}: the weights of {candidate} and {reference} do not all have the same names and shapes. "
        "Rename them, or map names with weights={...} of the model:\n  "
        + "\n  ".join([*map(line, unmatched[:_LISTED]), *more])
    )
