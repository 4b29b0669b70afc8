"""Losses that a training step minimises."""

from collections.abc import Callable

from fwbench.frameworks.faults import faults
from fwbench.frameworks.tensorflow.imported import tf
from fwbench.frameworks.tensorflow.layers import Tensor
from fwbench.models import Model
from fwbench.models.importing import ModelError, load

Loss = Callable[..., Tensor]


def loss_of(model: Model) -> Loss:
    """The model's loss: a scalar function of its output in float32, and of the targets if there are any.

    Raises:
        ModelError: an import path leads to no function. A call of the loss raises it, too, if the call fails.
    """
    if isinstance(model.loss, str):
        return {"cross_entropy": _cross_entropy, "mse": _mean_squared_error}[model.loss]
    path = model.loss["tensorflow"]
    function = load(path)
    if not callable(function):
        raise ModelError(f"{path!r}, the loss of {model.name}, is an object of type {type(function).__name__}")

    def loss(*given: Tensor) -> Tensor:
        with faults(f"{path!r}, the loss of {model.name},"):
            value = tf.convert_to_tensor(function(*given))
        if value.shape.rank:
            raise ModelError(
                f"{path!r}, the loss of {model.name}, returned a tensor of shape {tuple(value.shape)} instead of a "
                "scalar"
            )
        return value

    return loss


def _cross_entropy(output: Tensor, labels: Tensor) -> Tensor:
    """The mean over all of the output's axes but the last, which counts the classes."""
    _compare(tuple(output.shape[:-1]), labels)
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, output))


def _mean_squared_error(output: Tensor, wanted: Tensor) -> Tensor:
    _compare(tuple(output.shape), wanted)
    return tf.reduce_mean(tf.square(output - wanted))


def _compare(expected: tuple[int, ...], wanted: Tensor) -> None:
    # Otherwise TensorFlow would broadcast one to the other's shape.
    if tuple(wanted.shape) != expected:
        raise ModelError(
            f"the targets have the shape {tuple(wanted.shape)}, and the loss of this output needs {expected}"
        )
