"""Each network has the size and the cost that its catalog row publishes, in both frameworks."""

import math

import jax
import jax.numpy as jnp
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from fwbench.frameworks.jax import networks as jax_networks
from fwbench.frameworks.torch import networks as torch_networks
from fwbench.models import CATALOG
from fwbench.models.weights import is_statistic
from fwbench.parity.case import MODELS, side
from tests.tensorflow import TENSORFLOW

every_model = pytest.mark.parametrize("model", MODELS)
every_framework = pytest.mark.parametrize("framework", ["torch", "jax", TENSORFLOW])
BATCH = 3


@every_model
def test_torch_logits_have_a_row_per_sample_and_a_column_per_class(model):
    row = CATALOG[model]
    module = torch_networks.network(row, row.sizes()).to("meta")
    x = torch.empty((BATCH, *row.input_shape), device="meta")
    assert module(x.permute(0, 3, 1, 2) if x.ndim == 4 else x).shape == (BATCH, row.classes)


@every_model
def test_jax_logits_have_a_row_per_sample_and_a_column_per_class(model):
    row = CATALOG[model]
    network = jax_networks.network(row, row.sizes())
    x = jax.ShapeDtypeStruct((BATCH, *row.input_shape), jnp.float32)
    weights = {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in network.shapes.items()}
    logits = jax.eval_shape(lambda weights, x: network.apply(network.load(weights), {"": x})[0], weights, x)
    assert logits.shape == (BATCH, row.classes)


@every_framework
@every_model
def test_parameter_count_is_the_published_one(model, framework):
    shapes = side(framework).shapes(CATALOG[model], CATALOG[model].sizes())
    trained = {name: math.prod(shape) for name, shape in shapes.items() if not is_statistic(name)}
    assert sum(trained.values()) == CATALOG[model].parameters


@every_model
def test_multiply_accumulates_are_the_published_ones(model):
    """Of one sample: convolutions, matrix products and attention, by half of their operations; nothing element-wise."""
    row = CATALOG[model]
    module = torch_networks.network(row, row.sizes()).to("meta").eval()
    x = torch.empty((1, *row.input_shape), device="meta")
    with FlopCounterMode(display=False) as counter, torch.inference_mode():
        module(x.permute(0, 3, 1, 2) if x.ndim == 4 else x)
    assert counter.get_total_flops() / 2 == pytest.approx(row.macs, rel=0.02)
