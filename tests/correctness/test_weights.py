"""The canonical weights go into every framework and out of it, bit for bit, each key exactly once."""

import numpy as np
import pytest

from fwbench.frameworks.jax import networks as jax_networks
from fwbench.frameworks.torch import networks as torch_networks
from fwbench.models import CATALOG
from fwbench.models.weights import digest, draw
from fwbench.parity.case import MODELS

FRAMEWORKS = {"torch": torch_networks, "jax": jax_networks}

every_model = pytest.mark.parametrize("model", MODELS)
every_framework = pytest.mark.parametrize("networks", FRAMEWORKS.values(), ids=FRAMEWORKS.keys())


def drawn(networks, model):
    row = CATALOG[model]
    return draw(row, networks.shapes(networks.network(row)), seed=0)


def loaded(networks, model, weights):
    module = networks.network(CATALOG[model])
    networks.load_weights(module, weights)
    return module


def assert_same_bits(actual, expected):
    assert actual.keys() == expected.keys()
    for name, array in expected.items():
        assert actual[name].dtype == array.dtype == np.float32, name
        assert actual[name].shape == array.shape, name
        assert actual[name].tobytes() == np.ascontiguousarray(array).tobytes(), name


@every_model
def test_frameworks_name_and_shape_every_tensor_alike(model):
    row = CATALOG[model]
    torch_shapes, jax_shapes = (networks.shapes(networks.network(row)) for networks in FRAMEWORKS.values())
    assert torch_shapes == jax_shapes


@every_framework
@every_model
def test_export_equals_import(model, networks):
    weights = drawn(networks, model)
    assert_same_bits(networks.export_weights(loaded(networks, model, weights)), weights)


@pytest.mark.parametrize(
    ("source", "target"), [("torch", "jax"), ("jax", "torch")], ids=["torch-to-jax", "jax-to-torch"]
)
@every_model
def test_weights_pass_from_one_framework_to_the_other_and_back(model, source, target):
    source, target = FRAMEWORKS[source], FRAMEWORKS[target]
    weights = drawn(source, model)
    there = target.export_weights(loaded(target, model, source.export_weights(loaded(source, model, weights))))
    assert_same_bits(there, weights)
    back = source.export_weights(loaded(source, model, there))
    assert_same_bits(back, weights)
    assert digest(back) == digest(weights)


@every_model
def test_two_seeds_differ_in_every_tensor(model):
    row = CATALOG[model]
    shapes = torch_networks.shapes(torch_networks.network(row))
    first, second = draw(row, shapes, seed=0), draw(row, shapes, seed=1)
    assert [name for name in shapes if np.array_equal(first[name], second[name])] == []
    assert [name for name in shapes if np.ptp(first[name]) == 0] == []


@every_framework
@every_model
@pytest.mark.parametrize("fault", ["missing", "unknown", "misshapen"])
def test_a_wrong_key_is_one_error_that_names_it(model, networks, fault):
    shapes = networks.shapes(networks.network(CATALOG[model]))
    weights = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    name = sorted(weights)[len(weights) // 2]
    if fault == "missing":
        del weights[name]
    elif fault == "unknown":
        name = "nowhere.weight"
        weights[name] = np.zeros(3, np.float32)
    else:
        weights[name] = np.zeros((*weights[name].shape, 2), np.float32)
    with pytest.raises((ValueError, RuntimeError)) as caught:
        loaded(networks, model, weights)
    assert str(caught.value).count(name) == 1
