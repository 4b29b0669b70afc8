"""Dropout and stochastic depth follow the same distribution in both frameworks while training, and are off otherwise.

Random masks of two frameworks cannot be compared draw by draw, so each is tested against the distribution both define:
independent elements (dropout) or rows (stochastic depth), kept with probability 1 - rate and scaled by its inverse.
"""

import functools
import zlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from scipy.stats import binomtest
from torchvision.ops import StochasticDepth

from fwbench.frameworks.jax import efficientnet
from fwbench.frameworks.jax import networks as jax_networks
from fwbench.frameworks.torch import networks as torch_networks
from fwbench.models import CATALOG
from fwbench.models.inputs import draw as draw_inputs
from fwbench.models.project import complete
from fwbench.models.weights import draw
from tests.tensorflow import TENSORFLOW

# Chance that a right framework fails one of the tests below for some seed: each splits it among its binomial tests.
FALSE_ALARM = 1e-6
ROWS, COLUMNS = 40_000, 4
STOCHASTIC = ("mobilenet_v3_small", "efficientnet_b0")
SIZE = 32

stochastic_model = pytest.mark.parametrize("model", STOCHASTIC)


def torch_layers(model):
    """(kind, rate) of every stochastic layer of a rate above 0 by canonical path, and the layer as a function."""
    found = {}
    for path, layer in torch_networks.network(CATALOG[model], CATALOG[model].sizes()).named_modules():
        if isinstance(layer, (torch.nn.Dropout, StochasticDepth)) and layer.p > 0:
            kind = "dropout" if isinstance(layer, torch.nn.Dropout) else "stochastic depth"

            def call(x, layer=layer, path=path):
                torch.manual_seed(zlib.crc32(path.encode()))
                # A copy, for torchvision's dropouts work in place.
                return layer(torch.from_numpy(x.copy())).numpy()

            found[path] = (kind, layer.p, call)
    return found


def jax_layers(model):
    found = {}
    for path, layer in nnx.iter_graph(jax_networks.network(CATALOG[model], CATALOG[model].sizes()).module()):
        if isinstance(layer, (nnx.Dropout, efficientnet.StochasticDepth)) and layer.rate > 0:
            kind = "dropout" if isinstance(layer, nnx.Dropout) else "stochastic depth"
            name = ".".join(map(str, path))

            def call(x, layer=layer, name=name):
                return np.asarray(layer(jnp.asarray(x), rngs=nnx.Rngs(dropout=zlib.crc32(name.encode()))))

            found[name] = (kind, layer.rate, call)
    return found


def tensorflow_layers(model):
    from fwbench.ext.tensorflow import layers, networks

    found = {}
    for path, layer in named_layers(networks.Network(complete(CATALOG[model]), CATALOG[model].sizes()).module):
        if isinstance(layer, layers.Dropout) and layer.rate > 0:
            kind = "stochastic depth" if isinstance(layer, layers.StochasticDepth) else "dropout"

            def call(x, layer=layer):
                with layers.training((0, 1)):
                    return layer(x).numpy()

            found[path] = (kind, layer.rate, call)
    return found


def named_layers(layer, path=""):
    from fwbench.ext.tensorflow.networks import _children

    for name, child in _children(layer):
        yield f"{path}{name}", child
        yield from named_layers(child, f"{path}{name}.")


@functools.cache
def layers_of(framework, model):
    return {"torch": torch_layers, "jax": jax_layers, "tensorflow": tensorflow_layers}[framework](model)


# Keras takes seconds to build such networks.
every_framework = pytest.mark.parametrize(
    "framework", ["torch", "jax", pytest.param(*TENSORFLOW.values, marks=[*TENSORFLOW.marks, pytest.mark.slow])]
)


def assert_bernoulli(kept, keep, alarm):
    """`kept`, a Boolean per draw, comes of independent draws of probability `keep`; along axis 0 and any other.

    Exact two-sided binomial tests of the number kept, and of the number of disjoint neighbours kept together, which is
    that of a keep-squared coin only where neighbours are independent.
    """
    pairs = [np.logical_and(*np.split(np.moveaxis(kept, axis, 0), 2)) for axis in range(kept.ndim)]
    for draws, probability in [(kept, keep), *((pair, keep**2) for pair in pairs)]:
        p_value = binomtest(int(draws.sum()), draws.size, probability).pvalue
        assert p_value >= alarm / (1 + len(pairs))


