"""Which Flax module a model of the catalog is, and how canonical weights enter and leave it.

Attributes are named after torchvision's paths, so one rule maps a state's path to its canonical name; kernels are
transposed from Flax's layout (inputs before outputs) to torch's (outputs first).
"""

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
from flax import nnx
from numpy.typing import NDArray

from fwbench.models import Model
from fwbench.models.importing import arguments, load
from fwbench.models.weights import Shape, Weights

_LEAF = {"kernel": "weight", "scale": "weight", "mean": "running_mean", "var": "running_var"}
_TRANSPOSED = ("kernel", "in_proj_weight")

Path = tuple[Any, ...]


def network(model: Model, sizes: Mapping[str, int]) -> nnx.Module:
    """The model's module with abstract weights: shapes without storage, in training mode.

    Args:
        sizes: of the model's axes.

    Raises:
        KeyError: the model has no network in JAX.
        ModelError: its import path does not lead to one.
    """
    return nnx.merge(*_split(model.networks["jax"], tuple(sizes.items())), copy=True)


def shapes(module: nnx.Module) -> dict[str, Shape]:
    """Canonical name to canonical shape of every tensor of the module's state."""
    return {_name(path): _canonical_shape(path, leaf.shape) for path, leaf in nnx.to_flat_state(nnx.state(module))}


def load_weights(module: nnx.Module, weights: Mapping[str, NDArray[Any]]) -> None:
    """Give the module the canonical weights, each key used exactly once.

    Raises:
        ValueError: a key is missing, unknown or of another shape; the sentence names it.
    """
    state = nnx.state(module)
    left = dict(weights)
    for path, leaf in nnx.to_flat_state(state):
        name = _name(path)
        if name not in left:
            raise ValueError(f"the weights lack {name!r}")
        array = left.pop(name)
        if array.shape != _canonical_shape(path, leaf.shape):
            raise ValueError(f"{name!r} has shape {array.shape}, expected {_canonical_shape(path, leaf.shape)}")
        leaf.set_value(_to_flax(path, array))
    if left:
        raise ValueError(f"the weights hold unknown keys: {', '.join(sorted(left)[:5])}")
    nnx.update(module, state)


def export_weights(module: nnx.Module) -> Weights:
    """The module's state in canonical form, float32 on the host."""
    return {
        _name(path): np.ascontiguousarray(_from_flax(path, np.asarray(leaf[...], dtype=np.float32)))
        for path, leaf in nnx.to_flat_state(nnx.state(module))
    }


@functools.cache
def _split(path: str, sizes: tuple[tuple[str, int], ...]) -> tuple[nnx.GraphDef[nnx.Module], nnx.State]:
    """The module taken apart, to be put together as often as asked for: Flax takes most of a second to build one."""
    builder = load(path)
    return nnx.split(nnx.eval_shape(lambda: builder(nnx.Rngs(0), **arguments(builder, dict(sizes)))))


def _name(path: Path) -> str:
    return ".".join(str(part) for part in (*path[:-1], _LEAF.get(path[-1], path[-1])))


def _to_flax(path: Path, array: NDArray[Any]) -> NDArray[Any]:
    if path[-1] not in _TRANSPOSED:
        return array
    return array.transpose(2, 3, 1, 0) if array.ndim == 4 else array.T


def _from_flax(path: Path, array: NDArray[Any]) -> NDArray[Any]:
    if path[-1] not in _TRANSPOSED:
        return array
    return array.transpose(3, 2, 0, 1) if array.ndim == 4 else array.T


def _canonical_shape(path: Path, shape: Shape) -> Shape:
    return _from_flax(path, np.empty(shape, dtype=np.bool_)).shape
