"""Maps a network's own weights to the canonical ones and back: by renaming, or by a function of the user's."""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from fwbench.frameworks.faults import faults
from fwbench.models import Model
from fwbench.models.importing import ModelError, load
from fwbench.models.weights import Shape

# Canonical names by Flax's; those of the second line are for running statistics alone.
_RENAMED = {"kernel": "weight", "scale": "weight", "embedding": "weight"}
_STATISTICS = {"mean": "running_mean", "var": "running_var"}
_PROJECTIONS = ("query", "key", "value")

# An element's number is stored in two digits of this base, so that float32 holds each exactly.
_BASE = 1 << 20


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


def layout(model: Model, tensors: Sequence[Leaf]) -> "Renamed | Rearranged":
    """The layout that a model describes for its network in JAX.

    A layout maps own weights, a list in the network's order, to canonical weights by name, and back. `shapes` holds the
    canonical shapes by name. Both directions only move elements of arrays, which are NumPy's or JAX's; JAX can
    differentiate the moves of its own.

    Raises:
        ModelError: two weights get one name, or the user's function is no rearrangement of all weights.
    """
    described_here = model.weights if model.reference != "jax" else None
    if isinstance(described_here, str):
        return Rearranged(model, described_here, tensors)
    return Renamed(model, described_here or {}, tensors)


def torch_layout(weights: Mapping[str, Any]) -> dict[str, Any]:
    """Flax's weights in canonical form, as they are without a mapping of the user's own.

    Args:
        weights: NumPy arrays by their paths, joined by dots, as a user's function of the weights gets them.
    """
    statistics = {name for name in weights if name.rpartition(".")[2] in _STATISTICS}
    leaves = [
        Leaf(name, array.shape, "statistic" if name in statistics else "parameter") for name, array in weights.items()
    ]
    return Renamed(None, {}, leaves).canonical(list(weights.values()))


class Renamed:
    """Names by rules, and Flax's kernels in PyTorch's layout: outputs and inputs before the window.

    `kernel`, `scale` and `embedding` become `weight`; statistics `mean` and `var` become `running_mean` and
    `running_var`. Flax's attention keeps heads as an axis, which is joined with the features of a head. Then come the
    model's regular expressions, every one of them, in order.
    """

    def __init__(self, model: Model | None, patterns: Mapping[str, str], tensors: Sequence[Leaf]) -> None:
        self._tensors: dict[str, tuple[Leaf, tuple[int, ...]]] = {}
        self.shapes: dict[str, Shape] = {}
        names = {tensor.name for tensor in tensors}
        for tensor in tensors:
            path, dot, leaf = tensor.name.rpartition(".")
            renamed = _STATISTICS if tensor.kind == "statistic" else _RENAMED
            name = f"{path}{dot}{renamed.get(leaf, leaf)}"
            for pattern, replacement in patterns.items():
                name = re.sub(pattern, replacement, name)
            if name in self._tensors:
                raise ModelError(
                    f"{model.name if model else 'the model'} names two weights of its network in JAX {name!r}: "
                    f"{self._tensors[name][0].name!r} and {tensor.name!r}"
                )
            axes = tuple(range(len(tensor.shape)))
            shape = tensor.canonical
            if part := _part_of_attention(tensor, names):
                axes, shape = part
            elif leaf == "kernel" and len(axes) > 1:
                axes = (*axes[:-3:-1], *axes[:-2])
            self._tensors[name] = tensor, axes
            self.shapes[name] = shape or tuple(tensor.shape[axis] for axis in axes)

    def own(self, weights: Mapping[str, Any]) -> Iterator[Any]:
        """Turn canonical weights, with the names and shapes in `shapes`, into the network's own, one by one."""
        for name, (tensor, axes) in self._tensors.items():
            yield weights[name].reshape([tensor.shape[axis] for axis in axes]).transpose(np.argsort(axes))

    def canonical(self, own: Sequence[Any]) -> dict[str, Any]:
        """The inverse of `own`."""
        return {
            name: array.transpose(axes).reshape(self.shapes[name])
            for array, (name, (_, axes)) in zip(own, self._tensors.items(), strict=True)
        }


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


