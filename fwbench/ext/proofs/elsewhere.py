"""Weights far from those that every framework starts from, at which a proof compares networks, too."""

import math
import zlib
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fwbench.models.model import Model
from fwbench.models.weights import Shape, Weights


def draw_unit(model: Model, shapes: Mapping[str, Shape], seed: int) -> Weights:
    """Draw every weight at unit scale, far from where a network starts.

    Biases and normalisations spread wide, so that activations reach values that a clip or a branch would change.

    Returns:
        The float32 array of each name: standard normal; of one axis 1 + N(0, 1) for scales (`weight`), 4 N(0, 1) for
        all else, as biases are; between 0.1 and 50, evenly in their logarithm, for running variances.
    """
    weights = {}
    for name, shape in shapes.items():
        rng = np.random.default_rng([seed, zlib.crc32(f"{model.name}/{name}/unit".encode())])
        leaf = name.rpartition(".")[2]
        if leaf == "running_var":
            weights[name] = np.exp(rng.uniform(math.log(0.1), math.log(50), shape)).astype(np.float32)
            continue
        normal = rng.standard_normal(shape, dtype=np.float32)
        if len(shape) == 1:
            normal = 1 + normal if leaf == "weight" else 4 * normal
        weights[name] = normal
    return weights


def perturbed(weights: Mapping[str, NDArray[np.float32]], seed: int) -> Weights:
    """Move every weight by about the size of its neighbours, so that no weight stays at an initial 0 or 1.

    Returns:
        The float32 array of each name: with N(0, 1) added if it has one axis, and N(0, 1 / n) if a sum over n
        of its numbers makes an output, n being the product of all axes but the first; running variances are multiplied
        by exp(N(0, 1)).
    """
    moved = {}
    for name, array in weights.items():
        normal = np.random.default_rng([seed, zlib.crc32(name.encode())]).standard_normal(array.shape, dtype=np.float32)
        if name.endswith("running_var"):
            moved[name] = array * np.exp(normal)
        else:
            moved[name] = array + normal / np.float32(math.sqrt(math.prod(array.shape[1:])))
    return moved
