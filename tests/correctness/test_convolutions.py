"""The forms of convolutions for XLA's CPU backend, against XLA's own."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax import lax

from fwbench.ext.proofs.case import Case
from fwbench.ext.proofs.jax import _AS_WRITTEN, JaxSide
from fwbench.ext.proofs.torch import TorchSide
from fwbench.frameworks.jax import convolutions
from fwbench.frameworks.jax.convolutions import Choice, convolution, fast
from fwbench.frameworks.jax.layers import conv
from fwbench.frameworks.jax.options import known
from fwbench.models import CATALOG
from tests.proving.float32 import global_error, logits_error, tolerance

CHANNELS = 4

# Kernel, strides, padding: those of the catalog's networks, and what a user's may have besides.
CASES = {
    "3x3": ((3, 3), (1, 1), ((1, 1), (1, 1))),
    "3x3 stride 2": ((3, 3), (2, 2), ((1, 1), (1, 1))),
    "5x5": ((5, 5), (1, 1), ((2, 2), (2, 2))),
    "5x5 stride 2": ((5, 5), (2, 2), ((2, 2), (2, 2))),
    "3x5 strides 2 and 1, SAME": ((3, 5), (2, 1), "SAME"),
    "3x3 stride 3, VALID": ((3, 3), (3, 3), "VALID"),
    "2x2 stride 3, one-sided": ((2, 2), (3, 3), ((0, 1), (1, 0))),
    "1x1": ((1, 1), (1, 1), ((0, 0), (0, 0))),
    "1x1 stride 2": ((1, 1), (2, 2), ((0, 0), (0, 0))),
    "1x1 padded": ((1, 1), (1, 1), ((1, 1), (1, 1))),
}


# Without optimisation, which changes no form and takes most of the time.
compiled = functools.partial(jax.jit, compiler_options=known(_AS_WRITTEN))


@functools.partial(compiled, static_argnums=(0, 1, 2, 3))
def answers(convolve, strides, padding, groups, x, kernel, weight):
    """Output and both gradients of a weighted sum of it."""

    def f(x, kernel):
        numbers = ("NHWC", "HWIO", "NHWC")
        y = convolve(x, kernel, strides, padding, dimension_numbers=numbers, feature_group_count=groups)
        return (y * weight[:, : y.shape[1], : y.shape[2]]).sum(), y

    return jax.grad(f, argnums=(0, 1), has_aux=True)(x, kernel)


def drawn(case, groups, size, channels=CHANNELS):
    (rows, columns), strides, padding = CASES[case]
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, *size, channels))
    kernel = rng.normal(size=(rows, columns, channels // groups, channels))
    weight = rng.normal(size=(2, size[0] + 2, size[1] + 2, channels))
    return strides, padding, groups, x, kernel, weight


@pytest.mark.parametrize(
    ("case", "groups", "size"),
    [
        pytest.param(case, groups, size, id=f"{case}, {groups} groups, {size}")
        for case in CASES
        for groups in (CHANNELS, 1)
        for size in ((7, 9), (8, 6))
        # Of one group only 1x1 has a form of its own. Sizes matter to strides, which may leave a rest of a side.
        if (groups > 1 or case.startswith("1x1")) and (size == (7, 9) or "stride" in case)
    ],
)
def test_value_and_gradients_are_xlas(case, groups, size):
    with jax.enable_x64(True):
        strides, padding, groups, *arrays = drawn(case, groups, size)
        ours, theirs = (
            answers(convolve, strides, padding, groups, *arrays) for convolve in (convolution, lax.conv_general_dilated)
        )
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert (one.dtype, one.shape) == (np.float64, other.shape)
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-13)


def test_gradients_outside_jit_are_those_within():
    """Outside, a loop counts in another type of whole numbers than within."""
    strides, padding, groups, *arrays = drawn("3x3", CHANNELS, (8, 6))
    given = (convolution, strides, padding, groups, *(jnp.asarray(array, jnp.float32) for array in arrays))
    for outside, within in zip(*map(jax.tree.leaves, (answers.__wrapped__(*given), answers(*given))), strict=True):
        np.testing.assert_allclose(outside, within, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("channels", [96, pytest.param(1152, marks=pytest.mark.slow)], ids=str)
def test_sums_over_more_outputs_than_one_tile_are_whole(channels):
    """Several tiles of outputs, in height and in width, the last ones not full."""
    with jax.enable_x64(True):
        strides, padding, groups, *arrays = drawn("5x5", channels, (13, 17), channels)
        ours, theirs = (
            answers(convolve, strides, padding, groups, *arrays) for convolve in (convolution, _by_definition)
        )
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-11)


def _by_definition(x, kernel, strides, padding, **_):
    """XLA's own is dense in float64: as many times the work as there are channels."""
    rows, columns = kernel.shape[:2]
    x = jnp.pad(x, ((0, 0), *padding, (0, 0)))
    height, width = x.shape[1] - rows + 1, x.shape[2] - columns + 1
    parts = [x[:, i : i + height, j : j + width] * kernel[i, j, 0] for i in range(rows) for j in range(columns)]
    return jnp.stack(parts).sum(0)


