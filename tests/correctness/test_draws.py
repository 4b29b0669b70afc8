"""Networks that draw random numbers by themselves are compared with the same numbers in both frameworks."""

import pytest

import fwbench
from fwbench.ext.proofs.draws import agreed
from fwbench.ext.proofs.errors import NotTheSame
from fwbench.ext.proofs.proof import Proof
from fwbench.models import ModelError
from tests.correctness.drawing import PAIRS, WAYS
from tests.correctness.proofs import WithoutSteps, first_of_each

MODULE = "tests.correctness.drawing"


def pair(way, other, kind=WithoutSteps):
    networks = {"torch": f"{MODULE}:torch_{list(WAYS).index(way)}", "jax": f"{MODULE}:jax_{PAIRS.index((way, other))}"}
    model = fwbench.Model(f"pair_{PAIRS.index((way, other))}", inputs=fwbench.normal(6), **networks)
    return kind(model, "jax", "train")


def agree(proof):
    return agreed(proof._backward, "jax").mirrored is not None


@pytest.mark.parametrize(
    ("way", "other"), first_of_each(PAIRS, lambda way, other: (way, other if other in WAYS[way][1] else "wrong"))
)
def test_the_same_numbers_tell_right_draws_from_wrong_ones(way, other):
    assert agree(pair(way, other)) == (other in WAYS[way][1])


def test_images_are_masked_alike_in_both_layouts():
    networks = {"torch": f"{MODULE}:TorchImages", "jax": f"{MODULE}:JaxImages"}
    assert agree(Proof(fwbench.Model("images", inputs=fwbench.image(8, 7, 3), **networks), "jax", "train"))


def test_all_results_are_compared_with_the_same_numbers():
    # A checkpoint in PyTorch and one in JAX draw again for the gradients.
    proof = pair("loop", "scan", Proof)
    assert {quantity: proof.worst(quantity).ratio <= 1 for quantity in proof.quantities} == dict.fromkeys(
        ("output", "loss", "gradients", "sgd", "adam"), True
    )
    assert "3 more" not in proof.note
    assert "same numbers" in proof.note


def test_draws_that_do_not_agree_are_told():
    with pytest.raises(ModelError, match=r"2 x 8 numbers \(bernoulli, 0\.9\) and .*, and jax 2 x 8 numbers$"):
        pair("twice", "one key").worst("output")


def test_a_network_that_draws_once_is_not_one_that_never_does():
    with pytest.raises(NotTheSame, match="jax is not"):
        pair("dropout", "constant").worst("output")
