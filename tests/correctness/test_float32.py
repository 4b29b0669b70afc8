"""Each framework's float32 against float64, on the device at hand: JAX may err as PyTorch errs, times five.

Logits in inference; those of training stand behind its gradients, which are checked.
"""

import pytest

from fwbench.parity.case import MODELS


@pytest.mark.parametrize(
    "proof", [pytest.param((model, "eval"), id=f"{model}-eval") for model in MODELS], indirect=True
)
def test_logits(proof):
    rounding = proof.logits()
    assert rounding.error <= rounding.bound


def test_gradients(proof):
    rounding = proof.gradients()
    assert rounding.error <= rounding.bound
