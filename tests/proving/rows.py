"""What a full proof says of one model's network in a framework and a mode."""

from collections.abc import Mapping
from dataclasses import dataclass

from fwbench.parity.case import Mode
from fwbench.parity.errors import BOUNDS, Quantity
from fwbench.record.decoding import Decoded

# How many times the reference's own float32 error another float32 result may err.
ROOM = 5


@dataclass(frozen=True)
class Rounding(Decoded):
    """Errors of float32 results: the reference's own, what they allow, and the candidate's."""

    own: float
    bound: float
    error: float


@dataclass(frozen=True)
class Row(Decoded):
    """What one model's network in a framework reached in one mode; compiled results are of inference alone.

    Attributes:
        torch_compile: of PyTorch itself; in one framework's rows alone.
        jit: of the candidate as its lane compiles it, by `jax.jit` or `tf.function`.
        xla: of TensorFlow's lane with XLA.
    """

    model: str
    mode: Mode
    float64: Mapping[Quantity, float]
    logits: Rounding
    gradients: Rounding
    torch_compile: float | None
    jit: float | None
    xla: float | None = None
    candidate: str = "jax"

    @property
    def holds(self) -> bool:
        """Whether every error is within its bound."""
        float64 = all(error <= BOUNDS[quantity] for quantity, error in self.float64.items())
        compiled = [error for error in (self.torch_compile, self.jit, self.xla) if error is not None]
        return (
            float64
            and all(error <= self.logits.bound for error in (self.logits.error, *compiled))
            and self.gradients.error <= self.gradients.bound
        )
