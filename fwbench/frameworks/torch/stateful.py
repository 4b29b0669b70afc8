"""The state of a network in PyTorch."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils import _pytree as pytree

from fwbench.models import Model
from fwbench.models.importing import ModelError


def placed_state(model: Model, state: Any, device: torch.device, dtype: torch.dtype) -> Any:
    """A state on the device, its floating-point arrays in this number format.

    Raises:
        ModelError: the state holds an object that is neither an array nor a number.
    """

    def placed(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            return leaf.to(device, dtype if leaf.is_floating_point() else None)
        if leaf is None or isinstance(leaf, int | float):
            return leaf
        raise ModelError(
            f"the state of {model.name} in PyTorch holds an object of type {type(leaf).__name__}: make it of tensors, "
            "numbers, and lists, tuples or dicts of these"
        )

    return pytree.tree_map(placed, state)


def named_leaves(state: Any) -> Iterator[tuple[str, NDArray[Any]]]:
    """The arrays and numbers of a state on the host, each with its place in the state: `layers.0.1`."""
    for path, leaf in pytree.tree_leaves_with_path(state):
        name = ".".join(str(getattr(key, "key", getattr(key, "idx", key))) for key in path)
        yield name, leaf.detach().cpu().numpy().copy() if isinstance(leaf, Tensor) else np.array(leaf)
