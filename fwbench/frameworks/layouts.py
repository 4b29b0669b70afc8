"""Maps a network's own weights to the canonical ones and back: by renaming, or by a function of the user's."""

import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fwbench.frameworks.faults import faults
from fwbench.models import Model
from fwbench.models.importing import ModelError, load
from fwbench.models.weights import Shape

# An element's number is stored in two digits of this base, so that float32 holds each exactly.
_BASE = 1 << 20


@dataclass(frozen=True)
class Own:
    """One of a network's own weights, and its canonical form by the framework's rules.

    Attributes:
        path: its own name.
        name: its canonical name, before the model's regular expressions.
        shape: its own shape.
        axes: its own axes in the canonical order.
        canonical: the canonical shape, if it is not that of `axes`.
    """

    path: str
    name: str
    shape: Shape
    axes: tuple[int, ...]
    canonical: Shape | None = None


def outputs_first(axes: tuple[int, ...]) -> tuple[int, ...]:
    """PyTorch's order of the axes of a kernel that ends in inputs and outputs: these two before the window."""
    return (*axes[:-3:-1], *axes[:-2])


def layout(model: Model, framework: str, title: str, own: Sequence[Own]) -> "Renamed | Rearranged":
    """The layout that a model describes for its network in a framework, whose name in sentences is `title`.

    A layout maps own weights, a list in the network's order, to canonical weights by name, and back. `shapes` holds the
    canonical shapes by name; `names` holds, for each of the own weights, the canonical ones that have numbers of it.
    Both directions only move elements of arrays, which are NumPy's or JAX's; JAX can differentiate the moves of its
    own.

    Raises:
        ModelError: two weights get one name, or the user's function is no rearrangement of all weights.
    """
    described = model.weights if framework != model.reference else None
    if isinstance(described, str) and own:
        return Rearranged(model, described, {weight.path: weight.shape for weight in own})
    return Renamed(model.name, title, described if isinstance(described, dict) else {}, own)


class Renamed:
    """Canonical weights that are the own ones under other names, with their axes in another order.

    Names are those of `Own.name`, to which the model's regular expressions are applied, every one of them, in order.
    """

    def __init__(self, owner: str, title: str, patterns: Mapping[str, str], own: Sequence[Own]) -> None:
        self._own: dict[str, Own] = {}
        for weight in own:
            name = weight.name
            for pattern, replacement in patterns.items():
                name = re.sub(pattern, replacement, name)
            if name in self._own:
                raise ModelError(
                    f"{owner} names two weights of its network in {title} {name!r}: {self._own[name].path!r} and "
                    f"{weight.path!r}"
                )
            self._own[name] = weight
        self.shapes: dict[str, Shape] = {
            name: of.canonical or tuple(of.shape[axis] for axis in of.axes) for name, of in self._own.items()
        }
        self.names = [frozenset({name}) for name in self._own]

    def own(self, weights: Mapping[str, Any]) -> Iterator[Any]:
        """Turn canonical weights, with the names and shapes in `shapes`, into the network's own, one by one."""
        for name, of in self._own.items():
            yield weights[name].reshape([of.shape[axis] for axis in of.axes]).transpose(np.argsort(of.axes))

    def canonical(self, own: Sequence[Any]) -> dict[str, Any]:
        """The inverse of `own`."""
        return {
            name: array.transpose(of.axes).reshape(self.shapes[name])
            for array, (name, of) in zip(own, self._own.items(), strict=True)
        }


class Rearranged:
    """Names and layouts by the user's function. Its inverse follows from the place to which it moves each element."""

    def __init__(self, model: Model, path: str, own: Mapping[str, Shape]) -> None:
        self._path = path
        function = load(path)
        if not callable(function):
            raise ModelError(f"{path!r}, the weights of {model.name}, is an object of type {type(function).__name__}")
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
        self._paths = list(own)
        used = {name: frozenset(gather.used) for name, gather in self._canonical.items()}
        self.names = [frozenset(name for name, paths in used.items() if path in paths) for path in own]

    def own(self, weights: Mapping[str, Any]) -> Iterator[Any]:
        return (gather(weights) for gather in self._own)

    def canonical(self, own: Sequence[Any]) -> dict[str, Any]:
        given = dict(zip(self._paths, own, strict=True))
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
        parts = np.split(flat.astype(np.float32), ends[:-1])
        jax: Any = sys.modules.get("jax")
        # A function written with JAX must run now, even while a program is traced.
        with jax.ensure_compile_time_eval() if jax else nullcontext(), faults(repr(self._path)):
            made = function({name: part.reshape(own[name]) for name, part in zip(own, parts, strict=True)})
            if isinstance(made, Mapping) and all(isinstance(name, str) for name in made):
                return {name: np.asarray(array) for name, array in made.items()}
        raise ModelError(f"{self._path!r} returned an object of type {type(made).__name__}, not weights by their names")


class _Gather:
    """Makes one array from elements of other arrays, and reads only the arrays that it needs: those in `used`."""

    def __init__(self, places: NDArray[np.int64], sources: Mapping[str, Shape]) -> None:
        """
        Args:
            places: place of each element among those of all sources laid end to end.
        """
        sizes = [math.prod(shape) for shape in sources.values()]
        ends = np.cumsum(sizes)
        source = np.searchsorted(ends, places, side="right")
        used = np.unique(source)
        self.used = [list(sources)[index] for index in used]
        # The difference between a place among all sources and the place among those used.
        skipped = np.zeros(len(sizes), np.int64)
        skipped[used] = (ends - sizes)[used] - np.cumsum([0, *(sizes[index] for index in used)])[:-1]
        self._places = places - skipped[source] if places.size else places

    def __call__(self, sources: Mapping[str, Any]) -> Any:
        flat = [sources[name].reshape(-1) for name in self.used]
        numpy: Any = np if all(isinstance(part, np.ndarray) for part in flat) else sys.modules["jax"].numpy
        return numpy.concatenate(flat)[self._places] if flat else numpy.zeros(self._places.shape)
