"""JAX against PyTorch in float64: what is left of a difference there is the network, not rounding.

Each bound stands, with its reason, in `fwbench.parity.proof.BOUNDS`.
"""

import functools

import jax
import numpy as np
import pytest
import torch
from flax import nnx

from fwbench.models import CATALOG
from fwbench.parity.case import MODELS, MODES, Case
from fwbench.parity.jax import JaxSide, _known_options, depthwise
from fwbench.parity.proof import modes
from fwbench.parity.torch import Hardsigmoid, TorchSide


def test_output(proof):
    proof.prove("output")


def test_loss(proof):
    proof.prove("loss")


def test_gradients(proof):
    proof.prove("gradients")


@pytest.mark.parametrize(
    "proof",
    [pytest.param((m, mode), id=f"{m}-{mode}") for m in MODELS for mode in MODES if len(modes(CATALOG[m])) > 1],
    indirect=True,
)
def test_statistics(proof):
    proof.prove("statistics")


def test_sgd_trajectory(proof):
    proof.prove("sgd")


def test_adam_trajectory(proof):
    proof.prove("adam")


@pytest.mark.parametrize("side", [TorchSide, JaxSide])
@pytest.mark.parametrize("model", [model for model in MODELS if len(modes(CATALOG[model])) == 1])
def test_without_batch_normalisation_both_modes_are_one(model, side):
    """Why such a model is proved in mode `eval` alone: its gradients are the same in both, to the last bit."""
    model = CATALOG[model]
    sides = [side(Case(model, mode, "float32", tuple(model.proof_axes.items()))) for mode in MODES]
    one, other = (answer.backward.gradients for answer in sides)
    assert one.keys() == other.keys()
    assert all(np.array_equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("padding", [[(1, 1), (0, 2)], "SAME"], ids=str)
@pytest.mark.parametrize("strides", [(1, 1), (2, 1)], ids=str)
def test_depthwise_convolution_of_the_proof_is_jaxs(strides, padding):
    """Why the float64 proofs may go without XLA's: the same in value and in both derivatives."""

    @functools.partial(jax.jit, static_argnums=0)
    def answers(convolve, x, kernel, weight):
        def f(x, kernel):
            y = convolve(x, kernel, strides, padding, dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=4)
            return (y * weight[:, : y.shape[1], : y.shape[2]]).sum(), y

        return jax.grad(f, argnums=(0, 1), has_aux=True)(x, kernel)

    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        x, kernel, weight = (rng.normal(size=size) for size in [(2, 8, 6, 4), (3, 5, 1, 4), (2, 8, 6, 4)])
        ours, theirs = (answers(convolve, x, kernel, weight) for convolve in (depthwise, jax.lax.conv_general_dilated))
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert one.dtype == np.float64
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_only_depthwise_convolutions_and_only_those_in_float64_stand_in(dtype):
    """In float32 the proofs are of the convolutions that are measured."""
    module = JaxSide(Case(CATALOG["mobilenet_v3_small"], dtype=dtype)).network.module()
    parts = [part for _, part in nnx.iter_graph(module) if isinstance(part, nnx.Conv)]
    plain, grouped = jax.lax.conv_general_dilated, depthwise if dtype == "float64" else jax.lax.conv_general_dilated
    found = {(part.feature_group_count > 1, part.conv_general_dilated) for part in parts}
    assert found == {(False, plain), (True, grouped)}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_only_float64_is_compiled_otherwise_than_what_is_measured(dtype, monkeypatch):
    options = _known_options() if dtype == "float64" else None
    asked = []
    monkeypatch.setattr(jax, "jit", lambda function, compiler_options: asked.append(compiler_options))
    JaxSide(Case(CATALOG["mlp"], dtype=dtype))
    assert asked == [options, options]


def test_an_option_that_this_version_of_xla_does_not_know_is_left_out(monkeypatch):
    """XLA refuses to compile with one, and users upgrade: the proofs must outlive an option that only saves time."""
    known = {"xla_backend_optimization_level": 0}
    monkeypatch.setattr("fwbench.parity.jax._AS_WRITTEN", {"xla_option_of_another_version": False, **known})
    assert _known_options.__wrapped__() == known


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
