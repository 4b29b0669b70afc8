"""Other frameworks against PyTorch in float64: what is left of a difference there is the network, not rounding.

Each bound stands, with its reason, in `fwbench.ext.proofs.proof.BOUNDS`.
"""

import functools

import jax
import pytest
import torch

from fwbench.ext.proofs.case import Case, side
from fwbench.ext.proofs.errors import BOUNDS, prove
from fwbench.ext.proofs.jax import _AS_WRITTEN, JaxSide
from fwbench.ext.proofs.proof import modes_apart
from fwbench.ext.proofs.torch import Hardsigmoid, TorchSide
from fwbench.frameworks.jax.options import faster, known
from fwbench.models import CATALOG, Model
from fwbench.models.inputs import image
from fwbench.models.project import complete
from tests.correctness.proofs import EVERY, SMALL, by_size, every_mode, over
from tests.proving import MODELS
from tests.tensorflow import TENSORFLOW


@functools.cache
def reference(case):
    return TorchSide(case)


@pytest.fixture(scope="module", params=["jax", TENSORFLOW])
def framework(request):
    return request.param


@pytest.fixture(scope="module", params=SMALL)
def sides(request, framework):
    """PyTorch's and another framework's answers on small images, in inference."""
    model = complete(CATALOG[request.param])
    case = Case(model, axes=tuple(model.proof_axes.items()))
    candidate = side(framework)(case)
    # First: it has gone forward too.
    assert candidate.backward().gradients
    return reference(case), candidate


@pytest.mark.parametrize("quantity", ["output", "loss", "gradients"])
def test_on_small_images(sides, quantity):
    prove(quantity, *sides)


@pytest.mark.parametrize("quantity", [quantity for quantity in BOUNDS if quantity != "statistics"])
@every_mode
def test_at_full_length(proof, quantity):
    proof.prove(quantity)


@over([case for case in EVERY if len(modes_apart(CATALOG[case[0]])) > 1])
def test_statistics(proof):
    proof.prove("statistics")


@pytest.mark.parametrize("kind", [TorchSide, JaxSide])
@pytest.mark.parametrize("model", by_size(model for model in MODELS if len(modes_apart(CATALOG[model])) == 1))
def test_without_batch_normalisation_both_modes_are_one(model, kind, two_blocks):
    """Why such a model is proved in mode `eval` alone: its gradients are the same in both, to the last bit.

    PyTorch's are computed twice, of two blocks of ViT; JAX's only traced.
    """
    model = CATALOG[model]
    assert kind(Case(model, "train", "float32", tuple(model.proof_axes.items()))).trains_as_it_infers()


def test_with_batch_normalisation_they_are_two():
    networks = {"torch": "tests.correctness.small_torch:Conv", "jax": "tests.correctness.small_jax:conv"}
    model = Model("normalised", inputs=image(8, 8, 3), **networks)
    for kind in (TorchSide, JaxSide):
        assert not kind(Case(model, "train")).trains_as_it_infers()


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_only_float64_is_compiled_otherwise_than_what_is_measured(dtype, monkeypatch):
    as_written, measured = known(_AS_WRITTEN), faster("mobilenet_v3_small", "cpu")
    asked = []
    monkeypatch.setattr(jax, "jit", lambda function, compiler_options: asked.append(compiler_options))
    JaxSide(Case(CATALOG["mobilenet_v3_small"], dtype=dtype))
    # Forward, and with gradients, as inference and training steps are.
    assert asked == ([as_written, as_written] if dtype == "float64" else [measured, {}])


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
