"""How far two sides are apart, and how far they may be."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import jax
import numpy as np
import torch

from fwbench.parity.case import Array, Case, Device, Mode, Side
from fwbench.parity.jax import JaxSide
from fwbench.parity.torch import TorchSide

Quantity = Literal["logits", "loss", "gradients", "statistics", "sgd", "adam"]

_FORWARD: tuple[Quantity, ...] = ("logits", "loss", "statistics")

# By the name of a tensor, or of the quantity where it is one number or array.
Errors = dict[str, float]

# Largest admissible error in float64. A right port reaches 1e-13 where nothing amplifies rounding; every mutation in
# tests/correctness/test_mutations.py is above 1e-9. Trajectories do amplify, see `TRAIN_BATCH`.
BOUNDS: dict[Quantity, float] = {
    "logits": 1e-10,
    "loss": 1e-10,
    "gradients": 1e-8,
    "statistics": 1e-10,
    "sgd": 1e-7,
    "adam": 1e-7,
}

# Image size of whatever differentiates; forward passes take the catalog's. Small images for the sake of time: XLA runs
# float64 convolutions in naive loops on a CPU.
BACKWARD_SIZE = {"resnet50": 32, "vit_b_16": 64, "mobilenet_v3_small": 32, "efficientnet_b0": 32}
# Its batch in train mode, two elsewhere: batch normalisation over the few numbers that such an image leaves at the end
# of the network makes training chaotic. Over ResNet-50's eight numbers (64 pixels, batch of 2) five SGD steps carry
# PyTorch 1e-5 away from itself when each input moves by one unit in the last place of float64; over 16 (32 pixels,
# batch of 16) 3e-9, where JAX was 4e-8 away with one thread; over 32 less than 1e-9, as EfficientNet over eight.
TRAIN_BATCH = {"resnet50": 32, "mobilenet_v3_small": 8, "efficientnet_b0": 8}

# How many times the reference's own float32 error another float32 result may err.
ROOM = 5
# A float32 result differs from float64 by rounding alone, whatever its author; a smaller error than this is luck.
ROUNDING = float(np.finfo(np.float32).eps)


class NotTheSame(AssertionError):  # noqa: N818 (a finding about two networks rather than an error in a program)
    """Two sides are further apart than a bound allows."""


@dataclass(frozen=True)
class Rounding:
    """Errors of float32 results: the reference's own, what they allow, and the candidate's."""

    own: float
    bound: float
    error: float


class Proof:
    """One model in one mode: the errors between PyTorch's answers and JAX's, each computed when first asked for.

    Errors and logits are kept, but no network, gradient or optimizer state: ViT-B/16's take gigabytes in float64. What
    differentiates is computed once for both modes where these are one (`has_modes`).
    """

    def __init__(self, model: str, mode: Mode, device: Device = "cpu") -> None:
        """
        Args:
            device: where float32 runs; float64 always runs on the CPU.
        """
        self.model, self.mode = model, mode
        self._device = device
        batch_size = TRAIN_BATCH.get(model, 2) if mode == "train" else 2
        small = Case(model, mode, size=BACKWARD_SIZE.get(model), batch_size=batch_size)
        self._forward = small if mode == "train" else Case(model, mode)
        self._backward = small if has_modes(model) else dataclasses.replace(small, mode="eval")
        self._logits = functools.cache(_logits)

    def prove(self, quantity: Quantity) -> float | None:
        """The largest error of a quantity in float64; None where the model has none of it.

        Raises:
            NotTheSame: it exceeds its bound.
        """
        case = self._forward if quantity in _FORWARD else self._backward
        return check(quantity, _errors(case, self._quantities(case))[quantity], case)

    def logits(self) -> Rounding:
        """JAX's float32 logits against PyTorch's float64 ones."""
        case = self._float32(self._forward)
        exact = self._logits(TorchSide, self._forward)
        # PyTorch in both memory layouts: the larger error is the less likely to be luck.
        own = [logits_error(self._logits(TorchSide, case, channels_last=layout), exact) for layout in (True, False)]
        return Rounding(max(own), tolerance(own), logits_error(self._logits(JaxSide, case), exact))

    def gradients(self) -> Rounding:
        """JAX's float32 gradients against PyTorch's float64 ones."""
        return _gradients(self._backward, self._float32(self._backward))

    def torch_compile(self) -> float:
        """Error of compiled PyTorch's float32 logits against eager ones."""
        case = self._float32(self._forward)
        eager = self._logits(TorchSide, case, channels_last=True)
        return logits_error(self._logits(TorchSide, case, compiled=True), eager)

    def jit(self) -> float:
        """Error of jitted JAX's float32 logits against those of JAX operator by operator."""
        case = self._float32(self._forward)
        return logits_error(self._logits(JaxSide, case), self._logits(JaxSide, case, eager=True))

    def _quantities(self, case: Case) -> tuple[Quantity, ...]:
        """All that a case is for."""
        forward, backward = case == self._forward, case == self._backward
        return tuple(quantity for quantity in BOUNDS if (forward if quantity in _FORWARD else backward))

    def _float32(self, case: Case) -> Case:
        return dataclasses.replace(case, dtype="float32", device=self._device)


def has_modes(model: str) -> bool:
    """Whether `train` differs from `eval` at rate 0: batch normalisation alone computes otherwise while training."""
    return model in TRAIN_BATCH


