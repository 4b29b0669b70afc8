"""Networks in JAX are called by what their signatures take, and their weights get PyTorch's names and layouts."""

import jax
import numpy as np
import pytest
import torch

import fwbench
from fwbench.frameworks.jax.networks import network
from fwbench.models.importing import ModelError
from fwbench.models.weights import draw

X = np.random.default_rng(0).standard_normal((2, 4), np.float32)
SEQUENCE = np.random.default_rng(0).standard_normal((2, 5, 4), np.float32)
HEAD = {"head.weight": (3, 4), "head.bias": (3,)}


def called(name, x=X, train=False, **fields):
    """The network's shapes, its weights, its output and its leaves after the call."""
    described = fwbench.Model(name, jax=f"others_jax:{name}", inputs=fwbench.normal(*x.shape[1:]), **fields)
    built = network(described, {})
    weights = draw(described, built.shapes, seed=0)
    output, after = built.apply([jax.numpy.asarray(leaf) for leaf in built.load(weights)], {"": x}, train=train)
    return built, weights, np.asarray(output), after


@pytest.mark.parametrize("name", ["OwnInit", "Requiring", "Insisting"])
@pytest.mark.parametrize("train", [False, True])
def test_a_call_is_given_what_it_takes(name, train):
    built, weights, output, _ = called(name, train=train)
    assert built.shapes == HEAD
    np.testing.assert_allclose(output, X @ weights["head.weight"].T + weights["head.bias"], rtol=1e-5, atol=1e-6)


def test_heads_of_attention_are_joined_as_in_pytorch():
    built, weights, output, _ = called("Attention", SEQUENCE)
    assert built.shapes == {
        f"attn.{part}.{kind}": (4, 4) if kind == "weight" else (4,)
        for part in ("key", "out", "query", "value")
        for kind in ("bias", "weight")
    }
    own = torch.nn.MultiheadAttention(4, 2, batch_first=True)
    parts = ("query", "key", "value")
    own.in_proj_weight.data, own.in_proj_bias.data = (
        torch.from_numpy(np.concatenate([weights[f"attn.{part}.{kind}"] for part in parts]))
        for kind in ("weight", "bias")
    )
    own.out_proj.weight.data, own.out_proj.bias.data = (
        torch.from_numpy(weights[f"attn.out.{kind}"]) for kind in ("weight", "bias")
    )
    expected, _ = own(*(torch.from_numpy(SEQUENCE),) * 3)
    np.testing.assert_allclose(output, expected.detach().numpy(), rtol=1e-4, atol=1e-6)


def test_a_users_function_may_begin_with_the_usual_names_and_layouts():
    given = {"a.kernel": np.arange(6.0).reshape(2, 3), "norm.scale": np.ones(3), "norm.mean": np.zeros(3)}
    made = fwbench.torch_layout(given)
    assert list(made) == ["a.weight", "norm.weight", "norm.running_mean"]
    np.testing.assert_array_equal(made["a.weight"], given["a.kernel"].T)


def test_random_numbers_that_cannot_be_switched_off_are_one_sentence():
    with pytest.raises(ModelError, match="RandomInAttention draws random numbers outside of flax") as error:
        called("RandomInAttention", SEQUENCE, train=True)
    assert "\n" not in str(error.value)
    called("RandomInAttention", SEQUENCE)


def test_a_network_of_haiku():
    built, weights, output, _ = called("transformed")
    assert built.shapes == {
        **{"net.linear.bias": (3,), "net.linear.weight": (3, 4), "net.norm.bias": (3,), "net.norm.weight": (3,)},
        **{"net.norm.running_mean": (3,), "net.norm.running_var": (3,)},
    }
    linear = X @ weights["net.linear.weight"].T + weights["net.linear.bias"]
    normal = (linear - weights["net.norm.running_mean"]) / np.sqrt(weights["net.norm.running_var"] + 1e-5)
    expected = normal * weights["net.norm.weight"] + weights["net.norm.bias"]
    np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-5)

    # In training without a key dropout is off, and the statistics run along.
    built, weights, trained, after = called("transformed", train=True)
    np.testing.assert_allclose(trained, output, rtol=1e-5, atol=1e-6)
    moved = built.canonical(after)["net.norm.running_mean"]
    np.testing.assert_allclose(moved, weights["net.norm.running_mean"] * 0.9, rtol=1e-5)


def test_the_output_may_lie_elsewhere_in_each_framework():
    described = fwbench.Model("two", torch="a:b", jax="c:d", inputs=fwbench.normal(4), output={"torch": "logits"})
    assert (described.output_of("torch"), described.output_of("jax")) == ("logits", None)
    assert fwbench.Model.from_json(described.to_json()) == described
    with pytest.raises(ValueError, match="output names 'tensorflow', in which the model has no network"):
        fwbench.Model("two", torch="a:b", inputs=fwbench.normal(4), output={"tensorflow": 0})
    with pytest.raises(ValueError, match=r"the output 1.5 is neither an index nor a key or attribute"):
        fwbench.Model("two", torch="a:b", inputs=fwbench.normal(4), output=1.5)
