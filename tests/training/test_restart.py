"""The timed programs of every framework: they begin again, take the same steps, move, tell gradients, and agree."""

import functools
import gc
import weakref

import numpy as np
import pytest
import torch

import fwbench
from fwbench.compare.agreement import agreement
from fwbench.frameworks.torch.networks import load_weights, network, shapes
from fwbench.frameworks.training import targets
from fwbench.meters.sketching import of_inference, of_training
from fwbench.models import CATALOG, inputs
from fwbench.models.weights import draw, is_statistic
from fwbench.record.measurement import Measurement
from fwbench.record.sketch import Sketch
from fwbench.record.workload import Workload
from tests.programs import built, outputs
from tests.tensorflow import TENSORFLOW, XLA

every_lane = pytest.mark.parametrize("lane", ["torch", "jax", TENSORFLOW])
every_mode = pytest.mark.parametrize("mode", ["inference", "train_step"])
every_optimizer = pytest.mark.parametrize("optimizer", ["adam", "sgd"])


# So few that a schedule which goes on after a restart shows.
HORIZON = 20


def case(lane, model="mlp", mode="train_step", **fields):
    return Workload(lane, model, mode=mode, batch_size=4, **fields)


@functools.cache
def used(workload):
    """A program that has made some calls, and the weights that it was built with; tests begin with its restart."""
    program, weights = built(workload, horizon=HORIZON)
    with program.session():
        program.compile()
        outputs(program, 3)
    return program, weights


@pytest.fixture(scope="module", autouse=True)
def no_program_left():
    yield
    used.cache_clear()


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
@every_lane
def test_a_program_that_begins_again_computes_what_a_fresh_one_does(lane, fields):
    """Parameters, running statistics and the optimizer's state are those of the beginning, and so is its schedule."""
    workload = case(lane, **fields)
    program, weights = used(workload)
    with program.session():
        program.restart(weights)
        held = program.weights()
        again = outputs(program, 3)
        # Other weights make another output, which proves that the program takes them.
        program.restart({name: array * np.float32(1.1) for name, array in weights.items()})
        moved = outputs(program, 1)
    for name, array in weights.items():
        np.testing.assert_allclose(held[name], array, rtol=4e-3 if workload.precision == "bf16" else 0, err_msg=name)
    fresh, _ = built(workload, horizon=HORIZON)
    with fresh.session():
        # Compiling may make steps, where it cannot do without.
        fresh.compile()
        fresh.restart(weights)
        expected = outputs(fresh, 3)
    np.testing.assert_array_equal(again, expected)
    assert not np.allclose(moved[0], again[0], rtol=1e-4)
    if workload.mode == "train_step":
        assert again[2] < again[0]


class Averaged(torch.nn.Module):
    """Takes a moving average away, which is no weight."""

    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(6, 4)
        self.register_buffer("centre", torch.zeros(4))

    def forward(self, x):
        x = self.line(x)
        if self.training:
            with torch.no_grad():
                self.centre.lerp_(x.mean(0), 0.5)
        return x - self.centre


def test_a_moving_average_begins_again_with_the_weights():
    """Otherwise two steps from the same weights differ, as those of random layers do."""
    model = fwbench.Model("averaged", torch=f"{__name__}:Averaged", inputs=fwbench.normal(6))
    program, weights = built(case("torch", "averaged"), model)
    losses = []
    with program.session():
        for _ in range(2):
            program.restart(weights)
            losses.append(outputs(program, 2))
    np.testing.assert_array_equal(*losses)


@every_optimizer
@every_lane
def test_another_draw_changes_nothing_without_random_layers(lane, optimizer):
    """A draw that counted as a step would change Adam's corrections and the learning rate."""
    program, weights = used(case(lane, optimizer=optimizer))
    after = []
    with program.session():
        for number in (0, 5):
            program.restart(weights, number)
            outputs(program, 1)
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

    program, weights = used(case("jax", optimizer="adam"))
    program.restart({name: aligned(array) for name, array in weights.items()})
    placed = buffers()
    outputs(program, 1)
    assert buffers() == placed


