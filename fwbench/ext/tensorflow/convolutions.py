"""Convolutions of images, NHWC: TensorFlow's own, or in forms for which XLA's CPU backend makes fast code.

XLA's CPU backend computes a convolution with one group per channel (depthwise) as a dense one with a mask, or by a
scalar loop. Written as a sum of shifted products, one for each tap of the kernel, it becomes one vectorised loop; and a
1x1 convolution is a matrix product. `fwbench.frameworks.jax.convolutions` has the same forms for JAX, and
docs/xla-cpu.md the figures.
"""

import itertools
from typing import Any, Literal

from fwbench.ext.tensorflow.imported import tf

Tensor = Any
Pads = tuple[tuple[int, int], tuple[int, int]]
Form = Literal["own", "products"]

_form: Form = "own"
_used: set[str] = set()


def convolution(x: Tensor, kernel: Tensor, stride: int, pads: Pads, *, depthwise: bool = False) -> Tensor:
    """A convolution with one stride for height and width.

    Args:
        x: of shape (batch, height, width, channels).
        kernel: of shape (rows, columns, channels, features), or (rows, columns, channels, 1) if depthwise.
        pads: zeros before and after, in height and in width.
    """
    if _form == "products" and depthwise:
        _used.add("depthwise as shifted products")
        return depthwise_products(x, kernel, stride, pads)
    if _form == "products" and tuple(kernel.shape[:2]) == (1, 1) and not any(map(any, pads)):
        _used.add("1x1 as matrix products")
        return pointwise_product(x, kernel, stride)
    convolve = tf.nn.depthwise_conv2d if depthwise else tf.nn.conv2d
    padding = ((0, 0), *pads, (0, 0)) if any(map(any, pads)) else "VALID"
    return convolve(x, kernel, (1, stride, stride, 1), padding)


def choose(form: Form) -> None:
    """Choose the convolutions that are traced from now on."""
    global _form
    _form = form
    _used.clear()


def used() -> str:
    """The forms traced since the choice, for the record."""
    return ", ".join(sorted(_used, reverse=True)) or "TensorFlow's own"


def pointwise_product(x: Tensor, kernel: Tensor, stride: int) -> Tensor:
    """A 1x1 convolution without padding as a product of two matrices."""
    x = x[:, ::stride, ::stride]
    rows = tf.reshape(x, (-1, x.shape[3]))
    return tf.reshape(tf.matmul(rows, kernel[0, 0]), (*x.shape[:3], kernel.shape[3]))


def depthwise_products(x: Tensor, kernel: Tensor, stride: int, pads: Pads) -> Tensor:
    """A depthwise convolution as the sum over taps of the padded images, shifted, times the tap's weights."""
    rows, columns, channels, _ = kernel.shape
    padded = tf.pad(x, ((0, 0), *pads, (0, 0)))
    height, width = (
        (edge + sum(pad) - taps) // stride + 1
        for edge, pad, taps in zip(x.shape[1:3], pads, (rows, columns), strict=True)
    )
    total = None
    for i, j in itertools.product(range(rows), range(columns)):
        window = padded[:, i : i + (height - 1) * stride + 1 : stride, j : j + (width - 1) * stride + 1 : stride]
        product = window * tf.reshape(kernel[i, j], (channels,))
        total = product if total is None else total + product
    return total