class Rearranged:
    """Names and layouts by the user's function. Its inverse follows from the place to which it moves each element."""

    def __init__(self, model: Model, path: str, tensors: Sequence[Leaf]) -> None:
        self._path = path
        function = load(path)
        if not callable(function):
            raise ModelError(f"{path!r}, the weights of {model.name}, is an object of type {type(function).__name__}")
        own = {tensor.name: tensor.shape for tensor in tensors}
        origins = self._origins(function, own)
        self.shapes = {name: origin.shape for name, origin in origins.items()}
        own_size, size = (sum(map(math.prod, sizes.values())) for sizes in (own, self.shapes))
        places = np.full(own_size, -1, np.int64)
        places[np.concatenate([np.empty(0, np.int64), *map(np.ravel, origins.values())])] = np.arange(size)
        start = 0
        self._own = []
        for name, shape in own.items():
            indices = places[start : start + math.prod(shape)]
            if lost := int((indices < 0).sum()):
                raise ModelError(f"{path!r} leaves out {lost} of the {indices.size} numbers of {name!r} {shape}")
            start += indices.size
            self._own.append(_Gather(indices.reshape(shape), self.shapes))
        self._canonical = {name: _Gather(origin, own) for name, origin in origins.items()}
        self._names = list(own)

    def own(self, weights: Mapping[str, Any]) -> Iterator[Any]:
        return (gather(weights) for gather in self._own)

    def canonical(self, own: Sequence[Any]) -> dict[str, Any]:
        given = dict(zip(self._names, own, strict=True))
        return {name: gather(given) for name, gather in self._canonical.items()}

    def _origins(self, function: Callable[..., Any], own: Mapping[str, Shape]) -> dict[str, NDArray[np.int64]]:
        """For every canonical element, its place among all own weights laid end to end."""
        count = sum(map(math.prod, own.values()))
        # Numbered from 1, so that zeros that the function adds have no origin.
        numbers = np.arange(1, count + 1)
        low, high = (self._call(function, own, digits) for digits in (numbers % _BASE, numbers // _BASE))
        values = np.random.default_rng(0).standard_normal(count, np.float32)
        moved = self._call(function, own, values)
        origins = {}
        for name, array in moved.items():
            alike = low[name].shape == high[name].shape == array.shape
            told = high[name].astype(np.float64) * _BASE + low[name] - 1 if alike else np.array(-1.0)
            origins[name] = told.astype(np.int64)
            in_range = bool(((told >= 0) & (told < count)).all()) and np.array_equal(told, origins[name])
            if not in_range or not np.array_equal(values[origins[name]], array):
                raise ModelError(
                    f"{self._path!r} computes {name!r} instead of rearranging weights: it may transpose, reshape, "
                    "split, concatenate and rename them"
                )
        return origins

    def _call(
        self, function: Callable[..., Any], own: Mapping[str, Shape], flat: NDArray[Any]
    ) -> dict[str, NDArray[Any]]:
        ends = np.cumsum([math.prod(shape) for shape in own.values()])
        parts = np.split(flat.astype(np.float32), ends[:-1]) if own else []
        # A function written with JAX must run now, even while a program is traced.
        with jax.ensure_compile_time_eval(), faults(repr(self._path)):
            made = function({name: part.reshape(own[name]) for name, part in zip(own, parts, strict=True)})
            if isinstance(made, Mapping) and all(isinstance(name, str) for name in made):
                return {name: np.asarray(array) for name, array in made.items()}
        raise ModelError(f"{self._path!r} returned an object of type {type(made).__name__}, not weights by their names")


class _Gather:
    """Makes one array from elements of other arrays, and reads only the arrays that it needs."""

    def __init__(self, places: NDArray[np.int64], sources: Mapping[str, Shape]) -> None:
        """
        Args:
            places: place of each element among those of all sources laid end to end.
        """
        sizes = [math.prod(shape) for shape in sources.values()]
        ends = np.cumsum(sizes)
        source = np.searchsorted(ends, places, side="right")
        used = np.unique(source)
        self._used = [list(sources)[index] for index in used]
        # The difference between a place among all sources and the place among those used.
        skipped = np.zeros(len(sizes), np.int64)
        skipped[used] = (ends - sizes)[used] - np.cumsum([0, *(sizes[index] for index in used)])[:-1]
        self._places = places - skipped[source] if places.size else places

    def __call__(self, sources: Mapping[str, Any]) -> Any:
        flat = [sources[name].reshape(-1) for name in self._used]
        numpy: Any = np if all(isinstance(part, np.ndarray) for part in flat) else jnp
        return numpy.concatenate(flat)[self._places] if flat else numpy.zeros(self._places.shape)