@every_framework
@stochastic_model
def test_frameworks_have_the_same_layers_at_the_same_rates(framework, model):
    torch_rates, rates = (
        {path: (kind, pytest.approx(rate)) for path, (kind, rate, _) in layers_of(name, model).items()}
        for name in ("torch", framework)
    )
    assert torch_rates
    assert torch_rates == rates


# EfficientNet has layers of both kinds.
@every_framework
def test_layers_draw_from_the_distribution(framework):
    layers = layers_of(framework, "efficientnet_b0")
    x = np.random.default_rng(0).uniform(1, 2, (ROWS, 1, 1, COLUMNS)).astype(np.float32)
    for kind, rate, call in layers.values():
        y = call(x)
        kept = (y != 0)[:, 0, 0, :]
        # Kept elements are scaled up so that the expectation stays; two roundings of float32.
        np.testing.assert_allclose(y[y != 0], x[y != 0] / (1 - rate), rtol=2 * np.finfo(np.float32).eps)
        if kind == "stochastic depth":
            assert np.array_equal(kept.any(axis=1), kept.all(axis=1))
            kept = kept[:, 0]
        assert_bernoulli(kept, 1 - rate, FALSE_ALARM / len(layers))


@pytest.mark.parametrize("fault", ["another rate", "whole rows", "whole columns"])
def test_the_test_of_the_distribution_finds(fault):
    rng = np.random.default_rng(0)
    kept = rng.random((ROWS, COLUMNS)) < 0.8
    assert_bernoulli(kept, 0.8, FALSE_ALARM)
    if fault == "another rate":
        kept = rng.random((ROWS, COLUMNS)) < 0.79
    elif fault == "whole rows":
        kept[:] = kept[:, :1]
    else:
        kept[ROWS // 2 :] = kept[: ROWS // 2]
    with pytest.raises(AssertionError):
        assert_bernoulli(kept, 0.8, FALSE_ALARM)


def torch_network(model, *, rate=None):
    """A function of (x, seed, mode) to logits; the rate of all stochastic layers is the network's own unless given."""
    row = CATALOG[model]
    module = torch_networks.network(row, row.sizes())
    torch_networks.load_weights(module, draw(row, torch_networks.shapes(module), seed=0))
    for layer in module.modules():
        if rate is not None and isinstance(layer, (torch.nn.Dropout, StochasticDepth)):
            layer.p = rate

    def call(x, seed, mode):
        torch.manual_seed(seed)
        module.train(mode == "train")
        with torch.inference_mode():
            return module(torch.from_numpy(x).permute(0, 3, 1, 2)).numpy()

    return call


def jax_network(model, *, rate=None):
    row = CATALOG[model]
    network = jax_networks.network(row, row.sizes())
    module = network.module()
    for _, layer in nnx.iter_graph(module):
        if rate is not None and hasattr(layer, "rate"):
            layer.rate = rate
    network = network.replaced(module)
    leaves = network.load(draw(row, network.shapes, seed=0))

    @functools.cache
    def compiled(mode):
        return jax.jit(lambda leaves, x, key: network.apply(leaves, {"": x}, train=mode == "train", key=key)[0])

    return lambda x, seed, mode: np.asarray(compiled(mode)(leaves, x, jax.random.key(seed)))


@pytest.mark.parametrize(
    "network", [torch_network, pytest.param(jax_network, marks=pytest.mark.slow)], ids=["torch", "jax"]
)
@stochastic_model
def test_stochastic_layers_are_on_in_training_and_off_in_inference(network, model):
    x = draw_inputs(CATALOG[model].inputs, 4, 0, {"image_size": SIZE})[""]
    net, without = network(model), network(model, rate=0.0)
    assert np.array_equal(net(x, 0, "eval"), net(x, 1, "eval"))
    assert np.array_equal(net(x, 0, "eval"), without(x, 0, "eval"))
    # Two draws of many layers: that they agree by chance is impossible for the seeds given here, which are fixed.
    assert not np.array_equal(net(x, 0, "train"), net(x, 1, "train"))
