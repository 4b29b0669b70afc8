"""Each framework's float32 against float64, on the device at hand: JAX may err as PyTorch errs, times five.

Of training only gradients are held, behind which its logits stand. Compiled lanes are held against their own eager
results, within what float32 itself errs, in inference alone: compiling takes most of the time, every model is compiled
in all of its parts there, and training's own arithmetic is proved by its gradients, which `jax.jit` compiles, too.
"""

import pytest
import torch
from torch._dynamo.utils import counters

from tests.correctness.proofs import every_mode, inference, inference_of

pytestmark = pytest.mark.optimised


@pytest.fixture
def fresh_compiler():
    """No graph of another model in this process."""
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


@inference
def test_logits(proof):
    rounding = proof.logits()
    assert rounding.error <= rounding.bound


@every_mode
def test_gradients(proof):
    rounding = proof.gradients()
    assert rounding.error <= rounding.bound


@inference_of("jax")
def test_torch_compile(proof, fresh_compiler):
    assert proof.torch_compile() <= proof.logits().bound
    assert counters["stats"]["unique_graphs"] > 0


@inference
def test_jit(proof):
    assert proof.jit() <= proof.logits().bound


@inference_of("tensorflow")
def test_tensorflow_with_xla(proof):
    assert proof.xla() <= proof.logits().bound
