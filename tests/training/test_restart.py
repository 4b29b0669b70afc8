"""What is read back of every framework's timed programs: they begin again, tell gradients, and right twins agree."""

import functools

import numpy as np
import pytest
import torch

from fwbench.compare.agreement import agreement
from fwbench.frameworks import load
from fwbench.frameworks.torch.networks import load_weights, network
from fwbench.frameworks.training import targets
from fwbench.models import CATALOG, inputs
from fwbench.models.weights import draw, is_statistic
from fwbench.record.lanes import OWN
from fwbench.record.measurement import Measurement
from fwbench.record.sketch import Sketch
from fwbench.record.workload import Workload
from tests.sketching import of_inference, of_training
from tests.tensorflow import TENSORFLOW

FRAMEWORKS = ("torch", "jax", TENSORFLOW)


def case(lane, model="mlp", mode="train_step", **fields):
    return Workload(lane, model, mode=mode, batch_size=4, **fields)


def start(workload):
    framework, model = load(OWN[workload.lane].adapter), CATALOG[workload.model]
    return framework, model, draw(model, framework.weight_shapes(model, model.sizes()), workload.seed)


def build(workload):
    """A fresh program and the weights that it begins with."""
    framework, model, weights = start(workload)
    return framework.build(workload, model, weights), weights


def called(program, times):
    """What so many calls compute."""
    outputs = []
    for _ in range(times):
        program.step()
        program.wait()
        outputs.append(np.array(program.output()))
    return np.array(outputs)


CASES = (
    {"optimizer": "adam"},
    {"optimizer": "sgd"},
    {"accumulate": 2},
    {"precision": "bf16"},
    {"mode": "inference"},
    {"mode": "inference", "precision": "bf16"},
    {"model": "cnn", "optimizer": "sgd"},
)


@pytest.mark.parametrize("fields", CASES, ids=lambda fields: "-".join(map(str, fields.values())))
@pytest.mark.parametrize("lane", FRAMEWORKS)
def test_a_program_that_begins_again_computes_what_a_fresh_one_does(lane, fields):
    """Parameters, running statistics and the optimizer's state are those of the beginning, and so is its schedule."""
    workload = case(lane, **fields)
    program, weights = build(workload)
    with program.session():
        program.compile()
        called(program, 3)
        program.restart(weights)
        held = program.weights()
        again = called(program, 3)
        # Other weights make another output, which proves that the program takes them.
        program.restart({name: array * np.float32(1.1) for name, array in weights.items()})
        moved = called(program, 1)
    for name, array in weights.items():
        np.testing.assert_allclose(held[name], array, rtol=4e-3 if workload.precision == "bf16" else 0, err_msg=name)
    fresh, _ = build(workload)
    with fresh.session():
        # Compiling may make steps, where it cannot do without.
        fresh.compile()
        fresh.restart(weights)
        expected = called(fresh, 3)
    np.testing.assert_array_equal(again, expected)
    assert not np.allclose(moved[0], again[0], rtol=1e-4)
    if workload.mode == "train_step":
        assert again[2] < again[0]


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("lane", FRAMEWORKS)
def test_the_first_step_after_a_restart_is_an_optimizers_first(lane, optimizer):
    """Held against steps that no restart has touched: PyTorch's compile makes none."""
    fresh, weights = build(case("torch", optimizer=optimizer))
    with fresh.session():
        expected = called(fresh, 3)
    program, _ = build(case(lane, optimizer=optimizer))
    with program.session():
        program.compile()
        called(program, 2)
        program.restart(weights)
        np.testing.assert_allclose(called(program, 3), expected, rtol=1e-5)


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("lane", FRAMEWORKS)
def test_another_draw_changes_nothing_without_random_layers(lane, optimizer):
    """A draw that counted as a step would change Adam's corrections and the learning rate."""
    program, weights = build(case(lane, optimizer=optimizer))
    after = []
    with program.session():
        program.compile()
        for draw in (0, 5):
            program.restart(weights, draw)
            called(program, 1)
            after.append(program.weights())
    for name, array in after[0].items():
        np.testing.assert_array_equal(after[1][name], array, err_msg=name)