@pytest.mark.parametrize("case", ["3x3", "5x5 stride 2", "1x1"])
def test_bfloat16_is_summed_in_float32(case):
    """As near to float32's result as XLA's own is: a sum in bfloat16 would be ten times as far."""
    strides, padding, groups, *arrays = drawn(case, 1 if case == "1x1" else CHANNELS, (32, 32))
    exact = answers(lax.conv_general_dilated, strides, padding, groups, *(np.float32(array) for array in arrays))
    half = [jnp.asarray(array, jnp.bfloat16) for array in arrays]
    ours = answers(convolution, strides, padding, groups, *half)
    theirs = answers(lax.conv_general_dilated, strides, padding, groups, *half)
    for one, other, right in zip(*map(jax.tree.leaves, (ours, theirs, exact)), strict=True):
        assert one.dtype == jnp.bfloat16
        distance = np.linalg.norm(np.float32(one) - right), np.linalg.norm(np.float32(other) - right)
        assert distance[0] <= 1.1 * distance[1] + 1e-6


@pytest.mark.slow
def test_a_network_errs_as_bfloat16_rounds():
    """Logits and gradients, against PyTorch's in float64, of what test_float32.py and test_float64.py leave out.

    An error to first order is a sum of roundings, each in proportion to the format's epsilon: what may be lost in
    float32, PyTorch's own loss times five, times the ratio of epsilons may be lost here.
    """
    model, dtype = "mobilenet_v3_small", "bfloat16"
    axes = (("image_size", 32),)
    exact, own = (TorchSide(Case(CATALOG[model], dtype=each, axes=axes)) for each in ("float64", "float32"))
    side = JaxSide(Case(CATALOG[model], dtype="float32", axes=axes))

    def cast(tree):
        return jax.tree.map(lambda array: array.astype(dtype), tree)

    def loss(parameters, statistics, inputs):
        return side.answer(cast(parameters), cast(statistics), cast(inputs))

    differentiate = compiled(jax.value_and_grad(loss, has_aux=True))
    with jax.default_matmul_precision("highest"):
        (_, (logits, _)), gradients = differentiate(*side.arguments())
    assert logits.dtype == dtype
    coarser = float(jnp.finfo(dtype).eps / jnp.finfo("float32").eps)
    expected = exact.forward().output
    error = logits_error(np.float64(logits), expected)
    assert 0 < error <= coarser * tolerance([logits_error(own.forward().output, expected)])
    expected = exact.backward().gradients
    error = global_error({name: np.float64(array) for name, array in gradients.items()}, expected)
    assert 0 < error <= coarser * tolerance([global_error(own.backward().gradients, expected)])


@pytest.fixture(autouse=True)
def restored():
    before = convolutions.choose(Choice("cpu"))
    yield
    convolutions.choose(before)


def forms(function, *arguments):
    """Which of the operators in question the lowered program has."""
    text = jax.jit(lambda *arguments: function(*arguments)).lower(*arguments).as_text()
    return {name for name in ("convolution", "dot_general", "case") if f"stablehlo.{name}" in text}


