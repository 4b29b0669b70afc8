"""Which PyTorch module a model of the catalog is, and how canonical weights enter and leave it."""

from collections.abc import Mapping

import numpy as np
import torch

from fwbench.models import CATALOG, Model
from fwbench.models.importing import arguments, load
from fwbench.models.weights import Shape, Weights

_COUNTER = "num_batches_tracked"


def network(model: Model, sizes: Mapping[str, int]) -> torch.nn.Module:
    """The model's module on the meta device: shapes without storage, in training mode.

    Args:
        sizes: of the model's axes.

    Raises:
        KeyError: the model has no network in PyTorch.
        ModelError: its import path does not lead to one.
    """
    builder = load(model.networks["torch"])
    with torch.device("meta"):
        module: torch.nn.Module = builder(**arguments(builder, sizes))
        return module


def shapes(module: torch.nn.Module) -> dict[str, Shape]:
    """Canonical name to shape of every tensor of the module's state."""
    return {name: tuple(tensor.shape) for name, tensor in module.state_dict().items() if not name.endswith(_COUNTER)}


def load_weights(module: torch.nn.Module, weights: Weights) -> None:
    """Give a module on the meta device its storage: the canonical weights, each key used exactly once.

    Raises:
        RuntimeError: a key is missing, unknown or of another shape.
    """
    state = {name: torch.from_numpy(array.copy()) for name, array in weights.items()}
    counters = {name: torch.zeros((), dtype=torch.int64) for name in module.state_dict() if name.endswith(_COUNTER)}
    module.load_state_dict(state | counters, strict=True, assign=True)


def export_weights(module: torch.nn.Module) -> Weights:
    """The module's state in canonical form, float32 on the host."""
    return {
        name: np.array(tensor.detach().float().cpu().contiguous().numpy())
        for name, tensor in module.state_dict().items()
        if not name.endswith(_COUNTER)
    }


def count_macs(model: str) -> float:
    """Multiply-accumulates of one sample's forward pass, counted operator by operator on the meta device.

    Counts convolutions, matrix products and attention (half of `FlopCounterMode`'s operations), nothing element-wise.
    """
    from torch.utils.flop_counter import FlopCounterMode

    row = CATALOG[model]
    module = network(row, row.sizes()).eval()
    height_width_channels = row.input_shape
    shape = (height_width_channels[-1], *height_width_channels[:-1]) if len(row.input_shape) == 3 else row.input_shape
    with FlopCounterMode(display=False) as counter, torch.inference_mode():
        module(torch.empty((1, *shape), device="meta"))
    return counter.get_total_flops() / 2
