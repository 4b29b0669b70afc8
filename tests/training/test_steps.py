"""The training step that is measured: the same in every lane, and really training."""

import dataclasses
import functools

import numpy as np
import pytest

from fwbench.frameworks import load
from fwbench.models import CATALOG
from fwbench.models.weights import draw
from fwbench.record.lanes import OWN
from fwbench.record.workload import Workload
from tests.tensorflow import TENSORFLOW, XLA

STEPS = 4
# Of the length of what the steps changed. Rounding moves float32 by 2e-5 (Adam, whose first steps divide small
# gradients by their own size) or 5e-7 (SGD); a learning rate or momentum off by a hundredth moves it by 5e-3 and more.
BOUND = 1e-3


@functools.cache
def trained(workload):
    """Losses of a few steps on one batch, and the weights before and after."""
    framework, model = load(OWN[workload.lane].adapter), CATALOG[workload.model]
    start = draw(model, framework.weight_shapes(model, model.sizes()), workload.seed)
    program = framework.build(workload, model, start)
    losses = []
    with program.session():
        program.compile()
        while len(losses) < STEPS:
            program.step()
            program.wait()
            losses.append(float(program.output()[0]))
    return losses, start, program.weights()


def case(lane, model="cnn", **fields):
    return Workload(lane, model, mode="train_step", batch_size=4, **fields)


def distance(one, other):
    return np.sqrt(sum(float(np.sum(np.square(one[name] - other[name]))) for name in one))


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("model", ["mlp", "cnn"])
def test_torch_and_jax_take_the_same_steps(model, optimizer):
    expected, start, reference = trained(case("torch", model, optimizer=optimizer))
    losses, _, weights = trained(case("jax", model, optimizer=optimizer))
    assert losses == pytest.approx(expected, rel=1e-5)
    assert distance(weights, reference) < BOUND * distance(reference, start)


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("model", ["mlp", "cnn"])
@pytest.mark.parametrize("lane", [TENSORFLOW, XLA])
def test_tensorflow_takes_the_same_steps(lane, model, optimizer):
    expected, *_ = trained(case("torch", model, optimizer=optimizer))
    losses, *_ = trained(case(lane, model, optimizer=optimizer))
    # Compiling makes the first step.
    assert losses[: STEPS - 1] == pytest.approx(expected[1:], rel=1e-5)


@pytest.mark.slow
def test_compiled_torch_takes_the_same_steps():
    expected, *_ = trained(case("torch"))
    losses, *_ = trained(case("torch-compile"))
    # Compiling makes the first step.
    assert losses[: STEPS - 1] == pytest.approx(expected[1:], rel=1e-5)


@pytest.mark.parametrize("lane", ["torch", "jax", TENSORFLOW])
def test_the_loss_on_a_repeated_batch_falls(lane):
    losses, *_ = trained(case(lane))
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("lane", ["torch", "jax", TENSORFLOW])
def test_optimizers_and_seeds_make_a_difference(lane):
    workload = case(lane)
    losses, *_ = trained(workload)
    assert trained(dataclasses.replace(workload, optimizer="sgd"))[0][1:] != pytest.approx(losses[1:], rel=1e-3)
    assert trained(dataclasses.replace(workload, seed=1))[0] != pytest.approx(losses, rel=1e-3)


@pytest.mark.parametrize("lane", ["torch", "jax", TENSORFLOW])
def test_bf16_is_mixed_precision(lane):
    """Losses near float32's and not equal to them; weights that keep changes too small for bfloat16."""
    exact, *_ = trained(case(lane))
    losses, start, weights = trained(case(lane, precision="bf16"))
    assert losses == pytest.approx(exact, rel=2e-2)
    assert losses != exact
    # Adam's steps are about 1e-4 long; bfloat16 resolves 4e-3 of a scale near 1 and would keep none of them.
    changed = np.mean(weights["fc.weight"] != start["fc.weight"])
    assert changed > 0.9
    assert np.abs(weights["fc.weight"] - start["fc.weight"]).max() < 1e-3
