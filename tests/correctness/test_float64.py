"""JAX against PyTorch in float64: what is left of a difference there is the network, not rounding.

Each bound stands, with its reason, in `fwbench.parity.proof.BOUNDS`.
"""

import numpy as np
import pytest
import torch

from fwbench.parity.case import MODELS, MODES, Case
from fwbench.parity.jax import JaxSide
from fwbench.parity.proof import BACKWARD_SIZE, has_modes
from fwbench.parity.torch import Hardsigmoid, TorchSide


def test_logits(proof):
    proof.prove("logits")


def test_loss(proof):
    proof.prove("loss")


def test_gradients(proof):
    proof.prove("gradients")


def test_statistics(proof):
    proof.prove("statistics")


def test_sgd_trajectory(proof):
    proof.prove("sgd")


def test_adam_trajectory(proof):
    proof.prove("adam")


@pytest.mark.parametrize("side", [TorchSide, JaxSide])
@pytest.mark.parametrize("model", [model for model in MODELS if not has_modes(model)])
def test_without_batch_normalisation_both_modes_are_one(model, side):
    """Why the gradients of such a model are proved once for both: they are the same to the last bit."""
    sides = [side(Case(model, mode, "float32", size=BACKWARD_SIZE.get(model))) for mode in MODES]
    one, other = (answer.backward.gradients for answer in sides)
    assert one.keys() == other.keys()
    assert all(np.array_equal(one[name], other[name]) for name in one)


def test_hard_sigmoid_of_the_proof_is_pytorchs_but_for_one_rounded_constant():
    """Why MobileNetV3's gradients may be proved with another hard-sigmoid than PyTorch's: only 1/6 gains digits."""
    x = torch.linspace(-4, 4, 1001, dtype=torch.float64, requires_grad=True)
    ours, theirs = Hardsigmoid()(x), torch.nn.functional.hardsigmoid(x)
    assert torch.equal(ours, theirs)
    (our_slope,) = torch.autograd.grad(ours.sum(), x)
    (their_slope,) = torch.autograd.grad(theirs.sum(), x)
    inside = x.detach().abs() < 3
    assert torch.equal(our_slope[inside], torch.full_like(our_slope[inside], 1 / 6))
    assert torch.equal(their_slope[inside].float(), our_slope[inside].float())
    assert torch.equal(their_slope[~inside], our_slope[~inside])
