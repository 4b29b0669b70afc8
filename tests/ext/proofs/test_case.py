"""What a proof measures arrays by."""

import numpy as np
import pytest

from fwbench.ext.proofs.case import length


@pytest.mark.parametrize(("numbers", "expected"), [([3e169, -4e169], 5e169), ([3e-200, 4e-200], 5e-200), ([3, 4], 5)])
def test_a_length_is_known_where_the_squares_are_out_of_float64s_range(numbers, expected):
    assert length(np.array(numbers)) == pytest.approx(expected, rel=1e-15)


def test_a_length_of_nothing_and_of_what_is_not_finite():
    assert length(np.zeros(3)) == length(np.zeros(0)) == 0
    assert length(np.array([1, -np.inf])) == np.inf
    assert np.isnan(length(np.array([np.nan, np.inf])))
