"""Losses that a training step minimises."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax

from fwbench.frameworks.faults import faults
from fwbench.models import Model
from fwbench.models.importing import ModelError, load

Loss = Callable[..., jax.Array]


def loss_of(model: Model) -> Loss:
    """The model's loss: a scalar function of its output in float32, and of the targets if there are any.

    Raises:
        ModelError: an import path leads to no function. A call of the loss raises it, too, if the call fails.
    """
    if isinstance(model.loss, str):
        return {"cross_entropy": _cross_entropy, "mse": _mean_squared_error}[model.loss]
    path = model.loss["jax"]
    function = load(path)
    if not callable(function):
        raise ModelError(f"{path!r}, the loss of {model.name}, is an object of type {type(function).__name__}")

    def loss(*given: jax.Array) -> jax.Array:
        with faults(f"{path!r}, the loss of {model.name},"):
            value: jax.Array = jnp.asarray(function(*given))
        if value.shape:
            raise ModelError(
                f"{path!r}, the loss of {model.name}, returned an array of shape {value.shape} instead of a scalar"
            )
        return value

    return loss


def _cross_entropy(output: jax.Array, labels: jax.Array) -> jax.Array:
    """The mean over all of the output's axes but the last, which counts the classes."""
    _compare(output.shape[:-1], labels)
    losses: jax.Array = optax.softmax_cross_entropy_with_integer_labels(output, labels)
    return losses.mean()


def _mean_squared_error(output: jax.Array, wanted: jax.Array) -> jax.Array:
    _compare(output.shape, wanted)
    return jnp.square(output - wanted).mean()


def _compare(expected: tuple[int, ...], wanted: jax.Array) -> None:
    # Otherwise JAX would broadcast one to the other's shape.
    if wanted.shape != expected:
        raise ModelError(
            f"the targets have the shape {wanted.shape}, and the loss of this output needs {tuple(expected)}"
        )
