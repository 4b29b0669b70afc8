"""Epochs of training: the loop, and the shares of its time.

    one epoch   wait | step | wait | step | ... | wait | evaluate | wait | evaluate | ...

The loop waits for a step's end before it asks for the next batch, so every second belongs to one share: while the loop
waits for data, the device has nothing to do. Loaders that read ahead do so during the steps.
"""

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fwbench.ext.epochs.data import Batch, Data
from fwbench.frameworks.contract import Scores, Trainer
from fwbench.meters.energy import Counter, too_short
from fwbench.meters.latency import Clock
from fwbench.record.measurement import Metric, unavailable

# Seconds after which the counter is read within an epoch, too. RAPL's counters wrap around at 65 kJ, after a minute or
# more at full load, and of several wrap-arounds between two readings only one would be noticed.
_LONGEST_UNREAD = 20.0


@dataclass(frozen=True)
class Epoch:
    """One pass over the training data and its validation; times in seconds.

    Attributes:
        seconds: the whole epoch.
        training: from the epoch's start until validation began.
        waiting: for batches of either split.
        computing: training steps, the first epoch's compilation included.
        evaluating: validation, without the wait for its batches.
        samples: number of samples trained on.
        train_loss, train_top1: means over the epoch's steps, each taken before the step's update.
        validation: loss and accuracy after the epoch; None if the data has no such split.
        energy: joules of the device; None without a counter, and in a record also if the epoch was too short for it.
    """

    seconds: float
    training: float
    waiting: float
    computing: float
    evaluating: float
    samples: int
    train_loss: float
    train_top1: float
    validation: Scores | None
    energy: float | None


@dataclass
class Training:
    """A run of epochs, and the loss and top-1 accuracy of each step in order."""

    epochs: list[Epoch] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)


class Epochs:
    """Trains a program on data with a split `train`, epoch by epoch; the first one includes compilation."""

    def __init__(self, program: Trainer, data: Data, batch_size: int, clock: Clock, counter: Counter | None) -> None:
        self._program = program
        self._data = data
        self._batch_size = batch_size
        self._clock = clock
        self._counter = counter
        self._last_read = clock()
        self.training = Training()

    def run(self, prepare: Callable[[], Any] = lambda: None) -> None:
        """Run one epoch; the time of `prepare`, called first, counts as computing.

        A loss that is no longer finite, so that accuracy would mean nothing, is an ArithmeticError; a sample that
        cannot be read is a DataError.
        """
        number, program = len(self.training.epochs), self._program
        joules = self._read()
        start = self._clock()
        prepare()
        waiting, computing, evaluating, steps = 0.0, self._clock() - start, 0.0, 0
        for waited, (images, labels) in self._waited("train", number):
            waiting += waited
            begun = self._clock()
            program.feed(images, labels)
            program.step()
            program.wait()
            computing += self._clock() - begun
            steps += 1
        curve = program.curve()
        trained = self._clock() - start
        validation = None
        if "validation" in self._data.sizes:
            validation, for_data, evaluating = self._evaluate("validation")
            waiting += for_data
        seconds = self._clock() - start
        energy = self._read() - joules if self._counter else None
        losses = [loss for loss, _ in curve]
        accuracies = [hits / self._batch_size for _, hits in curve]
        if not all(map(math.isfinite, losses)):
            raise ArithmeticError(
                f"the training loss is not finite in epoch {number + 1}: choose a smaller learning rate"
            )
        self.training.losses += losses
        self.training.accuracies += accuracies
        self.training.epochs.append(
            Epoch(
                seconds,
                trained,
                waiting,
                computing,
                evaluating,
                steps * self._batch_size,
                sum(losses) / steps,
                sum(accuracies) / steps,
                validation,
                energy,
            )
        )

    def test(self) -> Scores | None:
        """Loss and accuracy on the split `test`; None if the data has no such split."""
        return self._evaluate("test")[0] if "test" in self._data.sizes else None

    def _evaluate(self, split: str) -> tuple[Scores, float, float]:
        """The scores, the seconds spent waiting for data, and the seconds spent computing."""
        waiting = computing = 0.0
        for waited, (images, labels) in self._waited(split, 0):
            waiting += waited
            begun = self._clock()
            self._program.score(images, labels)
            self._program.wait()
            computing += self._clock() - begun
        begun = self._clock()
        return self._program.scores(), waiting, computing + self._clock() - begun

    def _read(self) -> float:
        """Joules by the counter; 0 without a counter."""
        self._last_read = self._clock()
        return self._counter.read() if self._counter else 0.0

    def _waited(self, split: str, epoch: int) -> Iterator[tuple[float, Batch]]:
        """Batches, each with the seconds spent waiting for it; the first wait includes the loader's start."""
        begun = self._clock()
        for batch in self._data.batches(split, self._batch_size, epoch):
            yield self._clock() - begun, batch
            if self._clock() - self._last_read >= _LONGEST_UNREAD:
                self._read()
            begun = self._clock()


