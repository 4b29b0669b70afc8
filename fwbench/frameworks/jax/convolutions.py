"""Convolutions in forms for which XLA's CPU backend makes fast code; on other devices XLA's own.

XLA's CPU backend computes a convolution with one group per channel (depthwise) as a dense one with a mask, or by a
scalar loop: 20 to 80 times the time of oneDNN's. Written as a sum of shifted products, one for each tap of the kernel,
it becomes one vectorised loop. A 1x1 convolution is a matrix product, and XLA's matrix product is faster than its
convolution. docs/xla-cpu.md has the figures.

`convolution` takes the place of `jax.lax.conv_general_dilated`: in the argument `conv_general_dilated` of Flax's layers
or, by `fast`, in every layer of an existing module.
"""

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

Array = jax.Array
Pads = tuple[tuple[int, int], tuple[int, int]]
Form = Literal["depthwise", "pointwise"]

# Outputs, in height and in width, whose windows are summed in one loop; see `_kernel_gradient`. With fewer, XLA makes
# scalar code for narrow layers; with more, only the time to compile grows.
_TILE = 7

_FORMS: dict[Form, str] = {"depthwise": "depthwise as shifted products", "pointwise": "1x1 as matrix products"}


@dataclass(frozen=True)
class Choice:
    """The choice of convolutions that are traced: fast forms or XLA's own.

    Attributes:
        platform: the program's, as JAX names it; None: JAX's default.
        plain: use XLA's own convolutions on a CPU too.
    """

    platform: str | None = None
    plain: bool = False


_choice = Choice()
_used: set[Form] = set()


def convolution(
    x: Array,
    kernel: Array,
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    feature_group_count: int = 1,
    **others: Any,
) -> Array:
    """`jax.lax.conv_general_dilated`, whose arguments it takes, with its value and its gradients.

    Args:
        x: images of shape (batch, height, width, channels) for the fast forms; of any other for XLA's own.
        kernel: of shape (rows, columns, channels / groups, features) for the fast forms.
    """
    plain = _choice.plain or (_choice.platform or jax.default_backend()) != "cpu"
    usual = _is_usual(x, kernel, padding, lhs_dilation, rhs_dilation, dimension_numbers, others.values())
    form = _form(x, kernel, padding, feature_group_count) if usual and not plain else None
    if form is None:
        return lax.conv_general_dilated(
            x,
            kernel,
            window_strides,
            padding,
            lhs_dilation,
            rhs_dilation,
            dimension_numbers,
            feature_group_count,
            **others,
        )
    rows, columns = (
        lax.padtype_to_pads(x.shape[1:3], kernel.shape[:2], window_strides, padding)
        if isinstance(padding, str)
        else padding
    )
    _used.add(form)
    down, right = window_strides
    return _convolution(x, kernel, form, (down, right), ((rows[0], rows[1]), (columns[0], columns[1])))


def fast(module: nnx.Module) -> None:
    """Make every `flax.nnx.Conv` of a module that uses XLA's convolution use ours."""
    for _, part in nnx.iter_graph(module):
        if isinstance(part, nnx.Conv) and part.conv_general_dilated is lax.conv_general_dilated:
            part.conv_general_dilated = convolution


def choose(choice: Choice) -> Choice:
    """Choose the convolutions that are traced from now on; return the previous choice."""
    global _choice
    before, _choice = _choice, choice
    _used.clear()
    return before


def used() -> str:
    """The forms traced since the choice, for the record."""
    return ", ".join(sentence for form, sentence in _FORMS.items() if form in _used) or "XLA's own"


def _is_usual(
    x: Array,
    kernel: Array,
    padding: Any,
    lhs_dilation: Any,
    rhs_dilation: Any,
    dimension_numbers: Any,
    others: Iterable[Any],
) -> bool:
    """True if a fast form is possible: images in the usual layout, without dilation or cropping."""
    if x.ndim != 4 or any(step != 1 for step in (*(lhs_dilation or ()), *(rhs_dilation or ()))):
        return False
    if any(value is not None for value in others):
        return False
    if not isinstance(padding, str) and any(pad < 0 for pads in padding for pad in pads):
        return False
    asked, known = (
        lax.conv_dimension_numbers(x.shape, kernel.shape, numbers)
        for numbers in (dimension_numbers, ("NHWC", "HWIO", "NHWC"))
    )
    return bool(asked == known)


def _form(x: Array, kernel: Array, padding: Any, groups: int) -> Form | None:
    """The fast form of a convolution; None if it has none."""
    if groups == x.shape[3] == kernel.shape[3] > 1:
        return "depthwise"
    unpadded = padding in ("VALID", "SAME") or not any(pad for pads in padding for pad in pads)
    return "pointwise" if kernel.shape[:2] == (1, 1) and groups == 1 and unpadded else None


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3, 4))
def _convolution(x: Array, kernel: Array, form: Form, strides: tuple[int, int], pads: Pads) -> Array:
    return (_depthwise if form == "depthwise" else _pointwise)(x, kernel, strides, pads)


