"""Losses that a training step minimises."""

from collections.abc import Callable, Mapping
from typing import Any

from fwbench.frameworks.faults import faults
from fwbench.models import Model
from fwbench.models.importing import ModelError, load

Loss = Callable[..., Any]


def loss_of(
    model: Model, framework: str, own: Mapping[str, Loss], array: Callable[[Any], Any], *, blame: bool = True
) -> Loss:
    """The model's loss: a scalar function of its output in float32, and of the targets if there are any.

    Args:
        own: the framework's `cross_entropy`, which is the mean over all of the output's axes but the last, that of the
            classes; and its `mse`.
        array: makes an array of the framework from the value of a user's loss; None if that is not possible.
        blame: turn an exception in the loss into a `ModelError`.

    Raises:
        ModelError: an import path leads to no function. A call of the loss raises it, too, if the targets have another
            shape than the loss needs, or if its value is no scalar.
    """
    if isinstance(model.loss, str):
        compute, of_classes = own[model.loss], model.loss == "cross_entropy"

        def compared(output: Any, wanted: Any) -> Any:
            expected = tuple(output.shape[:-1] if of_classes else output.shape)
            # Otherwise the framework would broadcast one to the other's shape.
            if tuple(wanted.shape) != expected:
                raise ModelError(
                    f"the targets have the shape {tuple(wanted.shape)}, and the loss of this output needs {expected}"
                )
            return compute(output, wanted)

        return compared
    path = model.loss[framework]
    named, function = f"{path!r}, the loss of {model.name},", load(path)
    if not callable(function):
        raise ModelError(f"{named} is an object of type {type(function).__name__}")

    def loss(*given: Any) -> Any:
        returned = function(*given)
        value = array(returned)
        if value is None:
            raise ModelError(f"{named} returned an object of type {type(returned).__name__} instead of a scalar")
        if tuple(value.shape):
            raise ModelError(f"{named} returned an array of shape {tuple(value.shape)} instead of a scalar")
        return value

    return faults(named)(loss) if blame else loss
