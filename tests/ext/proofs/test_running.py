"""Errors in a proof that are not finite, and shares of old and new in running statistics."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from fwbench.ext.proofs import proof
from fwbench.ext.proofs.case import MAIN, Case
from fwbench.ext.proofs.errors import NotTheSame, check, gradient_errors
from fwbench.ext.proofs.running import _share
from fwbench.models import CATALOG
from fwbench.models.store import Nearest


def test_a_statistic_that_is_infinite_is_a_difference(monkeypatch):
    """No tolerance admits it, so none is named."""

    def measured(quantity, one, other, point=MAIN):
        return {"bn.running_var": math.inf} if quantity == "statistics" else {quantity: 0.0}

    monkeypatch.setattr(proof.draws, "sides", lambda case, *others: [SimpleNamespace(case=case)] * 2)
    monkeypatch.setattr(proof, "_randomness", lambda *sides: "")
    monkeypatch.setattr(proof, "measure", measured)
    case = Case(CATALOG["cnn"], "train")
    found = proof._find.__wrapped__(case, "jax", ("output", "statistics"), ())
    assert (found.errors[MAIN]["statistics"], found.note) == ({"bn.running_var": math.inf}, "")
    with pytest.raises(NotTheSame, match=r"the difference in statistics is inf in 'bn\.running_var'"):
        check("statistics", found.errors[MAIN]["statistics"], case)


def test_a_gradient_that_is_zero_in_the_reference_alone_has_no_relative_error():
    """Its error is relative to the shortest length that is compared: 0.25 became 2.5e+281."""
    zeros, quarters = {"gain": np.zeros(4)}, {"gain": np.full(4, 0.125)}
    errors = gradient_errors(quarters, zeros, {"gain": 0.0})
    with pytest.raises(NotTheSame, match=r"the difference in gradients is infinite \(0 in torch alone\) in 'gain', "):
        check("gradients", errors, Case(CATALOG["cnn"], "eval"))
    nearest = Nearest("gradients", "gain", "main", "eval", errors["gain"], 1e-8)
    assert proof._briefly(nearest, CATALOG["cnn"]) == "gradients infinite (0 in torch alone) in 'gain' (eval)"


EXPECTED, BEFORE = np.array([1.0, 2.0, 4.0, 8.0]), np.array([1.0, 1.0, 2.0, 1.0])
MIXED = 0.25 * EXPECTED + 0.75 * BEFORE


def test_the_share_of_the_references_statistic_is_found():
    assert _share(MIXED, EXPECTED, BEFORE) == pytest.approx(0.25)
    assert _share(MIXED + np.array([0.0, 1.0, 0.0, 0.0]), EXPECTED, BEFORE) is None


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("which", [0, 1, 2], ids=["candidate", "reference", "before"])
def test_statistics_that_are_not_finite_have_no_share(which, number):
    given = [array.copy() for array in (MIXED, EXPECTED, BEFORE)]
    given[which][2] = number
    assert _share(*given) is None