def _forward(
    x: Array, kernel: Array, form: Form, strides: tuple[int, int], pads: Pads
) -> tuple[Array, tuple[Array, Array]]:
    return _convolution(x, kernel, form, strides, pads), (x, kernel)


def _backward(
    form: Form, strides: tuple[int, int], pads: Pads, kept: tuple[Array, Array], cotangent: Array
) -> tuple[Array, Array]:
    gradients = _depthwise_gradients if form == "depthwise" else _pointwise_gradients
    return gradients(*kept, cotangent, strides, pads)


_convolution.defvjp(_forward, _backward)


def _pointwise(x: Array, kernel: Array, strides: tuple[int, int], pads: Pads) -> Array:
    x = x[:, :: strides[0], :: strides[1]]
    # One matrix: with more axes XLA would transpose and compute the cotangent again for the kernel's gradient.
    return (x.reshape(-1, x.shape[3]) @ kernel[0, 0]).reshape(*x.shape[:3], kernel.shape[3])


def _pointwise_gradients(
    x: Array, kernel: Array, cotangent: Array, strides: tuple[int, int], pads: Pads
) -> tuple[Array, Array]:
    _, pullback = jax.vjp(functools.partial(_pointwise, strides=strides, pads=pads), x, kernel)
    x_gradient, kernel_gradient = pullback(cotangent)
    return x_gradient, kernel_gradient


def _depthwise(x: Array, kernel: Array, strides: tuple[int, int], pads: Pads) -> Array:
    """The sum over the kernel's taps of the padded images, shifted, times the tap's weights."""
    # A barrier, or XLA would compute the padding, and all that comes before it, again for each tap.
    padded = lax.optimization_barrier(jnp.pad(x, ((0, 0), *pads, (0, 0))))
    taps = (((i, j), (i, j)) for i, j in itertools.product(range(kernel.shape[0]), range(kernel.shape[1])))
    return _products(padded, kernel, taps, _size(x.shape, kernel.shape, strides, pads), strides).astype(x.dtype)


def _depthwise_gradients(
    x: Array, kernel: Array, cotangent: Array, strides: tuple[int, int], pads: Pads
) -> tuple[Array, Array]:
    return (
        _input_gradient(kernel, cotangent, x.shape, strides, pads),
        _kernel_gradient(x, cotangent, kernel.shape, strides, pads).astype(kernel.dtype),
    )


def _input_gradient(
    kernel: Array, cotangent: Array, shape: tuple[int, ...], strides: tuple[int, int], pads: Pads
) -> Array:
    """For each phase of the stride, sum the shifted cotangent times the weights over the taps that reach it."""
    batch, height, width, channels = shape
    # Input row `n * stride + phase` meets tap `i` in output row `n + (phase + pad - i) / stride`, where that is whole.
    rows, columns = (
        _Axis(edge, count, stride, pad, out)
        for edge, count, stride, (pad, _), out in zip(
            (height, width), kernel.shape[:2], strides, pads, cotangent.shape[1:3], strict=True
        )
    )
    padded = lax.optimization_barrier(jnp.pad(cotangent, ((0, 0), rows.pads, columns.pads, (0, 0))))

    def phase(a: int, b: int) -> Array:
        taps = (((i, j), (up, left)) for (i, up), (j, left) in itertools.product(rows.taps(a), columns.taps(b)))
        return _products(padded, kernel, taps, (rows.count, columns.count))

    phases = [[phase(a, b) for b in range(columns.stride)] for a in range(rows.stride)]
    stacked = jnp.stack([jnp.stack(row, axis=3) for row in phases], axis=2)
    whole = stacked.reshape(batch, rows.count * rows.stride, columns.count * columns.stride, channels)
    return whole[:, :height, :width].astype(cotangent.dtype)


class _Axis:
    """Height or width in the gradient of the input.

    Attributes:
        count: number of rows in each phase of the stride.
        pads: padding of the cotangent, so that every shift of it has `count` rows.
    """

    def __init__(self, edge: int, taps: int, stride: int, pad: int, out: int) -> None:
        self.stride = stride
        self.count = math.ceil(edge / stride)
        self._taps, self._pad = taps, pad
        lowest, highest = (pad - taps + 1) // stride, (stride - 1 + pad) // stride
        self.pads = (max(0, -lowest), max(0, self.count + highest - out))

    def taps(self, phase: int) -> Iterator[tuple[int, int]]:
        """The taps that reach a phase, each with the first row of the padded cotangent that it meets."""
        for tap in range((phase + self._pad) % self.stride, self._taps, self.stride):
            yield tap, self.pads[0] + (phase + self._pad - tap) // self.stride


