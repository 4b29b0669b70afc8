"""Convolutions of images, NHWC."""

from typing import Any, Literal

from fwbench.frameworks.tensorflow.imported import tf

Pads = tuple[tuple[int, int], tuple[int, int]]
Form = Literal["own", "products"]

_form: Form = "own"


def convolution(x: Any, kernel: Any, stride: int, pads: Pads, *, depthwise: bool = False) -> Any:
    """A convolution with one stride for height and width.

    Args:
        x: of shape (batch, height, width, channels).
        kernel: of shape (rows, columns, channels, features), or (rows, columns, channels, 1) of a depthwise one.
        pads: zeros before and after, in height and in width.
    """
    convolve = tf.nn.depthwise_conv2d if depthwise else tf.nn.conv2d
    padding = "VALID" if pads == ((0, 0), (0, 0)) else ((0, 0), *pads, (0, 0))
    return convolve(x, kernel, (1, stride, stride, 1), padding)


def choose(form: Form) -> None:
    """Say which convolutions are traced from now on."""
    global _form
    _form = form


def used() -> str:
    """What has been traced since the choice, for the record."""
    return "TensorFlow's own"
