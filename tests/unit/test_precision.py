import dataclasses

import numpy as np
import pytest

from fwbench.frameworks.precision import BANDS, Operands, Products, check, operands, reference
from tests.unit.fakes import cut_mantissa, round_mantissa


def products(given):
    """In the operands' format throughout, as IEEE hardware would."""
    images = np.pad(given.images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(images, (3, 3), axis=(1, 2))
    convolution = np.einsum("bhwcij,ocij->bhwo", windows, given.kernel, optimize=True)
    return Products(given.left @ given.right, convolution)


@pytest.mark.parametrize("shorten", [round_mantissa, cut_mantissa])
@pytest.mark.parametrize(("arithmetic", "bits"), [("fp64", 52), ("fp32", 23), ("tf32", 10), ("bf16", 7)])
def test_each_arithmetic_is_told_by_its_error(arithmetic, bits, shorten):
    given = operands()
    if bits == 52:
        shortened = Operands(*(array.astype(np.float64) for array in dataclasses.astuple(given)))
    else:
        shortened = given if bits == 23 else Operands(*(shorten(a, bits) for a in dataclasses.astuple(given)))
    found = products(shortened)
    if arithmetic == "bf16":
        found = Products(*(round_mantissa(product, bits) for product in found))
    result = check(arithmetic, given, found)
    low, high = BANDS[arithmetic]
    for name in ("matmul", "convolution"):
        # Well inside its band, not at an edge.
        assert 1.3 * low <= result[name]["error"] <= high / 1.3
    for other in set(BANDS) - {arithmetic}:
        with pytest.raises(ArithmeticError, match=f"{other} was asked for, but the matmul runs in {arithmetic}"):
            check(other, given, found)


def test_an_error_between_the_bands_is_no_known_arithmetic():
    given = operands()
    wrong = Products(*(product * 1.00006 for product in reference(given)))
    with pytest.raises(ArithmeticError, match="unknown"):
        check("fp32", given, wrong)
