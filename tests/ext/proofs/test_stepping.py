"""Proofs of models with a state, with sides that are not computed."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest

from fwbench.ext.proofs import stepping
from fwbench.ext.proofs.case import MAIN, Forward, Stepped
from fwbench.ext.proofs.errors import NotTheSame
from fwbench.models import CATALOG

CASE = SimpleNamespace(model=CATALOG["mlp"], steps=3, mode="eval")
CACHE = np.arange(6.0).reshape(2, 3)


def side(stepped, at_once):
    """A side of right outputs, with the states after steps and after the whole sequence."""
    whole = np.arange(24.0).reshape(2, 3, 4)

    def run(calls, point):
        outputs = [whole[:, end - steps : end] for steps, end in zip(calls, itertools.accumulate(calls), strict=True)]
        return Stepped(outputs, at_once if calls == [3] else stepped)

    return SimpleNamespace(case=CASE, forward=lambda point: Forward(whole, 0.0, {}), stepped=run)


def test_steps_that_leave_the_state_of_the_whole_sequence_are_right():
    errors, state = stepping._alone(side({"cache": CACHE}, {"cache": CACHE}), "jax", 1, MAIN)
    assert {(one.quantity, one.error) for one in errors} == {("steps", 0.0), ("state", 0.0)}
    assert state == {"cache": CACHE}


@pytest.mark.parametrize("states", [({}, {"cache": CACHE}), ({"cache": CACHE}, {})], ids=["steps", "whole"])
def test_an_array_that_one_of_two_runs_lacks_is_a_difference(states):
    with pytest.raises(NotTheSame, match="the state differs first in 'cache', by inf"):
        stepping._alone(side(*states), "jax", 1, MAIN)


def test_arrays_without_a_counterpart_in_the_other_framework_are_named():
    expected = {"cache": CACHE, "at": np.array(3.0), "table": np.ones((2, 2))}
    actual = {"cache": CACHE.T, "position": np.array(3.0), "table": np.ones(4)}
    errors, alone = stepping._across(CASE, expected, actual, "jax", MAIN)
    assert [one.tensor for one in errors] == ["cache"]
    assert alone == ["'at' of torch", "'position' of jax", "'table' of jax"]
    assert stepping._across(CASE, {"": CACHE}, {"": CACHE[0]}, "jax", MAIN) == ([], ["the state of jax"])


@pytest.mark.parametrize(
    ("arrays", "listed"), [(1, ": a0."), (6, ": a0, a1, a2, a3, a4, a5."), (8, ": a0, a1, a2, a3, a4, a5, 2 more.")]
)
def test_some_of_the_arrays_that_were_not_compared_are_listed(arrays, listed):
    assert stepping._note([f"a{number}" for number in range(arrays)]).endswith(listed)
    assert stepping._note([]) == ""
