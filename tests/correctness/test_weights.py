"""The canonical weights go into every framework and out of it, bit for bit, each key exactly once."""

import functools
import gc

import numpy as np
import pytest

from fwbench.frameworks.jax import networks as jax_networks
from fwbench.frameworks.torch import networks as torch_networks
from fwbench.meters.memory import trim_heap
from fwbench.models import CATALOG, ModelError
from fwbench.models.weights import digest, draw
from fwbench.parity.case import MODELS, side
from tests.tensorflow import TENSORFLOW

every_model = pytest.mark.parametrize("model", MODELS)
every_framework = pytest.mark.parametrize("framework", ["torch", "jax", TENSORFLOW])


@pytest.fixture(autouse=True)
def no_network_left(request):
    """Free the test's networks: Keras's hold themselves, and ViT-B/16 takes a third of a GB each time."""
    yield
    if CATALOG[request.node.callspec.params["model"]].parameters > 50e6:
        gc.collect()
        trim_heap()


# Keras takes seconds to build a network.
@functools.cache
def shapes(framework, model):
    return side(framework).shapes(CATALOG[model], CATALOG[model].sizes())


def drawn(model):
    return draw(CATALOG[model], shapes("torch", model), seed=0)


def network(framework, model):
    """A function of weights that returns them once they have been in a framework's network."""
    row = CATALOG[model]
    if framework == "torch":
        module = torch_networks.network(row, row.sizes())
        return lambda weights: torch_networks.load_weights(module, weights) or torch_networks.export_weights(module)
    if framework == "tensorflow":
        from fwbench.frameworks.tensorflow.networks import Network

        built = Network(row, row.sizes())
        return lambda weights: built.load(weights) or built.export()
    built = jax_networks.network(row, row.sizes())
    return lambda weights: built.export(built.load(weights))


# What refuses weights is as it was, so that one serves several tests.
refusing = functools.lru_cache(maxsize=1)(network)


def passed_through(framework, model, weights):
    """The weights, once they have been in a new network, which holds none of another test's."""
    return network(framework, model)(weights)


def assert_same_bits(actual, expected):
    assert actual.keys() == expected.keys()
    for name, array in expected.items():
        assert actual[name].dtype == array.dtype == np.float32, name
        assert actual[name].shape == array.shape, name
        assert actual[name].tobytes() == np.ascontiguousarray(array).tobytes(), name


@every_framework
@every_model
def test_frameworks_name_and_shape_every_tensor_alike(model, framework):
    assert shapes("torch", model) == shapes(framework, model)


@every_framework
@every_model
def test_export_equals_import(model, framework):
    weights = drawn(model)
    assert_same_bits(passed_through(framework, model, weights), weights)


@pytest.mark.parametrize(
    ("source", "target"), [("torch", "jax"), ("jax", "torch")], ids=["torch-to-jax", "jax-to-torch"]
)
@every_model
def test_weights_pass_from_one_framework_to_the_other_and_back(model, source, target):
    # Digests, as whole weights would be held beside three more copies.
    before = digest(drawn(model))
    there = passed_through(target, model, passed_through(source, model, drawn(model)))
    assert digest(there) == before
    back = passed_through(source, model, there)
    assert digest(back) == before


@every_model
def test_two_seeds_differ_in_every_tensor(model):
    names = shapes("torch", model)
    first, second = (draw(CATALOG[model], names, seed) for seed in (0, 1))
    assert [name for name in names if np.array_equal(first[name], second[name])] == []
    assert [name for name in names if np.ptp(first[name]) == 0] == []


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
        refusing(framework, model)(weights)
    assert str(caught.value).count(repr(name)) == 1