def fitting(
    epochs: Sequence[Epoch], tested: Scores | None, counter: Counter | str, period: Metric
) -> dict[str, Metric]:
    """Summarise a training of one epoch or more, and its scores on the split `test`, in single numbers.

    Returns:
        `first_epoch_time`. Medians over the later epochs: `epoch_time`, its shares `epoch_wait_time`,
        `epoch_compute_time` and `epoch_evaluation_time`, and `throughput`, samples trained on over the time until
        validation began. The mean over the later epochs: `epoch_energy`. Of the last epoch: `train_loss`, `train_top1`
        and the scores of validation and test. Without later epochs their metrics are unavailable.
    """
    last, steady = epochs[-1], epochs[1:]
    of_steady = f"median of the {len(steady)} epochs after the first"
    only_one = "there is one epoch, and it includes compilation: ask for at least 2"

    def median(of: Callable[[Epoch], float]) -> Metric:
        if not steady:
            return unavailable(of_steady, only_one)
        return Metric(statistics.median(map(of, steady)), of_steady)

    metrics = {
        "first_epoch_time": Metric(epochs[0].seconds, "compilation, training and validation"),
        "epoch_time": median(lambda epoch: epoch.seconds),
        "epoch_wait_time": median(lambda epoch: epoch.waiting),
        "epoch_compute_time": median(lambda epoch: epoch.computing),
        "epoch_evaluation_time": median(lambda epoch: epoch.evaluating),
        "throughput": median(lambda epoch: epoch.samples / epoch.training),
        "epoch_energy": unavailable("energy counter", counter)
        if isinstance(counter, str)
        else _energy(steady, counter, period, only_one),
        "train_loss": Metric(last.train_loss, "mean over the last epoch's steps, before each update"),
        "train_top1": Metric(last.train_top1, "mean over the last epoch's steps, before each update"),
    }
    for split, scores in (("validation", last.validation), ("test", tested)):
        for name in ("loss", "top1", "top5"):
            metrics[f"{split}_{name}"] = (
                unavailable("whole split, after training", f"the data has no split {split!r}")
                if scores is None
                else Metric(getattr(scores, name), "whole split, after training")
            )
    return metrics


def resolved(epoch: Epoch, period: Metric) -> Epoch:
    """The epoch; without its energy if a counter of this `energy_period` moves too seldom to measure it."""
    return replace(epoch, energy=None) if too_short(epoch.seconds, period) else epoch


def _energy(steady: Sequence[Epoch], counter: Counter, period: Metric, only_one: str) -> Metric:
    """Mean energy of an epoch. An epoch may end before the counter moves; all epochs together miss at most one step."""
    source = f"{counter.name}; mean of the {len(steady)} epochs after the first"
    seconds = sum(epoch.seconds for epoch in steady)
    if not steady:
        return unavailable(source, only_one)
    reason = counter.fault or too_short(seconds, period)
    if reason:
        return unavailable(source, reason)
    return Metric(sum(epoch.energy or 0.0 for epoch in steady) / len(steady), source)
