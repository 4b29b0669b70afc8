"""The kinds of mistakes that are planted in a JAX program: each changes one value where it is made or used."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

# The share by which a constant is moved, and the factor on a gradient. Mistyped weight decays and momenta move more.
_MOVE, _SLOPE = 1e-3, 1.003
# A clip stands at the least or largest value seen at the main point, or beyond it by half of its magnitude.
CLIPS = (1.0, 1.5)

_GELU = math.sqrt(2 / math.pi)
_CUBIC = 0.044715


@dataclass(frozen=True)
class Mistake:
    """One change of one value.

    Attributes:
        kind: a key of `_CHANGES`.
        what: the mistake in a few words, for a sentence.
        amount: a factor; for a clip, one of `CLIPS`.
        low: for a clip, whether it bounds values from below.
    """

    kind: str
    what: str
    amount: float = 0.0
    low: bool = False

    @property
    def forward(self) -> bool:
        """True if it changes a value; the other mistakes change a gradient alone."""
        return self.kind not in GRADIENT

    @property
    def clips(self) -> bool:
        """True if it bounds values."""
        return self.kind == "clip"

    @property
    def takes_operands(self) -> bool:
        """True if the changed result is computed from the operation's operands."""
        return self.kind in ("GELU's other form", "hard sigmoid")

    def change(self, value: Any, inputs: Sequence[Any], limit: Any) -> Any:
        """The value with the mistake, of the same shape and number format.

        Args:
            inputs: the inputs of the operation that made the value.
            limit: the value at which a clip stands.
        """
        return jnp.asarray(_CHANGES[self.kind](value, inputs, self, limit), value.dtype)

    def limit(self, low: float, high: float) -> float:
        """The value at which a clip stands, given the least and the largest value seen."""
        beyond = self.amount - 1
        return low - beyond * abs(low) if self.low else high + beyond * abs(high)


GRADIENT = frozenset({"gradient stopped", "gradient scaled", "parameter's gradient scaled"})

_ROUNDED: dict[str, Any] = {"rounded to float32": jnp.float32, "rounded to bfloat16": jnp.bfloat16}
# No mistake for weights and inputs, which are drawn, stored and exchanged in float32.
_AS_GIVEN = "rounded to float32"

Change = Callable[[Any, Sequence[Any], Mistake, Any], Any]


def _gelu(value: Any, inputs: Sequence[Any], mistake: Mistake, limit: Any) -> Any:
    """Replace the function by its counterpart in the other form of GELU, which is within 5e-4 of it."""
    (x,) = inputs
    if mistake.what.startswith("tanh"):
        # The x of tanh(sqrt(2 / pi) * (x + 0.044715 x^3)), for this argument of tanh.
        p, q = 1 / _CUBIC, x / (_GELU * _CUBIC)
        x = 2 * math.sqrt(p / 3) * jnp.sinh(jnp.arcsinh(1.5 * q / p * math.sqrt(3 / p)) / 3)
        return lax.erf(x / math.sqrt(2))
    x = x * math.sqrt(2)
    other = jnp.tanh(_GELU * (x + _CUBIC * x**3))
    return 1 - other if mistake.what.startswith("erfc") else other


_CHANGES: dict[str, Change] = {
    "constant moved": lambda x, _, mistake, limit: jnp.where(x == 0, _MOVE, x * (1 + _MOVE)),
    "epsilon": lambda x, _, mistake, limit: x * mistake.amount,
    "GELU's other form": _gelu,
    "hard sigmoid": lambda _, inputs, mistake, limit: jnp.clip(inputs[0] / 6 + 0.5, 0, 1),
    "term dropped": lambda x, _, mistake, limit: jnp.zeros_like(x),
    "difference swapped": lambda x, _, mistake, limit: -x,
    "quotient swapped": lambda x, _, mistake, limit: 1 / x,
    "matrix transposed": lambda x, _, mistake, limit: jnp.swapaxes(x, -1, -2),
    "clip": lambda x, _, mistake, limit: (jnp.maximum if mistake.low else jnp.minimum)(x, limit.astype(x.dtype)),
    "rounded": lambda x, _, mistake, limit: x.astype(_ROUNDED[mistake.what]),
    "gradient stopped": lambda x, _, mistake, limit: lax.stop_gradient(x),
    "gradient scaled": lambda x, _, mistake, limit: _SLOPE * x - lax.stop_gradient((_SLOPE - 1) * x),
    "parameter's gradient scaled": lambda x, _, mistake, limit: _SLOPE * x - lax.stop_gradient((_SLOPE - 1) * x),
}

KINDS = tuple(_CHANGES)


def of_constant(value: Any, added: bool) -> list[Mistake]:
    """The mistakes that a constant may get; if it is added, as a term of a sum, it may be an epsilon."""
    number = f"constant {float(value):.6g}" if np.ndim(value) == 0 else f"constants of shape {np.shape(value)}"
    mistakes = [Mistake("constant moved", f"{number} moved by 0.1 %")]
    if added and np.ndim(value) == 0 and 0 < value <= _MOVE:
        for amount, words in ((10.0, "ten times as large"), (0.1, "a tenth")):
            mistakes.append(Mistake("epsilon", f"epsilon {float(value):g} {words}", amount))
    return mistakes


def of_gradient(name: str = "") -> list[Mistake]:
    """The mistakes that a value's gradient may get; with a name, those of that parameter's gradient."""
    if name:
        return [Mistake("parameter's gradient scaled", f"gradient of {name!r} 0.3 % too large")]
    return [Mistake("gradient stopped", "stop_gradient"), Mistake("gradient scaled", "gradient 0.3 % too large")]


def of_values(*, given: bool = False) -> list[Mistake]:
    """The mistakes that any array may get; one given to the program, weight or input, comes in float32 in any case."""
    clips = [Mistake("clip", "clip", amount, low) for low in (True, False) for amount in CLIPS]
    return [*clips, *(Mistake("rounded", what) for what in _ROUNDED if not given or what != _AS_GIVEN)]


def of_operand(primitive: str, index: int, aval: Any) -> list[Mistake]:
    """The mistakes that an operation's operand may get."""
    if primitive == "add":
        return [Mistake("term dropped", f"{('first', 'second')[index]} term of a sum dropped")]
    if primitive == "dot_general" and aval.ndim == 2 and aval.shape[0] == aval.shape[1] > 1:
        return [Mistake("matrix transposed", "square matrix transposed")]
    return []


def of_result(primitive: str, operands: Sequence[Any], aval: Any) -> list[Mistake]:
    """The mistakes that an operation's result may get."""
    if primitive in ("erf", "erfc", "tanh"):
        other = "tanh" if primitive != "tanh" else "erf"
        return [Mistake("GELU's other form", f"{primitive} replaced by GELU's form with {other}")]
    if primitive == "logistic":
        return [Mistake("hard sigmoid", "sigmoid replaced by hard sigmoid")]
    if primitive == "sub":
        return [Mistake("difference swapped", "operands of a difference swapped")]
    if primitive == "div":
        return [Mistake("quotient swapped", "operands of a quotient swapped")]
    alike = primitive == "dot_general" and operands[0].shape == operands[1].shape
    if alike and aval.ndim > 1 and aval.shape[-1] == aval.shape[-2] > 1:
        return [Mistake("matrix transposed", "operands of a product swapped")]
    return []
