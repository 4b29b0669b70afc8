from functools import partial

import numpy as np
import pytest

from fwbench.frameworks.precision import BANDS, Operands, Products, check, operands, reference
from tests.unit.fakes import cut_mantissa, round_mantissa


def products(given, shorten=lambda array: array):
    """In the operands' format throughout, as IEEE hardware would.

    Args:
        shorten: makes attention's weights factors of a product.
    """
    images = np.pad(given.images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(images, (3, 3), axis=(1, 2))
    convolution = np.einsum("bhwcij,ocij->bhwo", windows, given.kernel, optimize=True)
    scores = given.query @ given.key.swapaxes(-1, -2) / given.query.dtype.type(8)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return Products(given.left @ given.right, convolution, shorten(weights) @ given.value)


@pytest.mark.parametrize("shorten", [round_mantissa, cut_mantissa])
@pytest.mark.parametrize(("arithmetic", "bits"), [("fp64", 52), ("fp32", 23), ("tf32", 10), ("bf16", 7)])
def test_each_arithmetic_is_told_by_its_error(arithmetic, bits, shorten):
    given = operands()
    if bits == 52:
        shortened = Operands(*(array.astype(np.float64) for array in given))
    else:
        shortened = given if bits == 23 else Operands(*(shorten(a, bits) for a in given))
    found = products(shortened, partial(shorten, bits=bits) if bits < 23 else lambda array: array)
    if arithmetic == "bf16":
        found = Products(*(round_mantissa(product, bits) for product in found))
    result = check(arithmetic, given, found)
    low, high = BANDS[arithmetic]
    for name, times in (("matmul", 1), ("convolution", 1), ("attention", 2)):
        # Well inside its band, not at an edge.
        assert 1.2 * low <= result[name]["error"] / times <= high / 1.2
    for other in set(BANDS) - {arithmetic}:
        with pytest.raises(ArithmeticError, match=f"{other} was asked for, but the matmul runs in {arithmetic}"):
            check(other, given, found)


def test_an_error_between_the_bands_is_no_known_arithmetic():
    given = operands()
    wrong = Products(*(product * 1.00006 for product in reference(given)))
    with pytest.raises(ArithmeticError, match="unknown"):
        check("fp32", given, wrong)


@pytest.mark.parametrize("rounded", [("query", "key"), ("weights", "value"), ("query", "key", "weights", "value")])
def test_attention_in_tf32_is_no_attention_in_ieee_float32(rounded):
    """Only attention: PyTorch chooses its kernel apart from those of products and convolutions."""
    given = operands()
    factors = {name: round_mantissa(getattr(given, name), 10) for name in rounded if name != "weights"}
    weights = partial(round_mantissa, bits=10) if "weights" in rounded else lambda array: array
    with pytest.raises(ArithmeticError, match="fp32 was asked for, but the attention runs in tf32"):
        check("fp32", given, products(given._replace(**factors), weights))


def test_attention_may_be_more_exact_than_what_was_asked_for():
    """As PyTorch's is on an H200 where TF32 is allowed, with an error of 5.6e-7."""
    given = operands()
    tf32 = products(Operands(*(round_mantissa(array, 10) for array in given)))
    exact = reference(given).attention
    attention = exact * (1 + 5.6e-7 * np.random.default_rng(0).choice([-1, 1], exact.shape))
    result = check("tf32", given, tf32._replace(attention=attention))
    assert result["attention"] == {"error": pytest.approx(5.6e-7, rel=0.01), "arithmetic": "fp32"}
    with pytest.raises(ArithmeticError, match="the matmul runs in fp32"):
        check("tf32", given, products(given))


def test_a_lane_without_attention_of_its_own_is_probed_without():
    given = operands()
    assert check("fp32", given, products(given)._replace(attention=None)).keys() == {"matmul", "convolution"}