@pytest.mark.parametrize(("kernel", "groups", "expected"), [(1, 1, {"dot_general"}), (3, CHANNELS, set())])
def test_only_a_cpu_has_other_forms_and_no_device_both(kernel, groups, expected):
    layer = conv(CHANNELS, CHANNELS, kernel, groups=groups, rngs=nnx.Rngs(0))
    x = jnp.ones((1, 8, 8, CHANNELS))
    assert forms(layer, x) == forms(jax.grad(lambda x: layer(x).sum()), x) == expected
    convolutions.choose(Choice("cuda"))
    assert forms(layer, x) == forms(jax.grad(lambda x: layer(x).sum()), x) == {"convolution"}


def test_plain_has_xlas_own_and_the_record_says_which():
    depthwise, dense = (conv(CHANNELS, CHANNELS, 3, groups=groups, rngs=nnx.Rngs(0)) for groups in (CHANNELS, 1))
    x = jnp.ones((1, 8, 8, CHANNELS))
    forms(dense, x)
    assert convolutions.used() == "XLA's own"
    forms(depthwise, x)
    assert convolutions.used() == "depthwise as shifted products"
    convolutions.choose(Choice("cpu", plain=True))
    assert forms(depthwise, x) == {"convolution"}
    assert convolutions.used() == "XLA's own"


@pytest.mark.parametrize(("kernel", "groups"), [(3, CHANNELS), (1, 1)], ids=["depthwise", "1x1"])
def test_plain_computes_the_same(kernel, groups):
    """Of what has a fast form: so that a network which is plain computes what the proofs say of the fast one."""
    layer = conv(CHANNELS, CHANNELS, kernel, stride=2, groups=groups, rngs=nnx.Rngs(0))
    x = jax.random.normal(jax.random.key(0), (2, 9, 8, CHANNELS))

    def answers():
        def f(layer, x):
            y = layer(x)
            return (y * jnp.arange(y.size).reshape(y.shape)).sum() / y.size, y

        return jax.tree.leaves(nnx.jit(nnx.grad(f, argnums=(0, 1), has_aux=True))(layer, x))

    fast = answers()
    convolutions.choose(Choice("cpu", plain=True))
    plain = answers()
    assert len(plain) >= 3
    for one, other in zip(plain, fast, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_a_users_module_takes_our_layer():
    class Net(nnx.Module):
        def __init__(self, rngs):
            self.first = nnx.Conv(CHANNELS, CHANNELS, (3, 3), feature_group_count=CHANNELS, rngs=rngs)
            self.own = nnx.Conv(CHANNELS, CHANNELS, (3, 3), conv_general_dilated=_by_definition, rngs=rngs)

        def __call__(self, x):
            return self.first(x)

    module = Net(nnx.Rngs(0))
    x = jax.random.normal(jax.random.key(0), (2, 8, 8, CHANNELS))
    before = module(x)
    fast(module)
    assert forms(module, x) == set()
    np.testing.assert_allclose(module(x), before, rtol=1e-5, atol=1e-6)
    assert module.own.conv_general_dilated is _by_definition


@pytest.mark.parametrize(
    "unusual",
    [
        {"lhs_dilation": (2, 2)},
        {"rhs_dilation": (2, 2)},
        {"precision": lax.Precision.HIGHEST},
        {"padding": [(-1, 1), (1, 1)]},
        {"dimension_numbers": ("NWHC", "HWIO", "NHWC")},
    ],
    ids=lambda unusual: next(iter(unusual)),
)
def test_what_has_no_fast_form_is_xlas_own(unusual):
    x, kernel = jnp.ones((1, 8, 6, CHANNELS)), jnp.ones((3, 3, 1, CHANNELS))
    given = {"padding": [(1, 1), (1, 1)], "dimension_numbers": ("NHWC", "HWIO", "NHWC"), **unusual}
    ours, theirs = (
        functools.partial(convolve, window_strides=(1, 1), feature_group_count=CHANNELS, **given)
        for convolve in (convolution, lax.conv_general_dilated)
    )
    assert forms(ours, x, kernel) == {"convolution"}
    np.testing.assert_array_equal(ours(x, kernel), theirs(x, kernel))