def device_at_hand() -> Device:
    """`gpu` where both frameworks see one."""
    seen = torch.cuda.is_available() and any(device.platform == "gpu" for device in jax.devices())
    return "gpu" if seen else "cpu"


def prove(quantity: Quantity, reference: Side, candidate: Side) -> float | None:
    """The largest error of a quantity over its tensors; None where neither side has any (no running statistics).

    Raises:
        NotTheSame: it exceeds its bound; the sentence names the tensor.
    """
    return check(quantity, measure(quantity, reference, candidate), reference.case)


def check(quantity: Quantity, errors: Errors, case: Case) -> float | None:
    """The largest error; None where there is none.

    Raises:
        NotTheSame: it exceeds its bound; the sentence names the tensor.
    """
    if not errors:
        return None
    worst = max(errors, key=lambda name: np.nan_to_num(errors[name], nan=np.inf))
    if not errors[worst] <= BOUNDS[quantity]:
        raise NotTheSame(
            f"{case.model} ({case.mode}): {quantity} differ by {errors[worst]:.1e} in {worst!r}, "
            f"more than {BOUNDS[quantity]:.0e}"
        )
    return errors[worst]


def measure(quantity: Quantity, reference: Side, candidate: Side) -> Errors:
    """The error of each of a quantity's tensors by name; not a number where a result is not."""
    if quantity == "logits":
        return {quantity: relative_l2(candidate.forward.logits, reference.forward.logits)}
    if quantity == "loss":
        return {quantity: abs(candidate.forward.loss / reference.forward.loss - 1)}
    if quantity == "gradients":
        return gradient_errors(candidate.backward.gradients, reference.backward.gradients)
    if quantity == "statistics":
        actual, expected = candidate.forward.statistics, reference.forward.statistics
        _same_names(actual, expected)
        return {name: relative_l2(actual[name], expected[name]) for name in expected}
    ratios = candidate.losses(quantity) / reference.losses(quantity)
    return {f"step {step}": abs(ratio - 1) for step, ratio in enumerate(ratios, start=1)}


def relative_l2(actual: Array, expected: Array) -> float:
    """Length of the difference over the expected length, in float64. Shapes must be equal."""
    if actual.shape != expected.shape:
        raise NotTheSame(f"shape {actual.shape} is not {expected.shape}")
    difference = np.linalg.norm(np.ravel(actual.astype(np.float64) - expected))
    return float(difference / np.linalg.norm(np.ravel(expected.astype(np.float64))))


def gradient_errors(actual: Mapping[str, Array], expected: Mapping[str, Array]) -> dict[str, float]:
    """Relative L2 of each tensor, floored by its share of the global norm.

    A gradient that vanishes (a bias just before a batch normalisation) consists of rounding and has no direction, so a
    tensor is taken to be at least as long as its number of elements would make it, were all gradients equal in size.
    """
    _same_names(actual, expected)
    norms = {name: float(np.linalg.norm(np.ravel(array))) for name, array in expected.items()}
    typical = np.sqrt(sum(norm**2 for norm in norms.values()) / sum(array.size for array in expected.values()))
    return {
        name: float(np.linalg.norm(np.ravel(actual[name] - array)))
        / max(norms[name], float(typical * np.sqrt(array.size)))
        for name, array in expected.items()
    }


def logits_error(actual: Array, expected: Array) -> float:
    """The largest relative L2 of any sample's logits."""
    return max(relative_l2(*rows) for rows in zip(actual, expected, strict=True))


def global_error(actual: Mapping[str, Array], expected: Mapping[str, Array]) -> float:
    """Relative L2 of all gradients as one long vector, in float64."""
    _same_names(actual, expected)
    difference = sum(float(np.sum(np.square(actual[name].astype(np.float64) - expected[name]))) for name in expected)
    return float(np.sqrt(difference / sum(float(np.sum(np.square(array))) for array in expected.values())))


def tolerance(own: Sequence[float]) -> float:
    """What a float32 result may err, from the reference framework's own float32 errors at the same task."""
    return ROOM * max(*own, ROUNDING)


@functools.cache
def _errors(case: Case, quantities: tuple[Quantity, ...]) -> dict[Quantity, Errors]:
    """Each quantity's errors, from two sides built once."""
    sides = TorchSide(case), JaxSide(case)
    # What differentiates first: its forward pass serves the other quantities too.
    return {quantity: measure(quantity, *sides) for quantity in sorted(quantities, key=_FORWARD.__contains__)}


@functools.cache
def _gradients(exact: Case, case: Case) -> Rounding:
    """JAX's gradients of a float32 case against PyTorch's of the same in float64."""
    expected = TorchSide(exact).backward.gradients
    # PyTorch in both memory layouts: the larger error is the less likely to be luck.
    own = [global_error(TorchSide(case, channels_last=layout).backward.gradients, expected) for layout in (True, False)]
    return Rounding(max(own), tolerance(own), global_error(JaxSide(case).backward.gradients, expected))


def _logits(side: Callable[..., Side], case: Case, **options: bool) -> Array:
    return side(case, **options).forward.logits


def _same_names(actual: Mapping[str, Array], expected: Mapping[str, Array]) -> None:
    if actual.keys() != expected.keys():
        raise NotTheSame(f"names differ: {sorted(actual.keys() ^ expected.keys())[:5]}")
