"""Epochs on real data with real frameworks: the same curves, true scores."""

import functools
import itertools
import statistics

import numpy as np
import pytest
import torch

from fwbench.ext.epochs.data import open_data
from fwbench.ext.epochs.loop import Epochs
from fwbench.frameworks import load
from fwbench.models import CATALOG
from fwbench.models.weights import draw
from fwbench.record.lanes import OWN
from fwbench.record.workload import Workload
from fwbench.suite.studies import studies
from tests.programs import built
from tests.tensorflow import TENSORFLOW, XLA

LANES = ("torch", "jax")
if "mnist-mlp" not in studies():
    pytest.skip("the extension studies is not here", allow_module_level=True)
STUDY = studies()["mnist-mlp"].parts[0]
# Rounding moves a float32 loss by 1e-7 a step; another batch, label or rate by far more.
FIRST_STEPS, BOUND = 10, 1e-4
# The study's own number of epochs where it matters how well a network has learned.
EPOCHS = STUDY.settings["epochs"][0]


@functools.cache
def fitted(lane, batch_size=64, seed=0, data="digits", model="mlp", epochs=2):
    """The training of a workload of the study, its test scores, and the trained weights."""
    case = Workload(
        lane,
        model,
        "fit",
        batch_size=batch_size,
        seed=seed,
        learning_rate=STUDY.settings["learning_rate"][0],
        data=data,
        epochs=epochs,
    )
    with open_data(data, CATALOG[model], seed=seed) as source:
        program, _ = built(case, horizon=source.sizes["train"] // batch_size * epochs)
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
    cases = [{"mode": "fit", "device": "gpu"}, {"mode": "fit"}, {"mode": "train_step", "device": "gpu"}]
    made = [torch_lanes.build(Workload("torch", "mlp", batch_size=16, **case), model, weights) for case in cases]
    assert [program.staged for program in made] == [True, False, False]
    programs = [made[1], made[0]]
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
