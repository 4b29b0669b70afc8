"""The canonical weights: one seeded NumPy draw a model, from which every framework starts.

Canonical form is a dict of float32 arrays under torchvision's state-dict names and layouts (convolutions are
out x in/groups x height x width, linear weights out x in), without the `num_batches_tracked` counters, which no
network's arithmetic reads.

A tensor is drawn from its name and shape alone, by a generator seeded with (seed, model, name), so the draw does not
depend on the framework that asks, on the order of asking, or on the machine. The scheme is torchvision's, with two
changes that keep a comparison of two networks from being vacuous:

* No tensor is constant. Where torchvision sets ones (normalisation scales) we draw 1 + 0.1 N(0, 1); where it sets
  zeros (biases, the class token, ViT's head) we draw 0.02 N(0, 1). A port that drops or swaps one is then seen.
* Running statistics of batch normalisation are calibrated rather than 0 and 1: `batch_norm_scale.json` holds the
  second moment of each layer's input on a fixed batch, made by `tools/calibrate.py` in fwbench's repository. Running
  variances are drawn around it and means within a tenth of its root, so activations keep their scale through the depth
  (and no subnormal numbers slow a CPU down), whatever the seed.

A proof compares networks at other weights too.
"""

import functools
import hashlib
import json
import math
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fwbench.extensions import needed
from fwbench.models.model import Model
from fwbench.threads import on_all_cpus

Shape = tuple[int, ...]
Weights = dict[str, NDArray[np.float32]]


class Lazy(Mapping[str, NDArray[Any]]):
    """Arrays that are made by name when they are read: to allocate all of them at once takes a second."""

    def __init__(self, names: Collection[str], make: Callable[[str], NDArray[Any]]) -> None:
        self._names, self._make = names, make

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._make(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def draw(
    model: Model, shapes: Mapping[str, Shape], seed: int, batch_norm_scale: Mapping[str, float] | None = None
) -> Weights:
    """Draw the canonical weights by the model's rules: a float32 array for each canonical name and shape.

    Args:
        seed: any non-negative integer.
        batch_norm_scale: second moment of each batch normalisation's input by layer; default: the calibrated ones.
    """
    scale = _calibrated().get(model.name, {}) if batch_norm_scale is None else batch_norm_scale
    # Threads keep the memory that they allocate, so the arrays are allocated here.
    weights = {name: np.empty(shape, np.float32) for name, shape in shapes.items()}
    on_all_cpus(lambda name: _draw_into(weights[name], model, name, seed, scale), weights)
    return weights


def canonical(source: str, model: Model, shapes: Mapping[str, Shape], seed: int, initial: str | None = None) -> Weights:
    """The weights from which every framework starts.

    Args:
        source: `drawn`, or `pretrained` for torchvision's published ones.
        initial: a file of NumPy's with the values that the reference's constructor sets, which then take the place of
            drawn ones. None: `draw`, whose rules are torchvision's for the suite's own models.

    Raises:
        FileNotFoundError: the pretrained weights are not on this machine; the sentence says how to get them.
    """
    if source == "pretrained":
        weights: Weights = needed("pretrained", "weights=pretrained").load(model)
        return weights
    if initial is None:
        return draw(model, shapes, seed)
    with np.load(initial) as stored:
        values = {name: stored[name] for name in shapes if name in stored and stored[name].shape == tuple(shapes[name])}
    # Another framework's network may have other names; the digest of all weights then shows it.
    others = draw(model, {name: shape for name, shape in shapes.items() if name not in values}, seed)
    return {
        name: _without_constants(model, name, values[name], seed) if name in values else others[name] for name in shapes
    }


def _without_constants(model: Model, name: str, values: NDArray[np.float32], seed: int) -> NDArray[np.float32]:
    """Initial values in which no tensor is constant, so that no part of the network is without effect.

    Zeros become 0.02 N(0, 1); another constant c becomes c (1 + 0.1 N(0, 1)), and a running variance c (1 +- 0.2).
    """
    values = values.astype(np.float32)
    if not values.size or np.ptp(values):
        return values
    rng = np.random.default_rng([seed, zlib.crc32(f"{model.name}/{name}".encode())])
    constant = values.flat[0]
    if name.endswith("running_var"):
        return constant * (1 + np.float32(0.4) * (rng.random(values.shape, dtype=np.float32) - np.float32(0.5)))
    noise = rng.standard_normal(values.shape, dtype=np.float32)
    return constant * (1 + np.float32(0.1) * noise) if constant else np.float32(0.02) * noise


def is_statistic(name: str) -> bool:
    """True if a canonical name is a running statistic: state, but no parameter."""
    return name.endswith(("running_mean", "running_var"))


def digest(weights: Mapping[str, NDArray[np.float32]]) -> str:
    """A short digest of names, shapes and bits, the same on every machine and for every order of keys."""
    sha = hashlib.sha256()
    for name in sorted(weights):
        array = np.ascontiguousarray(weights[name], dtype="<f4")
        sha.update(f"{name}{array.shape}".encode())
        sha.update(array.tobytes())
    return sha.hexdigest()[:16]


def _draw_into(
    array: NDArray[np.float32], model: Model, name: str, seed: int, batch_norm_scale: Mapping[str, float]
) -> None:
    rng = np.random.default_rng([seed, zlib.crc32(f"{model.name}/{name}".encode())])
    layer, _, leaf = name.rpartition(".")
    shape = array.shape

    def normal(mean: float, std: float) -> None:
        rng.standard_normal(out=array, dtype=np.float32)
        array[...] *= np.float32(std)
        array[...] += np.float32(mean)

    def uniform(bound: float) -> None:
        rng.random(out=array, dtype=np.float32)
        array[...] -= np.float32(0.5)
        array[...] *= np.float32(2 * bound)

    if leaf == "running_mean":
        normal(0.0, 0.1 * math.sqrt(batch_norm_scale.get(layer, 1.0)))
    elif leaf == "running_var":
        uniform(0.2)
        array[...] += np.float32(1)
        array[...] *= np.float32(batch_norm_scale.get(layer, 1.0))
    elif len(shape) == 4 and model.conv == "kaiming_normal_fan_out":
        # He et al., arXiv:1502.01852; torchvision's fan_out counts no groups.
        normal(0.0, math.sqrt(2 / (shape[0] * shape[2] * shape[3])))
    elif len(shape) == 4:
        # Truncated at two standard deviations, as torchvision's truncation at +-2 hardly ever binds.
        normal(0.0, 1.0)
        np.clip(array, -2, 2, out=array)
        array[...] *= np.float32(math.sqrt(1 / (shape[1] * shape[2] * shape[3])))
    elif len(shape) == 2 and model.linear == "normal_0.01":
        normal(0.0, 0.01)
    elif len(shape) == 2:
        out, fan_in = shape
        bounds = {
            "uniform_fan_in": 1 / math.sqrt(fan_in),
            "uniform_fan_out": 1 / math.sqrt(out),
            "xavier_uniform": math.sqrt(6 / (fan_in + out)),  # Glorot and Bengio, AISTATS 2010
        }
        uniform(bounds[model.linear])
    elif len(shape) == 1 and leaf == "weight":
        normal(1.0, 0.1)
    else:
        normal(0.0, 0.02)


@functools.cache
def _calibrated() -> dict[str, dict[str, float]]:
    table: dict[str, dict[str, float]] = json.loads(
        files("fwbench.models").joinpath("batch_norm_scale.json").read_text(encoding="utf-8")
    )
    return table
