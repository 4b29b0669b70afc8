"""Where a model's output lies in what its network returns, and what is said where it does not lie there."""

import types

import numpy as np
import pytest

import fwbench
from fwbench.models.importing import ModelError
from fwbench.models.outputs import select

ARRAY = np.zeros((2, 5))


def model(output=None):
    return fwbench.Model("mine", torch="nets:Net", inputs=fwbench.normal(4), output=output)


@pytest.mark.parametrize(
    ("returned", "first"),
    [
        ({"logits": ARRAY, "hidden": ARRAY}, "logits"),
        ((ARRAY, ARRAY), 0),
        (types.SimpleNamespace(training=True, logits=ARRAY), "logits"),
        (3, 0),
    ],
)
def test_a_refusal_names_a_part_that_can_be_chosen(returned, first):
    with pytest.raises(ModelError) as caught:
        select(model(), "torch", returned, 2)
    said = str(caught.value)
    assert f"output={first!r})" in said
    assert f"output={{'torch': {first!r}}}" in said
    if returned != 3:
        assert select(model(first), "torch", returned, 2) is ARRAY


def test_what_could_have_been_chosen_is_listed():
    returned = types.SimpleNamespace(training=True, logits=ARRAY, hidden=ARRAY)
    with pytest.raises(ModelError, match="the attributes 'logits', 'hidden'"):
        select(model("logit"), "torch", returned, 2)
