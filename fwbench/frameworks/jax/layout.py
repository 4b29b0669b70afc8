"""The arrays of a network's state in JAX, and their canonical names and layouts."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Literal

from fwbench.frameworks.layouts import Own, Renamed, outputs_first
from fwbench.models.weights import Shape

# Canonical names by Flax's; those of the second line are for running statistics alone.
_RENAMED = {"kernel": "weight", "scale": "weight", "embedding": "weight"}
_STATISTICS = {"mean": "running_mean", "var": "running_var"}
_PROJECTIONS = ("query", "key", "value")

Kind = Literal["parameter", "statistic", "buffer", "random"]


@dataclass(frozen=True)
class Leaf:
    """One array of a network's state.

    Attributes:
        name: its own path, joined by dots.
        kind: `parameter` is trained, and `statistic` runs along with training: these two are the canonical weights.
            `buffer` is any other array that the network brings along, `random` the state of its random streams.
        canonical: shape in PyTorch's layout, if it is not `shape` and does not follow from the name.
    """

    name: str
    shape: Shape
    kind: Kind
    canonical: Shape | None = None

    @property
    def is_weight(self) -> bool:
        """True for a canonical weight."""
        return self.kind in ("parameter", "statistic")


def described(tensors: Sequence[Leaf]) -> list[Own]:
    """Weights under canonical names, with Flax's kernels in PyTorch's layout: outputs and inputs before the window.

    `kernel`, `scale` and `embedding` become `weight`; statistics `mean` and `var` become `running_mean` and
    `running_var`. Flax's attention keeps heads as an axis, which is joined with the features of a head.
    """
    names, weights = {tensor.name for tensor in tensors}, []
    for tensor in tensors:
        path, dot, leaf = tensor.name.rpartition(".")
        renamed = _STATISTICS if tensor.kind == "statistic" else _RENAMED
        axes, shape = tuple(range(len(tensor.shape))), tensor.canonical
        if part := _part_of_attention(tensor, names):
            axes, shape = part
        elif leaf == "kernel" and len(axes) > 1:
            axes = outputs_first(axes)
        weights.append(Own(tensor.name, f"{path}{dot}{renamed.get(leaf, leaf)}", tensor.shape, axes, shape))
    return weights


def torch_layout(weights: Mapping[str, Any]) -> dict[str, Any]:
    """Flax's weights in canonical form, as they are without a mapping of the user's own.

    Args:
        weights: NumPy arrays by their paths, joined by dots, as a user's function of the weights gets them.
    """
    statistics = {name for name in weights if name.rpartition(".")[2] in _STATISTICS}
    leaves = [
        Leaf(name, array.shape, "statistic" if name in statistics else "parameter") for name, array in weights.items()
    ]
    return Renamed("the model", "JAX", {}, described(leaves)).canonical(list(weights.values()))


def _part_of_attention(tensor: Leaf, names: Set[str]) -> tuple[tuple[int, ...], Shape] | None:
    """The order of axes, and the canonical shape, of a weight that keeps heads as an axis; None for all others.

    Flax's attention has the kernels `query`, `key` and `value` as (inputs, heads, features), their biases as (heads,
    features), and `out` as (heads, features, outputs).
    """
    path, _, leaf = tensor.name.rpartition(".")
    module, _, part = path.rpartition(".")
    prefix = f"{module}." if module else ""
    if not all(f"{prefix}{each}.kernel" in names for each in (*_PROJECTIONS, "out")):
        return None
    shape = tensor.shape
    if part in _PROJECTIONS and (leaf, len(shape)) == ("kernel", 3):
        return (1, 2, 0), (shape[1] * shape[2], shape[0])
    if part in _PROJECTIONS and (leaf, len(shape)) == ("bias", 2):
        return (0, 1), (shape[0] * shape[1],)
    if part == "out" and (leaf, len(shape)) == ("kernel", 3):
        return (2, 0, 1), (shape[2], shape[0] * shape[1])
    return None
