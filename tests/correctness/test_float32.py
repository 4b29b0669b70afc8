"""Each framework's float32 against float64, on the device at hand: JAX may err as PyTorch errs, times five."""


def test_logits(proof):
    rounding = proof.logits()
    assert rounding.error <= rounding.bound


def test_gradients(proof):
    rounding = proof.gradients()
    assert rounding.error <= rounding.bound
