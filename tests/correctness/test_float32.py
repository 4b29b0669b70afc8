"""Each framework's float32 against float64, on the device at hand: JAX may err as PyTorch errs, times five.

Logits in inference; those of training stand behind its gradients, which are checked.
"""

from tests.correctness.proofs import every_mode, inference


@inference
def test_logits(proof):
    rounding = proof.logits()
    assert rounding.error <= rounding.bound


@every_mode
def test_gradients(proof):
    rounding = proof.gradients()
    assert rounding.error <= rounding.bound