def test_the_first_step_after_a_restart_of_jax_needs_no_more_memory_than_others():
    """It writes into the buffers that it is given, which XLA refuses if these are NumPy's."""

    def aligned(array):
        memory = np.zeros(array.nbytes + 64, np.uint8)
        start = -memory.ctypes.data % 64
        copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
        copy[:] = array
        return copy

    def buffers():
        return [leaf.unsafe_buffer_pointer() for leaf in program.state]

    program, weights = build(case("jax"))
    program.compile()
    program.restart({name: aligned(array) for name, array in weights.items()})
    placed = buffers()
    called(program, 1)
    assert buffers() == placed


def autograd(workload):
    """The gradients, by PyTorch's autograd alone."""
    _, model, weights = start(case("torch", workload.model))
    module = network(model, model.sizes()).train()
    load_weights(module, weights)
    given = inputs.draw(model.inputs, workload.batch_size, workload.seed, model.sizes())[""]
    batch = torch.from_numpy(given)
    logits = module(batch.permute(0, 3, 1, 2) if batch.ndim == 4 else batch)
    labels = torch.from_numpy(targets(workload, model, tuple(logits.shape))).long()
    torch.nn.functional.cross_entropy(logits, labels).backward()
    return {name: parameter.grad.numpy() for name, parameter in module.named_parameters()}


@pytest.mark.parametrize("fields", [{"optimizer": "adam"}, {"optimizer": "sgd"}, {"accumulate": 2}], ids=str)
@pytest.mark.parametrize("model", ["mlp", "cnn"])
@pytest.mark.parametrize("lane", FRAMEWORKS)
def test_gradients_are_those_of_the_loss_under_canonical_names(lane, model, fields):
    workload = case(lane, model, **fields)
    program, weights = build(workload)
    with program.session():
        program.compile()
        called(program, 3)
        program.restart(weights)
        called(program, 1)
        found = program.gradients()
    expected = autograd(workload)
    assert found.keys() == expected.keys() == {name for name in weights if not is_statistic(name)}
    for name, array in expected.items():
        assert found[name].shape == array.shape
        assert np.linalg.norm(found[name] - array) < 1e-4 * np.linalg.norm(array), name


@functools.cache
def checked(workload):
    """A record of what the program of this workload computes."""
    program, weights = build(workload)
    with program.session():
        program.compile()
        called(program, 2)
        training = workload.mode == "train_step"
        check = of_training(program, weights, workload.precision) if training else of_inference(program, "fp32")
    return Measurement(workload, parity={"check": check})


@pytest.mark.parametrize(
    ("model", "mode"),
    [
        ("mlp", "inference"),
        ("cnn", "inference"),
        pytest.param("mobilenet_v3_small", "inference", marks=pytest.mark.slow),
        ("mlp", "train_step"),
        ("cnn", "train_step"),
    ],
)
@pytest.mark.parametrize("lane", ["jax", TENSORFLOW])
def test_right_twins_agree(lane, model, mode):
    first, other = (checked(case(name, model, mode)) for name in ("torch", lane))
    found = agreement(first, other)
    assert found.agrees, found
    assert found.bound < 0.05
    assert other.parity["check"].keys() == ({"output"} if mode == "inference" else {"loss", "gradients", "updates"})
    for packed in other.parity["check"].values():
        assert np.isfinite(Sketch.from_json(packed).moved).all()


@pytest.mark.parametrize("mode", ["inference", "train_step"])
@pytest.mark.parametrize("lane", FRAMEWORKS)
def test_a_weight_that_is_a_thousandth_off_is_found_in_every_framework(lane, mode):
    workload = case(lane, "mlp", mode)
    program, weights = build(workload)
    wrong = {**weights, "fc2.weight": weights["fc2.weight"] * np.float32(1.001)}
    with program.session():
        program.compile()
        program.restart(wrong)
        called(program, 1)
        check = of_training(program, wrong, "fp32") if mode == "train_step" else of_inference(program, "fp32")
    found = agreement(checked(case("torch", "mlp", mode)), Measurement(workload, parity={"check": check}))
    assert found.agrees is False, found
