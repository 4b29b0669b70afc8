"""A proof that fails in training alone: what inference computes is proved all the same, to the end."""

import pytest

import fwbench
from fwbench.worker.process.proof import prove
from tests.correctness.test_digits import FLAX, HIDDEN, TORCH
from tests.correctness.test_twins import nothing_left, twins  # noqa: F401 (fixtures are for pytest)

RETURNED = "return self.head(w @ x)"
STOPPED = "return self.head(w @ jax.lax.stop_gradient(x))"
DROPPING = FLAX.replace(RETURNED, "return self.head(self.dropout(w @ x))").replace(
    "self.norm =", "self.dropout = nnx.Dropout(0.5, rngs=rngs)\n        self.norm ="
)


def lost(flax):
    """With a detour through bfloat16 that float64 hides."""
    detour = HIDDEN["a detour through bfloat16"][1].splitlines()[0]
    return flax.replace("x = self.norm", f"{detour}\n        x = self.norm")


@pytest.mark.parametrize(
    ("flax", "alone", "differs"),
    [
        (FLAX.replace(RETURNED, STOPPED), True, "gradients"),
        pytest.param(DROPPING, True, "random in training mode", marks=pytest.mark.slow),
        (FLAX.replace("12 * x", "11 * x"), False, "output"),
        (lost(FLAX.replace(RETURNED, STOPPED)), False, "loses digits"),
        # Only inputs that are steered there reach it.
        (FLAX.replace(RETURNED, STOPPED).replace("self.up(x)", "jnp.minimum(self.up(x), 1e3)"), False, "output"),
    ],
)
def test_only_what_inference_computes_counts(twins, flax, alone, differs):  # noqa: F811
    model = twins(TORCH, flax, inputs=fwbench.normal(6, 8))
    found = prove(model, "jax", lambda said: None, patient=False)
    assert (found.state, found.training_alone) == ("failed", alone)
    assert differs in found.sentence
    if alone:
        assert "output" in found.errors
        assert found.power is None
