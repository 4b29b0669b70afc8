"""Options of training steps that change no result, and the evaluation between steps."""

import dataclasses
import importlib

import jax
import numpy as np
import pytest

from fwbench.models import CATALOG, Model
from fwbench.models.importing import ModelError
from fwbench.models.project import complete
from fwbench.record.workload import Workload
from tests.programs import built, outputs
from tests.tensorflow import TENSORFLOW, XLA

LANES = ("torch", "jax")
# Of what does not depend on the size of images, compiling less and computing less.
SMALL = (("image_size", 64),)
# Nor on how many blocks a network has, which XLA compiles one by one: of MobileNetV3 the first four, among them one of
# each kind, and of ViT two. Under names of their own, for networks that were built are remembered by their models.
SHALLOW = {
    f"shallow_{name}": Model.from_json({**complete(CATALOG[name]).to_json(), "name": f"shallow_{name}"})
    for name in ("mobilenet_v3_small", "vit_b_16")
}


def workload(lane, model="mlp", mode="fit", **fields):
    return Workload(lane, model, mode=mode, **fields)


def build(case, horizon=100):
    return built(case, {**CATALOG, **SHALLOW}[case.model], horizon)[0]


@pytest.fixture
def shallow(lane, monkeypatch, freed, two_blocks):
    """Networks with few blocks; PyTorch's MobileNetV3, which needs no compiling, is whole."""
    if lane == "torch":
        return
    for name, few in (("mobilenet_v3_small", lambda rows: rows[:4]), ("vit_b_16", lambda number: 2)):
        network = importlib.import_module(SHALLOW[f"shallow_{name}"].networks[lane].partition(":")[0])
        monkeypatch.setattr(network, "_LAYERS", few(network._LAYERS))


@pytest.mark.parametrize("lane", [*LANES, TENSORFLOW])
def test_evaluation_changes_nothing_and_is_without_dropout(lane, shallow):
    program = build(workload(lane, "shallow_mobilenet_v3_small", batch_size=2, axes=SMALL))
    images, labels = np.ones((2, 64, 64, 3), np.float32), np.array([1, 2], np.int32)
    before = program.weights()
    program.score(images, labels)
    once = program.scores()
    program.score(images, labels)
    assert program.scores() == once
    after = program.weights()
    assert all(np.array_equal(before[name], after[name]) for name in before)


def trained(case):
    """Losses of two steps on the placed batch, and the weights after them."""
    program = build(case)
    program.compile()
    return outputs(program, 2)[:, 0].tolist(), program.weights()


# A train step's accumulated gradients are held against autograd's in test_restart.py.
@pytest.mark.parametrize("lane", [*LANES, TENSORFLOW, XLA])
def test_accumulated_gradients_make_the_whole_batchs_step(lane):
    whole, weights = trained(workload(lane, batch_size=8))
    parts, accumulated = trained(workload(lane, batch_size=8, accumulate=4))
    assert parts == pytest.approx(whole, rel=1e-5)
    for name in weights:
        # Adam's first steps are as long as the rate, whatever the gradient: 1e-4, less where rounding turns its sign.
        assert np.abs(accumulated[name] - weights[name]).mean() < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("lane", [*LANES, TENSORFLOW])
def test_rematerialisation_changes_no_result(lane, shallow):
    """Running statistics above all: a block that runs twice must count its batch once."""
    case = workload(lane, "shallow_mobilenet_v3_small", "train_step", batch_size=2, optimizer="sgd", axes=SMALL)
    kept, weights = trained(case)
    again, rematerialised = trained(dataclasses.replace(case, remat=True))
    # Batch normalisation over a batch of two amplifies rounding; to count the batch twice moves a mean by a hundredth.
    assert again == pytest.approx(kept, rel=1e-3)
    for name in weights:
        if "running" in name:
            np.testing.assert_allclose(rematerialised[name], weights[name], rtol=1e-3, atol=1e-4)


def test_rematerialisation_in_torch_runs_every_block_twice(monkeypatch):
    from torchvision.models.mobilenetv3 import InvertedResidual

    calls = []
    forward = InvertedResidual.forward
    monkeypatch.setattr(InvertedResidual, "forward", lambda self, x: (calls.append(self), forward(self, x))[1])
    case = workload("torch", "mobilenet_v3_small", "train_step", batch_size=2, axes=SMALL)
    for remat, times in ((False, 1), (True, 2)):
        program = build(dataclasses.replace(case, remat=remat))
        calls.clear()
        program.step()
        blocks = {id(block) for block in calls}
        assert len(blocks) == 11
        assert len(calls) == times * len(blocks)


@pytest.mark.parametrize("lane", ["jax"])
def test_rematerialisation_in_jax_computes_every_block_again(lane, shallow):
    case = workload(lane, "shallow_mobilenet_v3_small", "train_step", batch_size=2, axes=SMALL)
    kept, again = (
        str(jax.make_jaxpr(program.function)(*program.arguments))
        for program in (build(case), build(dataclasses.replace(case, remat=True)))
    )
    assert (kept.count("remat"), again.count("remat")) == (0, 4)
    # A 1x1 convolution is a matrix product on a CPU.
    again, kept = (text.count("conv_general_dilated[") + text.count("dot_general[") for text in (again, kept))
    assert again > kept


@pytest.mark.parametrize("lane", [*LANES, TENSORFLOW])
def test_a_network_without_blocks_has_nothing_to_rematerialise(lane):
    with pytest.raises(ModelError, match="no blocks that activation checkpointing"):
        build(workload(lane, "mlp", "train_step", batch_size=2, remat=True))


@pytest.mark.slow
@pytest.mark.parametrize("lane", [*LANES, TENSORFLOW])
def test_vit_trains(lane, shallow):
    losses, _ = trained(workload(lane, "shallow_vit_b_16", "train_step", batch_size=2, axes=SMALL))
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0]


def test_every_batch_reaches_every_lane_alike():
    """What `feed` puts on the device is what the loader gave, in the layout of each framework."""
    images = np.random.default_rng(0).standard_normal((2, 32, 32, 3), dtype=np.float32)
    labels = np.array([3, 1], np.int32)
    for lane in LANES:
        program = build(workload(lane, "cnn", batch_size=2))
        program.feed(images, labels)
        x = program.inputs[""]
        np.testing.assert_array_equal(x.permute(0, 2, 3, 1) if lane == "torch" else x, images)
        np.testing.assert_array_equal(program.targets[0], labels)
