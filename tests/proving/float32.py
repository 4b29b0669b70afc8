"""What the proofs of the suite's own models say besides: float32 results and compiled ones."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch

from fwbench.ext.proofs.case import Array, Case, Device, Mode, Side, side
from fwbench.ext.proofs.errors import relative_l2
from fwbench.ext.proofs.proof import Proof
from fwbench.ext.proofs.torch import TorchSide
from fwbench.models import Model
from tests.proving.records import ROOM, Rounding, Row

# A float32 result differs from float64 by rounding alone, whatever its author; a smaller error than this is luck.
ROUNDING = float(np.finfo(np.float32).eps)


class SuiteProof(Proof):
    """The proof of a framework's network of one of the suite's own models, with its float32 results.

    Logits are kept besides errors.
    """

    def __init__(self, model: Model, mode: Mode, device: Device = "cpu", candidate: str = "jax") -> None:
        """
        Args:
            device: where float32 runs; float64 always runs on the CPU.
            candidate: the framework that is proved against PyTorch.
        """
        super().__init__(model, candidate, mode)
        self._device = device
        self._side = side(candidate)
        self._logits = functools.cache(_logits)

    def row(self) -> Row:
        """What the published page says of it.

        Raises:
            NotTheSame: a float64 error exceeds its bound.
        """
        inference = self.mode == "eval"
        return Row(
            self.model.name,
            self.mode,
            {quantity: self.prove(quantity) for quantity in self.quantities},
            self.logits(),
            self.gradients(),
            # Of PyTorch alone, so once is enough.
            self.torch_compile() if inference and self.candidate == "jax" else None,
            self.jit() if inference else None,
            self.xla() if inference and self.candidate == "tensorflow" else None,
            self.candidate,
        )

    def logits(self) -> Rounding:
        """The candidate's float32 logits against PyTorch's float64 ones."""
        exact = self._logits(TorchSide, self._forward)
        # PyTorch in both memory layouts: the larger error is the less likely to be luck.
        own = [logits_error(self._coarse(TorchSide, channels_last=layout), exact) for layout in (True, False)]
        return Rounding(max(own), tolerance(own), logits_error(self._coarse(self._side), exact))

    def gradients(self) -> Rounding:
        """The candidate's float32 gradients against PyTorch's float64 ones."""
        return _gradients(self._backward, self._float32(self._backward), self._side)

    def torch_compile(self) -> float:
        """Error of compiled PyTorch's float32 logits against eager ones."""
        return logits_error(self._coarse(side("torch-compile")), self._coarse(TorchSide, channels_last=True))

    def jit(self) -> float:
        """Error of the float32 logits of `jax.jit` or `tf.function` against those of the same, operator by operator."""
        return logits_error(self._coarse(self._side), self._coarse(self._side, eager=True))

    def xla(self) -> float:
        """Error of the float32 logits of TensorFlow with XLA against those of TensorFlow operator by operator."""
        return logits_error(self._coarse(self._side, xla=True), self._coarse(self._side, eager=True))

    def _coarse(self, side: type[Side], **options: bool) -> Array:
        return self._logits(side, self._float32(self._forward), **options)

    def _float32(self, case: Case) -> Case:
        return dataclasses.replace(case, dtype="float32", device=self._device)


def device_at_hand() -> Device:
    """`gpu` where PyTorch and JAX see one."""
    import jax

    seen = torch.cuda.is_available() and any(device.platform == "gpu" for device in jax.devices())
    return "gpu" if seen else "cpu"


def logits_error(actual: Array, expected: Array) -> float:
    """The largest relative L2 of any sample's logits."""
    return max(relative_l2(*rows) for rows in zip(actual, expected, strict=True))


def global_error(actual: Mapping[str, Array], expected: Mapping[str, Array]) -> float:
    """Relative L2 of all gradients as one long vector, in float64."""
    difference = sum(float(np.sum(np.square(actual[name].astype(np.float64) - expected[name]))) for name in expected)
    return float(np.sqrt(difference / sum(float(np.sum(np.square(array))) for array in expected.values())))


def tolerance(own: Sequence[float]) -> float:
    """What a float32 result may err, from the reference framework's own float32 errors at the same task."""
    return ROOM * max(*own, ROUNDING)


@functools.cache
def _gradients(exact: Case, case: Case, candidate: type[Side]) -> Rounding:
    expected = TorchSide(exact).backward().gradients
    # PyTorch in both memory layouts: the larger error is the less likely to be luck.
    references = (TorchSide(case, channels_last=layout) for layout in (True, False))
    own = [global_error(reference.backward().gradients, expected) for reference in references]
    return Rounding(max(own), tolerance(own), global_error(candidate(case).backward().gradients, expected))


def _logits(side: Callable[..., Side], case: Case, **options: bool) -> Array:
    return side(case, **options).forward().output