def _kernel_gradient(x: Array, cotangent: Array, shape: tuple[int, ...], strides: tuple[int, int], pads: Pads) -> Array:
    """The sum over all outputs of each one's window of the images, times its cotangent.

    Works image by image, so that the padded image stays in the cache, and tile by tile of its outputs. The windows of a
    tile are slices of as many taps as the kernel has; their sum is one loop over taps and channels, for which XLA makes
    vector code. For a sum over an array's axis it makes a scalar loop (seen with jax 0.10.2).

    Returns:
        Of shape (rows, columns, 1, channels), in float32 or wider.
    """
    batch, height, width, channels = cotangent.shape
    (down, right), (rows, columns) = strides, shape[:2]
    tiles = math.ceil(height / _TILE), math.ceil(width / _TILE)
    high, broad = math.ceil(height / tiles[0]), math.ceil(width / tiles[1])
    beyond = tiles[0] * high - height, tiles[1] * broad - width
    cotangent = jnp.pad(cotangent, ((0, 0), (0, beyond[0]), (0, beyond[1]), (0, 0)))
    reach = (high - 1) * down + rows, (broad - 1) * right + columns
    # Pixels below or beside the last output's window are not used.
    edges = [
        (pad, (count - 1) * size * stride + window - edge - pad, 0)
        for (pad, _), count, size, stride, window, edge in zip(
            pads, tiles, (high, broad), strides, reach, x.shape[1:3], strict=True
        )
    ]
    zero = jnp.uint32(0)

    def add_image(image: Array, total: Array) -> Array:
        # Outside of `jit` the loop's counter has another type than its bounds.
        image = jnp.asarray(image, jnp.uint32)
        padded = lax.dynamic_slice_in_dim(x, image, 1)
        padded = lax.pad(padded, jnp.zeros((), x.dtype), ((0, 0, 0), *edges, (0, 0, 0)))

        def add_tile(tile: Array, total: Array) -> Array:
            row, column = tile // tiles[1] * high, tile % tiles[1] * broad
            seen = lax.dynamic_slice(padded, (zero, row * down, column * right, zero), (1, *reach, channels))
            weights = lax.dynamic_slice(cotangent, (image, row, column, zero), (1, high, broad, channels))
            outputs = (((i, j), (i * down, j * right)) for i, j in itertools.product(range(high), range(broad)))
            part = _products(seen, weights.reshape(high, broad, 1, channels), outputs, (rows, columns))
            # Each tile is summed by itself, or rounding would grow with the number of outputs.
            return total + lax.optimization_barrier(part)

        return lax.fori_loop(zero, jnp.uint32(math.prod(tiles)), add_tile, total)

    total = jnp.zeros((1, rows, columns, channels), _wide(x))
    return lax.fori_loop(zero, jnp.uint32(batch), add_image, total).reshape(rows, columns, 1, channels)


def _products(
    images: Array,
    kernel: Array,
    taps: Iterable[tuple[tuple[int, int], tuple[int, int]]],
    size: tuple[int, int],
    strides: tuple[int, int] = (1, 1),
) -> Array:
    """The sum over taps of a window of the images times the tap's weights.

    Args:
        kernel: of shape (rows, columns, 1, channels).
        taps: each tap's row and column in the kernel, and the first row and column of its window.
        size: height and width of the windows.

    Returns:
        Of shape (batch, *size, channels), in float32 or wider.
    """
    batch, _, _, channels = images.shape
    wide = _wide(images)
    height, width = ((count - 1) * stride + 1 for count, stride in zip(size, strides, strict=True))
    total = None
    for (i, j), (top, left) in taps:
        # `lax.slice`, as bracket notation takes several times as long to trace.
        window = lax.slice(images, (0, top, left, 0), (batch, top + height, left + width, channels), (1, *strides, 1))
        weights = lax.slice(kernel, (i, j, 0, 0), (i + 1, j + 1, 1, channels))
        product = window.astype(wide) * weights.astype(wide)
        total = product if total is None else total + product
    return jnp.zeros((batch, *size, channels), wide) if total is None else total


def _size(images: tuple[int, ...], kernel: tuple[int, ...], strides: tuple[int, int], pads: Pads) -> tuple[int, int]:
    """Height and width of the output."""
    height, width = (
        (edge + sum(pad) - taps) // stride + 1
        for edge, taps, stride, pad in zip(images[1:3], kernel[:2], strides, pads, strict=True)
    )
    return height, width


def _wide(array: Array) -> Any:
    """The number format in which products are summed: float32, as in XLA's own convolution, or wider."""
    return jnp.promote_types(array.dtype, jnp.float32)
