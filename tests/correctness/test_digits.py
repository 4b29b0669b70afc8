"""What float64 hides, digits that one side loses in float32; and what training alone shows."""

import pytest

import fwbench
from fwbench.ext.proofs import process
from fwbench.ext.proofs.digits import check
from fwbench.ext.proofs.errors import NotTheSame
from tests.correctness.proofs import WithoutSteps

TORCH = """
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.norm, self.head = nn.Linear(8, 16), nn.LayerNorm(16, elementwise_affine=False), nn.Linear(16, 5)

    def forward(self, x):
        x = self.norm(self.up(x))
        w = (12 * x @ x.mT).softmax(-1)
        return self.head(w @ x)
"""

FLAX = """
import jax
import jax.numpy as jnp
from flax import nnx


class Net(nnx.Module):
    def __init__(self, rngs):
        self.up, self.head = nnx.Linear(8, 16, rngs=rngs), nnx.Linear(16, 5, rngs=rngs)
        self.norm = nnx.LayerNorm(16, use_scale=False, use_bias=False, epsilon=1e-5, use_fast_variance=False, rngs=rngs)

    def __call__(self, x):
        x = self.norm(self.up(x))
        w = jax.nn.softmax(12 * x @ x.mT)
        return self.head(w @ x)
"""

# In float64 none of them changes anything.
HIDDEN = {
    "softmax without a maximum": (
        "jax.nn.softmax(12 * x @ x.mT)",
        "jnp.exp(12 * x @ x.mT)\n        w = w / w.sum(-1, keepdims=True)",
    ),
    "an int32 that overflows": (
        "return self.head(w @ x)",
        "numbers = jnp.arange(6) * 1_000_000_007 % 6\n"
        "        right = jnp.array([number * 1_000_000_007 % 6 for number in range(6)])\n"
        "        return self.head(w @ jnp.where((numbers == right)[:, None], x, -x))",
    ),
    "a detour through bfloat16": (
        "return self.head(w @ x)",
        "x = x.astype(jnp.bfloat16).astype(x.dtype) if x.dtype == jnp.float32 else x\n        return self.head(w @ x)",
    ),
}


@pytest.fixture
def model(pair):
    def build(flax=FLAX, **fields):
        return pair(TORCH, flax, **{"inputs": fwbench.normal(6, 8), **fields})

    return build


@pytest.mark.parametrize("mistake", HIDDEN)
def test_what_float64_hides_is_found(model, mistake):
    right, wrong = HIDDEN[mistake]
    assert FLAX.count(right) == 1
    built = model(FLAX.replace(right, wrong))
    assert WithoutSteps(built, "jax").nearest.ratio <= 1
    with pytest.raises(NotTheSame, match="in float32 jax loses digits at"):
        check(built, "jax", {}, ())


def test_the_side_that_loses_them_is_named(pair):
    torch = TORCH.replace(
        "(12 * x @ x.mT).softmax(-1)", "(12 * x @ x.mT).exp()\n        w = w / w.sum(-1, keepdim=True)"
    )
    with pytest.raises(NotTheSame, match="in float32 torch loses digits at"):
        check(pair(torch, FLAX, inputs=fwbench.normal(6, 8)), "jax", {}, ())


@pytest.mark.parametrize("fast", [False, True])
def test_right_twins_stay_right(model, fast):
    check(model(FLAX.replace("use_fast_variance=False", f"use_fast_variance={fast}")), "jax", {}, ())


def test_a_tolerance_of_the_output_admits_that_loss(model):
    right, wrong = HIDDEN["a detour through bfloat16"]
    check(model(FLAX.replace(right, wrong), tolerance={"output": 0.1}), "jax", {}, ())


@pytest.mark.slow
def test_a_proof_asks_for_it_after_the_choices(model):
    stages = []
    right, wrong = HIDDEN["a detour through bfloat16"]
    found = process.prove(
        model(FLAX.replace(right, wrong)), "jax", lambda said: stages.append(said["stage"]), patient=False
    )
    assert stages[-2:] == ["choices that no point takes", "float32"]
    assert (found.state, found.nearest, found.power) == ("failed", None, None)


# A proof that fails in training alone: what inference computes is proved all the same, to the end.
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
        pytest.param(lost(FLAX.replace(RETURNED, STOPPED)), False, "loses digits", marks=pytest.mark.slow),
        # Only inputs that are steered there reach it.
        pytest.param(
            FLAX.replace(RETURNED, STOPPED).replace("self.up(x)", "jnp.minimum(self.up(x), 1e3)"),
            False,
            "output",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_only_what_inference_computes_counts(pair, flax, alone, differs):
    model = pair(TORCH, flax, inputs=fwbench.normal(6, 8))
    found = process.prove(model, "jax", lambda said: None, patient=False)
    assert (found.state, found.training_alone) == ("failed", alone)
    assert differs in found.sentence
    if alone:
        assert "output" in found.errors
        assert found.power is None
