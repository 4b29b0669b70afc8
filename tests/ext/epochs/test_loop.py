import dataclasses
from types import SimpleNamespace

import pytest

from fwbench.ext.epochs.loop import Epoch, Epochs, fitting, resolved
from fwbench.frameworks.contract import Scores
from fwbench.meters.energy import counter
from fwbench.record.measurement import Metric, unavailable
from fwbench.record.metrics import METRICS
from tests.ext.epochs.fakes import FakeData
from tests.unit.fakes import FakeTrainer
from tests.unit.test_meters import make_rapl

SIZES = {"train": 40, "validation": 15, "test": 5}
BATCH = 10
BATCHES = {"train": 4, "validation": 2}


@pytest.fixture
def fit(clock):
    """Train a fake for some epochs; returns its records."""

    def run(count=1, *, delay=0.0, sizes=SIZES, counter=None, prepare=lambda: None, **trainer):
        epochs = Epochs(FakeTrainer(clock, **trainer), FakeData(clock, sizes, delay), BATCH, clock, counter)
        epochs.run(prepare)
        for _ in range(count - 1):
            epochs.run()
        return epochs

    return run


def test_every_second_of_an_epoch_has_one_share(fit):
    (epoch,) = fit(delay=0.5).training.epochs
    assert epoch.computing == BATCHES["train"] * 1.0
    assert epoch.evaluating == BATCHES["validation"] * 0.25
    assert epoch.waiting == sum(BATCHES.values()) * 0.5
    assert epoch.seconds == epoch.computing + epoch.evaluating + epoch.waiting
    # Validation's wait for data is no part of training.
    assert epoch.training == BATCHES["train"] * (1.0 + 0.5)


def test_a_slower_loader_moves_the_wait_and_nothing_else(fit):
    (fast,), (slow,) = (fit(delay=delay).training.epochs for delay in (0.125, 0.375))
    assert slow.waiting - fast.waiting == sum(BATCHES.values()) * 0.25
    assert (slow.computing, slow.evaluating) == (fast.computing, fast.evaluating)
    assert slow.seconds - fast.seconds == slow.waiting - fast.waiting


def test_each_step_is_waited_for_before_the_next_batch_is_asked_for(clock):
    trainer = FakeTrainer(clock)
    Epochs(trainer, FakeData(clock, {"train": 20}), BATCH, clock, None).run()
    assert trainer.log == ["feed", "step", "wait"] * 2


def test_the_first_epoch_pays_for_the_compilation(fit, clock):
    first, second = fit(2, prepare=lambda: clock.advance(7.0)).training.epochs
    assert first.computing - second.computing == 7.0
    assert first.seconds - second.seconds == 7.0


def test_curves_have_a_point_a_step_and_epochs_their_means(fit):
    training = fit(2, losses=[4.0, 3.0, 2.0, 1.0, 0.5, 0.5, 0.5, 0.5]).training
    assert training.losses == [4.0, 3.0, 2.0, 1.0, 0.5, 0.5, 0.5, 0.5]
    assert training.accuracies == [0.5] * 8
    assert [epoch.train_loss for epoch in training.epochs] == [2.5, 0.5]
    assert [epoch.samples for epoch in training.epochs] == [40, 40]


def test_validation_and_test_see_every_sample_of_their_split(fit):
    epochs = fit()
    assert epochs.training.epochs[0].validation.loss == SIZES["validation"]
    assert epochs.test().loss == SIZES["test"]


def test_data_without_a_split_has_no_scores_of_it(fit):
    epochs = fit(sizes={"train": 40})
    assert epochs.training.epochs[0].validation is None
    assert epochs.training.epochs[0].evaluating == 0.0
    assert epochs.test() is None


def test_energy_is_what_the_counter_moved_by(fit, clock):
    class Counter:
        def read(self):
            return 100.0 * clock.now

    first, second = fit(2, counter=Counter()).training.epochs
    assert (first.energy, second.energy) == (100.0 * first.seconds, 100.0 * second.seconds)


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_ends_the_training(fit, loss):
    with pytest.raises(ArithmeticError, match="not finite in epoch 2"):
        fit(2, losses=[1.0] * 6 + [loss] + [1.0])


