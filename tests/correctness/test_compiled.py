"""Compiled lanes against their own eager results, within what float32 itself errs.

In inference mode, where every model is compiled in all of its parts; tracing and compiling takes most of the time, so
the train mode, whose own arithmetic the float32 gradients prove under `jax.jit`, is left out.
"""

import pytest
import torch
from torch._dynamo.utils import counters

from tests.correctness.proofs import inference, inference_of


@pytest.fixture
def fresh_compiler():
    """No graph of another model in this process."""
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


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
