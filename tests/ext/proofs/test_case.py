"""What a proof measures arrays by."""

import numpy as np
import pytest

from fwbench.ext.proofs.errors import gradient_errors, in_words
from fwbench.ext.proofs.lengths import length
from fwbench.models import CATALOG


@pytest.mark.parametrize(("numbers", "expected"), [([3e169, -4e169], 5e169), ([3e-200, 4e-200], 5e-200), ([3, 4], 5)])
def test_a_length_is_known_where_the_squares_are_out_of_float64s_range(numbers, expected):
    assert length(np.array(numbers)) == pytest.approx(expected, rel=1e-15)


def test_a_length_of_nothing_and_of_what_is_not_finite():
    assert length(np.zeros(3)) == length(np.zeros(0)) == 0
    assert length(np.array([1, -np.inf])) == np.inf
    assert np.isnan(length(np.array([np.nan, np.inf])))


def test_an_error_beside_zeros_is_no_number():
    """A reference of zeros counts as of length 1e-290, which would make any error as large as its inverse."""
    reference = {"gain": np.zeros(3), "bias": np.ones(3)}
    errors = gradient_errors({"gain": np.ones(3), "bias": np.full(3, 1.5)}, reference, {"gain": 0.0, "bias": 0.0})
    assert {name: in_words(error, CATALOG["mlp"]) for name, error in errors.items()} == {
        "gain": "infinite (0 in torch alone)",
        "bias": "5.0e-01",
    }
