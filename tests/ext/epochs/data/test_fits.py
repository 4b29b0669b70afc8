"""The data's way into a measurement: real workers, real frameworks, real loader processes."""

import contextlib
import os
import signal
import sys

import pytest

from fwbench.machine import machine
from fwbench.record.measurement import NO_SCALING
from fwbench.record.workload import Workload
from fwbench.worker.client.workers import Workers
from tests.ext.epochs.data.processes import loaders
from tests.unit.fakes import NO_PROJECT
from tests.unit.processes import gone, grandchildren

LANES = ("torch", "jax")


@pytest.fixture(scope="module")
def workers():
    with contextlib.closing(Workers(machine(), "cpu", {}, NO_PROJECT)) as found:
        yield found


@pytest.fixture
def fit(workers, protocol):
    def measure(lane, model="mlp", *, tell=lambda stage: None, **fields):
        return workers.measure(Workload(lane, model, "fit", **fields), protocol, tell)

    return measure


@pytest.mark.slow
def test_both_frameworks_train_on_mnists_files(fit, mnist_folder):
    torch, jax = (fit(lane, batch_size=64, data="mnist", data_path=str(mnist_folder), epochs=2) for lane in LANES)
    for measurement in (torch, jax):
        assert measurement.failure is None
        assert len(measurement.samples) == 2
        # 200 images, of which 80 % are trained on: two batches of 64.
        assert len(measurement.training["losses"]) == 4
        assert measurement.value("test_loss") > 0
    assert torch.training["batches"] == jax.training["batches"]
    assert torch.training["losses"] == pytest.approx(jax.training["losses"], rel=1e-3)


@pytest.mark.slow
def test_files_that_are_missing_are_one_sentence(fit, tmp_path):
    failure = fit("jax", batch_size=64, data="mnist", data_path=str(tmp_path / "none")).failure
    assert (failure.kind, failure.stage) == ("error", "data")
    assert str(tmp_path / "none") in failure.message


@pytest.mark.slow
def test_images_come_from_loader_processes_that_end_with_the_training(fit, imagenet_folder):
    seen = []

    def look(stage):
        if stage == "training":
            seen.extend(loader for child in grandchildren(os.getpid()) for loader in loaders(child))

    measurement = fit("torch", "cnn", batch_size=2, data="imagenet-100", data_path=str(imagenet_folder), tell=look)
    assert measurement.failure is None
    assert len(measurement.training["losses"]) == 7
    assert measurement.metrics["test_top1"].reason == "the data has no split 'test'"
    assert seen
    assert gone(seen)


@pytest.mark.slow
def test_a_worker_that_is_killed_leaves_no_loader(fit, imagenet_folder):
    seen = []

    def kill(stage):
        if stage == "training, epoch 1":
            for worker in grandchildren(os.getpid()):
                seen.extend(loaders(worker))
                os.kill(worker, signal.SIGKILL)

    measurement = fit("torch", "cnn", batch_size=2, data="imagenet-100", data_path=str(imagenet_folder), tell=kill)
    assert measurement.failure.kind == "crashed"
    assert seen
    assert gone(seen)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="pins ranks to CPUs")
@pytest.mark.parametrize("lane", LANES)
def test_a_fit_over_two_ranks_is_that_of_one(fit, lane):
    one, two = (fit(lane, batch_size=64, data="digits", accumulate=2, devices=devices) for devices in (1, 2))
    assert (one.failure, two.failure) == (None, None)
    # Of the whole batch, and not of a rank's slice: steps, then whole splits.
    assert len(two.training["losses"]) == len(one.training["losses"]) > 10
    assert two.training["losses"] == pytest.approx(one.training["losses"], rel=1e-4)
    assert two.training["accuracies"] == pytest.approx(one.training["accuracies"], abs=2 / 64)
    for name in ("validation_loss", "test_loss"):
        assert two.value(name) == pytest.approx(one.value(name), rel=1e-4)
    assert two.parity["weights"] == one.parity["weights"]
    assert [rank.rank for rank in two.ranks] == [0, 1]
    assert two.settings["data_parallel"].startswith({"torch": "DistributedDataParallel", "jax": "shard_map"}[lane])
    assert two.settings["caution"] == NO_SCALING