def test_a_counter_that_wraps_several_times_within_an_epoch_misses_nothing(clock, tmp_path):
    """10 W for 400 s, on a counter that starts again after 300 J."""
    make_rapl(tmp_path, [0], wrap=299_999_999)

    class Drawing(FakeTrainer):
        def wait(self):
            super().wait()
            make_rapl(tmp_path, [int(clock.now * 10e6) % 300_000_000], wrap=299_999_999)

    epochs = Epochs(Drawing(clock, 10.0), FakeData(clock, {"train": 400}), BATCH, clock, counter("cpu", tmp_path))
    epochs.run()
    (epoch,) = epochs.training.epochs
    assert (epoch.seconds, epoch.energy) == (400.0, pytest.approx(4000.0))


EPOCH = Epoch(10.0, 7.0, 2.0, 5.0, 3.0, 70, 0.5, 0.75, Scores(0.25, 0.5, 1.0), None)


PERIOD = Metric(0.1, "polled")


def untold(epochs, tested=None):
    return fitting(epochs, tested, "no counter", unavailable("energy counter", "no counter"))


def test_single_numbers_are_medians_of_the_epochs_after_the_first():
    steady = ((4.0, 1.0), (13.0, 10.0), (5.0, 2.0))
    epochs = [EPOCH, *(dataclasses.replace(EPOCH, seconds=s, training=t, waiting=1.0) for s, t in steady)]
    found = {name: metric.value for name, metric in untold(epochs, Scores(0.75, 0.25, 0.5)).items()}
    assert found["first_epoch_time"] == 10.0
    assert found["epoch_time"] == 5.0
    assert found["epoch_wait_time"] == 1.0
    # 70 samples in 1, 10 and 2 seconds.
    assert found["throughput"] == 35.0
    assert (found["validation_loss"], found["validation_top1"], found["validation_top5"]) == (0.25, 0.5, 1.0)
    assert (found["test_loss"], found["test_top1"], found["test_top5"]) == (0.75, 0.25, 0.5)
    assert found["epoch_energy"] is None


def energy(*joules, seconds=0.3, period=0.1, fault=""):
    """What is said of the energy of epochs that took so long and drew so much."""
    epochs = [dataclasses.replace(EPOCH, seconds=seconds, energy=each) for each in joules]
    meter = SimpleNamespace(name="a counter", fault=fault)
    return fitting(epochs, None, meter, Metric(period, "polled"))["epoch_energy"]


@pytest.mark.parametrize(
    ("joules", "options", "value", "said"),
    [
        # A counter that moves every 100 ms stands still during most short epochs: their mean counts.
        ([50.0, 0.0, 0.0, 0.0, 8.0], {}, 2.0, "mean of the 4 epochs"),
        ([0.0] * 4, {}, None, "0.9 s"),
        # A slower counter asks for more of the very epochs that are enough for one that moves every 100 ms.
        ([2.0] * 4, {"seconds": 0.5}, 2.0, "mean of the 3 epochs"),
        ([2.0] * 4, {"seconds": 0.5, "period": 0.2}, None, "every 200 ms: at least 2 s"),
        ([2.0], {"seconds": 0.5}, None, "one epoch"),
    ],
)
def test_the_energy_of_epochs_is_their_mean_if_the_counter_resolves_all_of_them(joules, options, value, said):
    found = energy(*joules, **options)
    assert (found.value, said in (found.reason or found.source)) == (value, True), found


def test_a_counter_that_fails_while_it_trains_tells_no_energy_and_its_reason():
    found = energy(*[50.0] * 4, seconds=9.0, fault="could not be read (GPU is lost)")
    assert (found.value, found.reason) == (None, "could not be read (GPU is lost)")


@pytest.mark.parametrize(("seconds", "energy"), [(0.06, None), (0.9, None), (1.5, 12.5)])
def test_a_record_has_the_energy_of_an_epoch_only_if_the_counter_resolves_it(seconds, energy):
    """Epochs of 60 ms had 0 J or 12.5 J on an H200, as its counter had moved meanwhile or not."""
    epoch = dataclasses.replace(EPOCH, seconds=seconds, energy=12.5)
    assert resolved(epoch, PERIOD) == dataclasses.replace(epoch, energy=energy)


def test_a_single_epoch_has_no_steady_ones():
    found = untold([EPOCH])
    assert "one epoch" in found["epoch_time"].reason
    assert "no split 'test'" in found["test_top1"].reason


def test_every_metric_that_is_made_is_listed():
    told = {name for name in METRICS if "epoch" in name or name.startswith(("train_", "validation_", "test_"))}
    assert untold([EPOCH]).keys() == {*told, "throughput"}