@functools.cache
def autograd(name):
    """A model's gradients, by PyTorch's autograd alone."""
    model, workload = CATALOG[name], case("torch", name)
    module = network(model, model.sizes()).train()
    load_weights(module, draw(model, shapes(module), workload.seed))
    batch = torch.from_numpy(inputs.draw(model.inputs, workload.batch_size, workload.seed, model.sizes())[""])
    logits = module(batch.permute(0, 3, 1, 2) if batch.ndim == 4 else batch)
    labels = torch.from_numpy(targets(workload, model, tuple(logits.shape))).long()
    torch.nn.functional.cross_entropy(logits, labels).backward()
    return {name: parameter.grad.numpy() for name, parameter in module.named_parameters()}


# They are read from an optimizer's moments, whatever the network: one of convolutions shows layouts.
@pytest.mark.parametrize("fields", [*CASES[:3], CASES[-1]], ids=str)
@every_lane
def test_gradients_are_those_of_the_loss_under_canonical_names(lane, fields):
    program, weights = used(case(lane, **fields))
    with program.session():
        program.restart(weights)
        outputs(program, 1)
        found = program.gradients()
    expected = autograd(fields.get("model", "mlp"))
    assert found.keys() == expected.keys() == {name for name in weights if not is_statistic(name)}
    for name, array in expected.items():
        assert found[name].shape == array.shape
        assert np.linalg.norm(found[name] - array) < 1e-4 * np.linalg.norm(array), name


@functools.cache
def sketched(workload, factor=1.0):
    """A record of what the program of this workload computes, with one weight multiplied by a factor."""
    program, weights = used(workload)
    if factor != 1:
        weights = {**weights, "fc2.weight": weights["fc2.weight"] * np.float32(factor)}
    with program.session():
        program.restart(weights)
        outputs(program, 1)
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
    first, other = (sketched(case(name, model, mode)) for name in ("torch", lane))
    found = agreement(first, other)
    assert found.agrees, found
    assert found.bound < 0.05
    assert other.parity["check"].keys() == ({"output"} if mode == "inference" else {"loss", "gradients", "updates"})
    for packed in other.parity["check"].values():
        assert np.isfinite(Sketch.from_json(packed).moved).all()


@every_mode
@every_lane
def test_a_weight_that_is_a_thousandth_off_is_found_in_every_framework(lane, mode):
    found = agreement(sketched(case("torch", "mlp", mode)), sketched(case(lane, "mlp", mode), 1.001))
    assert found.agrees is False, found


def trained(workload):
    """Losses of four steps on one batch, and the weights before and after."""
    program, start = used(workload)
    with program.session():
        program.restart(start)
        return outputs(program, 4)[:, 0].tolist(), start, program.weights()


@functools.cache
def untouched(workload):
    """The same by PyTorch without any restart; its compiling makes no step."""
    program, start = built(workload, horizon=HORIZON)
    with program.session():
        return outputs(program, 4)[:, 0].tolist(), start, program.weights()


def distance(one, other):
    return np.sqrt(sum(float(np.sum(np.square(one[name] - other[name]))) for name in one))


@every_optimizer
@pytest.mark.parametrize(
    ("lane", "model"),
    [
        ("torch", "mlp"),
        ("jax", "mlp"),
        ("jax", "cnn"),
        pytest.param(*TENSORFLOW.values, "mlp", marks=TENSORFLOW.marks),
        pytest.param(*TENSORFLOW.values, "cnn", marks=TENSORFLOW.marks),
        pytest.param(*XLA.values, "mlp", marks=XLA.marks),
        pytest.param(*XLA.values, "cnn", marks=[*XLA.marks, pytest.mark.slow]),
        pytest.param("torch-compile", "cnn", marks=pytest.mark.slow),
    ],
)
def test_all_lanes_take_the_same_steps(lane, model, optimizer):
    """After a restart, whose first step must be an optimizer's first."""
    expected, start, reference = untouched(case("torch", model, optimizer=optimizer))
    losses, _, weights = trained(case(lane, model, optimizer=optimizer))
    assert losses == pytest.approx(expected, rel=1e-5)
    # Of the length of what the steps changed. Rounding moves float32 by 2e-5 (Adam, whose first steps divide small
    # gradients by their own size) or 5e-7 (SGD); a learning rate or momentum off by a hundredth by 5e-3 and more.
    assert distance(weights, reference) < 1e-3 * distance(reference, start)


