"""Epochs on real data with real frameworks: the same curves, true scores, and options that change no result."""

import dataclasses
import functools
import importlib
import itertools
import statistics

import jax
import numpy as np
import pytest
import torch

from fwbench.data import open_data
from fwbench.frameworks import load
from fwbench.meters.epochs import Epochs
from fwbench.models import CATALOG, Model
from fwbench.models.importing import ModelError
from fwbench.models.project import complete
from fwbench.models.weights import draw
from fwbench.record.lanes import OWN
from fwbench.record.workload import Workload
from fwbench.suite.studies import studies
from tests.programs import built, outputs
from tests.tensorflow import TENSORFLOW, XLA

LANES = ("torch", "jax")
if "mnist-mlp" not in studies():
    pytest.skip("the extension studies is not here", allow_module_level=True)
STUDY = studies()["mnist-mlp"].parts[0]
# Of what does not depend on the size of images, compiling less and computing less.
SMALL = (("image_size", 64),)
# Nor on how many blocks a network has, which XLA compiles one by one: of MobileNetV3 the first four, among them one of
# each kind, and of ViT two. Under names of their own, for networks that were built are remembered by their models.
SHALLOW = {
    f"shallow_{name}": Model.from_json({**complete(CATALOG[name]).to_json(), "name": f"shallow_{name}"})
    for name in ("mobilenet_v3_small", "vit_b_16")
}
# Rounding moves a float32 loss by 1e-7 a step; another batch, label or rate by far more.
FIRST_STEPS, BOUND = 10, 1e-4


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


# The study's own number of epochs where it matters how well a network has learned.
EPOCHS = STUDY.settings["epochs"][0]


@functools.cache
def fitted(lane, batch_size=64, seed=0, data="digits", model="mlp", epochs=2):
    """The training of a workload of the study, its test scores, and the trained weights."""
    case = workload(
        lane,
        model,
        batch_size=batch_size,
        seed=seed,
        learning_rate=STUDY.settings["learning_rate"][0],
        data=data,
        epochs=epochs,
    )
    with open_data(data, CATALOG[model], seed=seed) as source:
        program = build(case, source.sizes["train"] // batch_size * epochs)
        run = Epochs(program, source, batch_size, clock=lambda: 0.0, counter=None)
        run.run(program.compile)
        for _ in range(epochs - 1):
            run.run()
        return run.training, run.test(), program.weights()


@pytest.mark.parametrize("lane", ["jax", TENSORFLOW, XLA])
def test_all_frameworks_take_the_same_first_steps(lane):
    torch_losses, losses = (fitted(each)[0].losses[:FIRST_STEPS] for each in ("torch", lane))
    assert len(losses) == FIRST_STEPS
    assert losses == pytest.approx(torch_losses, rel=BOUND)


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [size for size in STUDY.batch_sizes if size != 64])
def test_so_they_do_with_batches_of_other_sizes(batch_size):
    torch_losses, jax_losses = (fitted(lane, batch_size, epochs=EPOCHS)[0].losses[:FIRST_STEPS] for lane in LANES)
    assert jax_losses == pytest.approx(torch_losses, rel=BOUND)


@pytest.mark.slow
def test_both_frameworks_end_within_the_spread_between_seeds():
    accuracies = {
        lane: [fitted(lane, seed=seed, epochs=EPOCHS)[1].top1 for seed in STUDY.settings["seed"]] for lane in LANES
    }
    means = [statistics.mean(accuracies[lane]) for lane in LANES]
    spread = min(statistics.stdev(accuracies[lane]) for lane in LANES)
    assert min(means) >= 0.95
    assert abs(means[0] - means[1]) <= spread


def test_on_a_gpu_batches_go_through_one_pinned_tensor_and_compute_the_same(monkeypatch):
    """Here the tensor is an ordinary one, and the device the CPU."""
    pinned, empty = [], torch.empty

    def unpinned(*size, pin_memory=False, **given):
        pinned.extend([size] * pin_memory)
        return empty(*size, **given)

    monkeypatch.setattr(torch, "empty", unpinned)
    monkeypatch.setattr("fwbench.frameworks.torch.program.device_of", lambda *given: torch.device("cpu"))
    torch_lanes, model = load(OWN["torch"].adapter), CATALOG["mlp"]
    weights = draw(model, torch_lanes.weight_shapes(model, {}), 0)
    cases = [{"device": "gpu"}, {}, {"device": "gpu", "mode": "train_step"}]
    built = [torch_lanes.build(workload("torch", batch_size=16, **case), model, weights) for case in cases]
    assert [program.staged for program in built] == [True, False, False]
    programs = [built[1], built[0]]
    with open_data("digits", model) as data:
        for images, labels in itertools.islice(data.batches("train", 16), 3):
            for program in programs:
                program.feed(images, labels)
                program.step()
    plain, staged = (program.curve() for program in programs)
    assert plain == staged
    assert len(pinned) == 1


@pytest.mark.parametrize("lane", [*LANES, TENSORFLOW, XLA])
def test_the_scores_are_those_of_the_trained_weights(lane):
    """Against NumPy: the test split's 180 samples fill no whole number of batches of 64, so padding is left out."""
    _, scores, weights = fitted(lane)
    with open_data("digits", CATALOG["mlp"], seed=0) as data:
        batches = list(data.batches("test", 64))
        assert data.sizes["test"] % 64
    x, labels = (np.concatenate(arrays) for arrays in zip(*batches, strict=True))
    x, labels = x[labels >= 0].astype(np.float64), labels[labels >= 0]
    layers = sorted({name.rpartition(".")[0] for name in weights})
    for layer in layers:
        x = x @ weights[f"{layer}.weight"].T + weights[f"{layer}.bias"]
        x = x if layer == layers[-1] else np.maximum(x, 0)
    order = np.argsort(-x, axis=1)
    shifted = x - x.max(axis=1, keepdims=True)
    chosen = shifted[np.arange(len(x)), labels] - np.log(np.exp(shifted).sum(axis=1))
    assert scores.loss == pytest.approx(-chosen.mean(), rel=1e-4)
    assert scores.top1 == pytest.approx(np.mean(order[:, 0] == labels))
    assert scores.top5 == pytest.approx(np.mean((order[:, :5] == labels[:, None]).any(axis=1)))


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


# Labels come from one loader, so that those in PyTorch show what would leak into the others.
@pytest.mark.parametrize(
    "lane",
    [
        "torch",
        pytest.param("jax", marks=pytest.mark.slow),
        pytest.param(*TENSORFLOW.values, marks=[*TENSORFLOW.marks, pytest.mark.slow]),
    ],
)
def test_random_labels_cannot_be_learned(lane):
    """The small-CNN study's sanity check: 128 validation samples are right by chance, within 4 standard deviations."""
    training, scores, _ = fitted(lane, 128, 0, data="synthetic", model="cnn", epochs=2)
    chance = 1 / CATALOG["cnn"].classes
    for found in (training.epochs[-1].validation, scores):
        assert abs(found.top1 - chance) < 4 * np.sqrt(chance * (1 - chance) / 128)


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
