"""The catalog's networks: weights go in and out bit for bit, each key once, and sizes and costs are as published."""

import functools
import gc
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from fwbench.ext.proofs.case import side
from fwbench.frameworks.jax import networks as jax_networks
from fwbench.frameworks.torch import networks as torch_networks
from fwbench.meters.memory import trim_heap
from fwbench.models import CATALOG, ModelError
from fwbench.models.project import complete
from fwbench.models.weights import draw, is_statistic
from tests.correctness.proofs import by_size
from tests.proving import MODELS
from tests.tensorflow import TENSORFLOW, needs_tensorflow

# Arrays of large models take seconds. Every run holds the names and shapes of all of them in PyTorch and JAX.
every_model = pytest.mark.parametrize("model", by_size(MODELS))
every_framework = pytest.mark.parametrize("framework", ["torch", "jax", TENSORFLOW])


@pytest.fixture(autouse=True)
def no_network_left(request):
    """Free the test's networks: Keras's hold themselves, and ViT-B/16 takes a third of a GB each time."""
    yield
    if CATALOG[request.node.callspec.params["model"]].parameters > 50e6:
        gc.collect()
        trim_heap()


@pytest.fixture(scope="module", autouse=True)
def none_that_refuses_left():
    """Free the last network that refused weights, too."""
    yield
    refusing.cache_clear()


# Keras takes seconds to build a network.
@functools.cache
def shapes(framework, model):
    row = complete(CATALOG[model])
    return side(framework).shapes(row, row.sizes())


def network(framework, model):
    """Two functions of a framework's network: one loads weights, the other exports what the first has loaded."""
    row = complete(CATALOG[model])
    if framework == "torch":
        module = torch_networks.network(row, row.sizes())
        load, export = torch_networks.load_weights, torch_networks.export_weights
        return functools.partial(load, module), lambda loaded: export(module)
    if framework == "tensorflow":
        from fwbench.ext.tensorflow.networks import Network

        built = Network(row, row.sizes())
        return built.load, lambda loaded: built.export()
    built = jax_networks.network(row, row.sizes())
    return built.load, built.export


# What refuses weights is as it was, so that one serves several tests.
refusing = functools.lru_cache(maxsize=1)(network)


@pytest.mark.parametrize("model", MODELS)
def test_jax_names_and_shapes_every_tensor_as_pytorch_does(model):
    assert shapes("torch", model) == shapes("jax", model)


@needs_tensorflow
@every_model
def test_tensorflow_names_and_shapes_every_tensor_as_pytorch_does(model):
    assert shapes("torch", model) == shapes("tensorflow", model)


@every_framework
@every_model
def test_export_equals_import(model, framework):
    # A new network, which holds none of another test's weights.
    load, export = network(framework, model)
    weights = draw(CATALOG[model], shapes("torch", model), seed=0)
    loaded = load(weights)
    # ViT-B/16's would be a third of a GB beside as much in the network and as much that is exported.
    weights.clear()
    actual = export(loaded)
    assert actual.keys() == shapes("torch", model).keys()
    for name, shape in shapes("torch", model).items():
        # Drawn again one by one, as a third copy of all weights would take a third of a GB.
        expected = draw(CATALOG[model], {name: shape}, seed=0)[name]
        assert actual[name].dtype == expected.dtype == np.float32, name
        assert actual[name].shape == expected.shape, name
        assert actual[name].tobytes() == np.ascontiguousarray(expected).tobytes(), name


@every_model
def test_two_seeds_differ_in_every_tensor(model):
    for name, shape in shapes("torch", model).items():
        first, second = (draw(CATALOG[model], {name: shape}, seed)[name] for seed in (0, 1))
        assert not np.array_equal(first, second), name
        assert np.ptp(first) > 0, name


@pytest.mark.parametrize("fault", ["missing", "unknown", "misshapen"])
@every_framework
@every_model
def test_a_wrong_key_is_one_error_that_names_it(model, framework, fault):
    weights = {name: np.zeros(shape, np.float32) for name, shape in shapes(framework, model).items()}
    name = sorted(weights)[len(weights) // 2]
    if fault == "missing":
        del weights[name]
    elif fault == "unknown":
        name = "nowhere.weight"
        weights[name] = np.zeros(3, np.float32)
    else:
        weights[name] = np.zeros((*weights[name].shape, 2), np.float32)
    with pytest.raises(ModelError) as caught:
        refusing(framework, model)[0](weights)
    assert str(caught.value).count(repr(name)) == 1


# Samples of a batch.
BATCH = 3


@pytest.mark.parametrize("model", MODELS)
def test_in_torch_logits_parameters_and_multiply_accumulates_are_as_published(model):
    """Of convolutions, matrix products and attention half of their operations count; nothing element-wise."""
    row = CATALOG[model]
    module = torch_networks.network(row, row.sizes()).to("meta").eval()
    x = torch.empty((BATCH, *row.input_shape), device="meta")
    with FlopCounterMode(display=False) as counter, torch.inference_mode():
        logits = module(x.permute(0, 3, 1, 2) if x.ndim == 4 else x)
    assert logits.shape == (BATCH, row.classes)
    assert counter.get_total_flops() / 2 == pytest.approx(BATCH * row.macs, rel=0.02)
    trained = {name: math.prod(shape) for name, shape in shapes("torch", model).items() if not is_statistic(name)}
    assert sum(trained.values()) == row.parameters


@pytest.mark.parametrize("model", MODELS)
def test_jax_logits_have_a_row_per_sample_and_a_column_per_class(model):
    row = CATALOG[model]
    network = jax_networks.network(row, row.sizes())
    x = jax.ShapeDtypeStruct((BATCH, *row.input_shape), jnp.float32)
    weights = {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in network.shapes.items()}
    logits = jax.eval_shape(lambda weights, x: network.apply(network.load(weights), {"": x})[0], weights, x)
    assert logits.shape == (BATCH, row.classes)
