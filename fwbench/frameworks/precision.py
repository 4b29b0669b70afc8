"""The precision probe: errors of a matrix product, a convolution and attention show which arithmetic is in force.

A framework's settings promise an arithmetic; only a result shows it. Rounding both factors to a mantissa of m bits
leaves a relative error near 2**-(m + 1), so IEEE float64 (52 bits) and float32 (23 bits), TF32 (10 bits) and bfloat16
(7 bits) lie decades apart, and the bands below leave room for the order of summation and for fast convolution
algorithms (Winograd).
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fwbench.record.workload import keeps

# Lower and upper bound of the result's relative L2 error. Rounding the factors gives about 4e-16, 2e-7, 3e-4 and 2e-3.
# Truncating them, as some kernels do for tensor cores, gives 8e-4 for TF32 and 6e-3 for bfloat16.
BANDS: Mapping[str, tuple[float, float]] = {
    "fp64": (0.0, 1e-10),
    "fp32": (1e-9, 3e-5),
    "tf32": (1e-4, 1e-3),
    "bf16": (1e-3, 1e-2),
}

Array = NDArray[np.float32]


class Operands(NamedTuple):
    """The operands of the probe, in float32.

    Attributes:
        left, right: matrices of 256 x 256.
        images: 8 x 16 x 16 x 64, batch x height x width x channels.
        kernel: 64 x 64 x 3 x 3, out x in x height x width; applied with stride 1 and one pixel of zero padding.
        query, key, value: 2 x 4 x 197 x 64, batch x heads x tokens x width. A head's tokens and width are ViT-B/16's,
            as PyTorch chooses its attention kernel by them.
    """

    left: Array
    right: Array
    images: Array
    kernel: Array
    query: Array
    key: Array
    value: Array


class Products(NamedTuple):
    """A lane's results for the operands, on the host.

    Attributes:
        matmul: left @ right.
        convolution: batch x height x width x channels.
        attention: softmax(query @ key' / 8) @ value; None for a lane whose attention is not probed.
    """

    matmul: NDArray[Any]
    convolution: NDArray[Any]
    attention: NDArray[Any] | None = None


# Divisors of an error before it is classified: attention is two products, one after the other.
_PRODUCTS = {"attention": 2.0}


def operands() -> Operands:
    """The probe's operands: random numbers, the same in every lane."""
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> Array:
        return rng.standard_normal(shape, dtype=np.float32)

    products = normal(256, 256), normal(256, 256), normal(8, 16, 16, 64), normal(64, 64, 3, 3)
    return Operands(*products, *(normal(2, 4, 197, 64) for _ in range(3)))


def reference(given: Operands, dtype: type = np.float64) -> Products:
    """The operands' products, computed in float64 and rounded to a number format."""
    images = np.pad(given.images.astype(np.float64), ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(images, (3, 3), axis=(1, 2))
    convolution = np.einsum("bhwcij,ocij->bhwo", windows, given.kernel.astype(np.float64), optimize=True)
    matmul = given.left.astype(np.float64) @ given.right.astype(np.float64)
    query, key, value = (array.astype(np.float64) for array in (given.query, given.key, given.value))
    weights = np.exp(query @ key.swapaxes(-1, -2) / math.sqrt(query.shape[-1]))
    attention = weights / weights.sum(-1, keepdims=True) @ value
    return Products(*(array.astype(dtype) for array in (matmul, convolution, attention)))


def check(asked: str, given: Operands, products: Products) -> dict[str, dict[str, Any]]:
    """Check the probe's results; return `error` and `arithmetic` of each product for the record.

    Raises:
        ArithmeticError: another arithmetic is in force than the one asked for.
    """
    result: dict[str, dict[str, Any]] = {}
    for name, exact, computed in zip(Products._fields, reference(given), products, strict=True):
        if exact is not None and computed is not None:
            error = float(np.linalg.norm(computed.astype(np.float64) - exact) / np.linalg.norm(exact))
            share = error / _PRODUCTS.get(name, 1.0)
            arithmetic = next((kind for kind, (low, high) in BANDS.items() if low <= share <= high), "unknown")
            result[name] = {"error": error, "arithmetic": arithmetic}
    for name, verdict in result.items():
        if not keeps(name, verdict["arithmetic"], asked):
            raise ArithmeticError(
                f"precision {asked} was asked for, but the {name} runs in {verdict['arithmetic']} arithmetic "
                f"(relative error {verdict['error']:.1e}): its time would carry the wrong label"
            )
    return result
