"""What a model refuses, and what it says of a network's output that is no array."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

import fwbench
from fwbench.models.importing import ModelError
from fwbench.models.outputs import select

ARRAY = np.ones((2, 3))


def model(**fields):
    return fwbench.Model("tiny", torch="mine:Net", inputs=fwbench.normal(4), **fields)


@pytest.mark.parametrize("bound", [math.inf, math.nan, 0, -1e-9, True, "1e-6", None])
def test_a_tolerance_is_a_finite_number_above_zero(bound):
    """Infinity made `fwbench prove` end in StopIteration, and 0 in a division by zero."""
    with pytest.raises(ValueError, match=r"the tolerance of gradients is .*; give a number above 0 that is finite"):
        model(tolerance={"gradients": bound})
    assert model(tolerance={"gradients": 1e-6}).tolerance == {"gradients": 1e-6}


@pytest.mark.parametrize("size", [0, -1, 1.5, True])
@pytest.mark.parametrize("of", ["axes", "proof_axes"])
def test_the_axes_of_a_proof_have_sizes_as_others_have(of, size):
    axes = {"axes": {"length": 8}, of: {"length": size}}
    with pytest.raises(ValueError, match=r"axis 'length' has the value .*; give whole numbers of at least 1"):
        fwbench.Model("tiny", torch="mine:Net", inputs=fwbench.normal("length"), **axes)


@pytest.mark.parametrize(
    ("returned", "place"),
    [
        ((ARRAY, ARRAY), 0),
        ((None, ARRAY), 1),
        ({"loss": 0.5, "logits": ARRAY}, "logits"),
        (SimpleNamespace(past=None, hidden=ARRAY), "hidden"),
    ],
)
def test_the_output_that_is_proposed_is_one_that_works(returned, place):
    with pytest.raises(ModelError) as caught:
        select(model(), "torch", returned, 2)
    assert f"fwbench.Model(..., output={place!r})" in str(caught.value)
    assert f"output={{'torch': {place!r}}}" in str(caught.value)
    assert select(model(output=place), "torch", returned, 2) is ARRAY


@pytest.mark.parametrize(
    ("returned", "output"),
    [(0.5, None), ((), None), ({"a": {"b": ARRAY}}, None), ({(1, 2): ARRAY}, None), ({"a": (ARRAY, ARRAY)}, "a")],
)
def test_no_output_is_proposed_that_cannot_be_named(returned, output):
    with pytest.raises(ModelError, match=r"instead of an array: let its network in torch return"):
        select(model(output=output), "torch", returned, 2)