@every_lane
def test_optimizers_and_seeds_make_a_difference(lane):
    losses, *_ = trained(case(lane))
    assert trained(case(lane, optimizer="sgd"))[0][1:] != pytest.approx(losses[1:], rel=1e-3)
    assert trained(case(lane, seed=1))[0] != pytest.approx(losses, rel=1e-3)


@every_lane
@pytest.mark.parametrize("model", ["mlp", pytest.param("cnn", marks=pytest.mark.slow)])
def test_bf16_is_mixed_precision(lane, model):
    """Losses near float32's and not equal to them; weights that keep changes too small for bfloat16."""
    exact, _, reference = trained(case(lane, model))
    losses, start, weights = trained(case(lane, model, precision="bf16"))
    assert losses == pytest.approx(exact, rel=2e-2)
    assert losses != exact
    # Adam's steps are about 1e-4 long; bfloat16 resolves 4e-3 of a scale near 1 and would keep none of them. Weights of
    # units that are off for the whole batch do not move in float32 either.
    last = {"mlp": "fc3.weight", "cnn": "fc.weight"}[model]
    moved, in_float32 = (np.mean(array[last] != start[last]) for array in (weights, reference))
    assert moved > 0.9 * in_float32 > 0.7
    # Numbers of bfloat16 would all differ from those of the start, too.
    kept = torch.tensor(weights[last])
    assert (kept != kept.bfloat16()).float().mean() > 0.9
    assert np.abs(weights[last] - start[last]).max() < 1e-3


# Layouts of kernels have a case of their own: convolutions take XLA seconds to compile.
@every_mode
@pytest.mark.parametrize(
    ("lane", "model"),
    [
        ("torch", "cnn"),
        pytest.param("torch-compile", "cnn", marks=pytest.mark.slow),
        ("jax", "mlp"),
        pytest.param("jax", "cnn", marks=pytest.mark.slow),
        pytest.param(*TENSORFLOW.values, "mlp", marks=TENSORFLOW.marks),
        pytest.param(*XLA.values, "mlp", marks=XLA.marks),
        pytest.param(*XLA.values, "cnn", marks=[*XLA.marks, pytest.mark.slow]),
    ],
)
def test_a_program_goes_on_in_fresh_memory_as_if_nothing_had_happened(lane, model, mode):
    program, weights = used(case(lane, model, mode))
    with program.session():
        program.restart(weights)
        expected = outputs(program, 6)
        program.restart(weights)
        found = outputs(program, 3)
    before = addresses(program)
    assert len(before) >= 7
    program.relocate()
    assert not before & addresses(program)
    with program.session():
        assert np.array_equal([*found, *outputs(program, 3)], expected)


@every_mode
def test_what_was_left_behind_is_not_kept(mode):
    """A second copy of the state would be in every peak of memory."""
    program, _ = used(case("jax", mode=mode))
    old = [weakref.ref(array) for array in held(program)]
    program.relocate()
    gc.collect()
    assert not [reference for reference in old if reference() is not None]


def held(program):
    """Everything that lies on the device."""
    if hasattr(program, "module"):
        optimizer = getattr(program, "optimizer", None)
        moments = [tensor for state in optimizer.state.values() for tensor in state.values()] if optimizer else []
        return [*program.inputs.values(), *program.module.parameters(), *program.module.buffers(), *moments]
    if hasattr(program, "network") and hasattr(program.network, "held"):
        variables = [*program.network.held, *getattr(getattr(program, "optimizer", None), "held", [])]
        return [*program.inputs.values(), *(variable.read_value() for variable in variables)]
    return [*program.inputs.values(), *getattr(program, "state", getattr(program, "leaves", []))]


def addresses(program):
    return {address(array) for array in held(program)}


def address(array):
    if hasattr(array, "data_ptr"):
        return array.data_ptr()
    # TensorFlow tells of none by itself.
    return np.from_dlpack(array).ctypes.data if hasattr(array, "numpy") else array.unsafe_buffer_pointer()
