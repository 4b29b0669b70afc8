"""The PyTorch module that a model names: its construction, its canonical weights and its calls."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.parameter import is_lazy

from fwbench.frameworks.definitions import check_function, check_weights, takes_inputs
from fwbench.frameworks.faults import faults
from fwbench.frameworks.torch.deferred import Deferred
from fwbench.models import Model
from fwbench.models.importing import ModelError, arguments, load
from fwbench.models.outputs import select
from fwbench.models.weights import Shape, Weights

# Buffers that training changes. All others are constants that the network brings along.
_STATISTICS = ("running_mean", "running_var")


class Function(torch.nn.Module):
    """A plain function of the inputs as a module without weights."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any, **named: Any) -> Any:
        return self.function(*inputs, **named)


def network(model: Model, sizes: Mapping[str, int]) -> torch.nn.Module:
    """The model's module on the CPU, in the mode in which it was built.

    The weights are yet to be loaded: the tensors in `shapes` may hold any numbers until `load_weights` sets them.

    Args:
        sizes: sizes of the model's axes.

    Raises:
        KeyError: the model has no network in PyTorch.
        ModelError: its import path does not lead to one.
    """
    with Deferred() as deferred:
        built = _built(model, sizes, seed=0)
    deferred.finish(weights_of(built).values())
    return built


def initial(model: Model, sizes: Mapping[str, int], seed: int = 0) -> Weights:
    """The weights as the network's own constructor draws them: see `fwbench.frameworks.contract.Framework.initial`."""
    return export_weights(_built(model, sizes, seed))


def _built(model: Model, sizes: Mapping[str, int], seed: int) -> torch.nn.Module:
    path = model.networks["torch"]
    definition = load(path)
    if not callable(definition) or isinstance(definition, torch.nn.Module):
        raise ModelError(
            f"{path!r} is an object of type {type(definition).__name__}: name a class, a factory or a function"
        )
    call = functools.partial(definition, **arguments(definition, sizes))
    if takes_inputs(model, "torch", definition, sizes):
        return Function(call)
    # Random buffers are the same in every process.
    torch.manual_seed(seed)
    with faults(f"{path!r}"):
        built = call()
    if not isinstance(built, torch.nn.Module):
        check_function(path, built, "a torch.nn.Module")
        return Function(built)
    for name, tensor in (*built.named_parameters(), *built.named_buffers()):
        if is_lazy(tensor):
            raise ModelError(
                f"{path!r} leaves the shape of {name!r} to the first call: give the layer the size of its input"
            )
        if tensor.is_meta:
            raise ModelError(f"{path!r} leaves {name!r} without numbers on the meta device: build it on the CPU")
    return built


def weights_of(module: torch.nn.Module) -> dict[str, Tensor]:
    """The tensors that hold canonical weights by name: parameters (tied ones once) and running statistics."""
    parameters = {name: tensor for name, tensor in module.named_parameters() if tensor.is_floating_point()}
    buffers = module.named_buffers()
    return parameters | {name: tensor for name, tensor in buffers if name.rpartition(".")[2] in _STATISTICS}


def shapes(module: torch.nn.Module) -> dict[str, Shape]:
    """The shape of every parameter (tied ones once) and of every running statistic, by canonical name."""
    return {name: tuple(tensor.shape) for name, tensor in weights_of(module).items()}


def load_weights(module: torch.nn.Module, weights: Mapping[str, NDArray[Any]]) -> None:
    """Set a module to the canonical weights, each used exactly once, and to their number format, float32 or float64.

    Buffers without canonical weights keep their values.

    Raises:
        ModelError: a weight is missing, unknown or of another shape.
    """
    check_weights("the network in PyTorch", shapes(module), weights)
    # Not by `to`, which would reduce complex buffers to their real part.
    if any(array.dtype == np.float64 for array in weights.values()):
        module.double()
    else:
        module.float()
    for name, tensor in weights_of(module).items():
        # Not copied into the parameter's own memory, which has not been touched yet: NumPy's memory is ready sooner.
        tensor.data = torch.from_numpy(np.array(weights[name], order="C")).to(tensor.device)


def export_weights(module: torch.nn.Module) -> Weights:
    """The module's weights in canonical form on the host: float32, or float64 if the module has that."""
    tensors = {name: tensor.detach().cpu() for name, tensor in weights_of(module).items()}
    return {
        name: np.array((tensor if tensor.dtype is torch.float64 else tensor.float()).contiguous().numpy())
        for name, tensor in tensors.items()
    }


def place_inputs(
    model: Model, arrays: Mapping[str, NDArray[Any]], device: torch.device, dtype: torch.dtype
) -> dict[str, Tensor]:
    """A batch of a model's inputs on the device.

    Args:
        arrays: arrays by the input's name, as from `fwbench.models.inputs.draw`.
        dtype: number format of floating-point inputs. Whole numbers become int64, which PyTorch's indexing wants.

    Returns:
        The inputs by name. Images are views of shape (batch, channels, height, width) on memory in the order (batch,
        height, width, channels), in which they arrive.
    """
    return {
        name: placed.permute(0, 3, 1, 2) if model.inputs[name].image else placed
        for name, placed in ((name, place(array, device, dtype)) for name, array in arrays.items())
    }


def place(array: NDArray[Any], device: torch.device, dtype: torch.dtype = torch.float32) -> Tensor:
    """An array on the device: `dtype` for floating point, int64 for whole numbers, bool for truth values."""
    placed = torch.from_numpy(array)
    if not placed.is_floating_point():
        dtype = torch.bool if placed.dtype is torch.bool else torch.int64
    return placed.to(device, dtype)


def called_with(inputs: Mapping[str, Tensor]) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
    """Positional and keyword arguments of a call: an input without a name is the first, all others have theirs."""
    return tuple(inputs[name] for name in inputs if not name), {name: inputs[name] for name in inputs if name}


def select_output(model: Model, returned: Any, batch_size: int) -> Tensor:
    """The model's output in the value that its network returned.

    Raises:
        ModelError: the output is not where the model says, is no array, or its first axis is not the batch.
    """
    output = select(model, "torch", returned, batch_size)
    if not isinstance(output, Tensor):
        raise ModelError(f"{model.name} returns an object of type {type(output).__name__} instead of a torch.Tensor")
    return output
