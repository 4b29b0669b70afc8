"""Tables of epochs: one row a training, seeds together, or one row an epoch."""

import dataclasses
import functools
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fwbench import units
from fwbench.compare.cases import Case, OfCase, grouped, over_seeds, reasons
from fwbench.record.measurement import Measurement
from fwbench.record.workload import Workload
from fwbench.report.columns import Placed, metric_column
from fwbench.report.tables import Column, Spread, Table, tabulate


def _lane(case: Case) -> str:
    """The lane, followed by the number of devices where there are several."""
    devices = case.workload.devices
    return f"{case.lane} d{devices}" if devices > 1 else case.lane


_ABOUT: tuple[Column[Placed], ...] = (
    Column("model", lambda row: row.workload.model),
    Column("data", lambda row: row.workload.data),
    Column("batch", lambda row: row.workload.batch_size, "1"),
)
_WORKLOAD: tuple[Column[Case], ...] = (*_ABOUT, Column[Case]("lane", _lane))


def _score(value: float) -> str:
    return f"{value:.3f}±{value.sd:.3f}" if isinstance(value, Spread) else f"{value:.3f}"


def _share(name: str, metric: str) -> Column[Case]:
    """A column of the share that a part has of a steady epoch, from 0 to 1."""

    def share(case: Case) -> float | None:
        part, whole = case.value(metric), case.value("epoch_time")
        return None if part is None or not whole else part / whole

    return Column(name, share, "1", units.share)


_SCORES = {
    "train_loss": "train loss",
    "validation_loss": "val. loss",
    "validation_top1": "val. top-1",
    "validation_top5": "val. top-5",
    "test_top1": "test top-1",
}


def _scored(metric: str) -> Column[Case]:
    """A column of a loss or an accuracy: the mean over seeds, with their standard deviation if there are several."""

    def score(case: Case) -> float | None:
        values = case.values(metric)
        if len(values) < 2:
            return values[0] if values else None
        return Spread(statistics.mean(values), statistics.stdev(values))

    return Column(_SCORES[metric], score, "1", _score)


def _epochs(case: Case) -> str:
    return str(case.workload.epochs) if case.seeds <= 1 else f"{case.seeds}x{case.workload.epochs}"


def _at_any_batch(case: Case) -> Workload:
    return dataclasses.replace(case.workload, batch_size=case.workload.devices, accumulate=1)


def epoch_times(cases: Sequence[Case]) -> Table:
    """The course report's table: first against steady epoch, with accuracies, seeds together."""
    return tabulate(
        "epoch-time",
        "Epoch time (the MNIST study's table)",
        "An epoch is the median of those after the first, which pays for compilation; waiting (for data) and "
        "evaluating are shares of it; losses and accuracies are the last epoch's. Seeds share a row: times are medians "
        "over seeds, scores means ± standard deviation.",
        (
            *_WORKLOAD,
            Column[Case]("epochs", _epochs),
            metric_column("first epoch", "first_epoch_time"),
            metric_column("epoch", "epoch_time"),
            _share("waiting", "epoch_wait_time"),
            _share("evaluating", "epoch_evaluation_time"),
            metric_column("throughput/s", "throughput"),
            metric_column("memory", "peak_memory"),
            *map(_scored, ("train_loss", "validation_loss", "validation_top1", "test_top1")),
        ),
        over_seeds(cases),
        failure=Case.why_failed,
    )


def final_epochs(cases: Sequence[Case]) -> Table:
    """Table III: the last epoch of each training at its largest batch."""
    merged = over_seeds(cases)
    groups = grouped(merged, _at_any_batch)
    largest = {key: max(case.workload.batch_size for case in of) for key, of in groups.items()}
    return tabulate(
        "final-epoch",
        "Table III: final epoch at the largest batch",
        "Losses and accuracies after the last epoch (mean ± standard deviation over seeds); seconds and energy of the "
        "last epoch (median over seeds).",
        (
            *_WORKLOAD,
            Column("epochs", _epochs),
            *map(_scored, _SCORES),
            Column("last epoch", functools.partial(_last, "seconds"), "s", units.seconds),
            Column("energy", functools.partial(_last, "energy"), "J", units.joules),
        ),
        [case for case in merged if case.workload.batch_size == largest[_at_any_batch(case)]],
        _energy(merged),
        Case.why_failed,
    )


def _last(part: str, case: Case) -> float | None:
    last = (epoch for m in case.measurements for epoch in m.training.get("epochs", ())[-1:])
    values = [epoch[part] for epoch in last if epoch.get(part) is not None]
    return statistics.median(values) if values else None


@dataclasses.dataclass(frozen=True)
class OneEpoch(OfCase):
    """An epoch of one process: its run, its measurement, its number and its record."""

    run: int
    measurement: Measurement
    number: int
    epoch: Mapping[str, Any]


def all_epochs(cases: Sequence[Case]) -> Table:
    """Table IV: every epoch of every training."""

    def number(name: str, part: str, unit: str = "1", show: Callable[[float], str] = _score) -> Column[OneEpoch]:
        return Column(name, lambda row: row.epoch.get(part), unit, show)

    def validation(name: str, part: str) -> Column[OneEpoch]:
        return Column(name, lambda row: (row.epoch.get("validation") or {}).get(part), "1", _score)

    return tabulate(
        "epochs",
        "Table IV: every epoch",
        "One row an epoch. Waiting (for data), computing and evaluating are its parts; training loss and accuracy are "
        "means over its steps, each before its update.",
        (
            *_ABOUT,
            Column("lane", lambda row: _lane(row.case)),
            Column("run", lambda row: row.run + 1, "1"),
            Column("seed", lambda row: row.measurement.workload.seed, "1"),
            Column("epoch", lambda row: row.number, "1"),
            number("train loss", "train_loss"),
            number("train top-1", "train_top1"),
            validation("val. loss", "loss"),
            validation("val. top-1", "top1"),
            validation("val. top-5", "top5"),
            number("epoch time", "seconds", "s", units.seconds),
            *(number(part, part, "s", units.seconds) for part in ("waiting", "computing", "evaluating")),
            number("energy", "energy", "J", units.joules),
        ),
        [
            OneEpoch(case, run, m, number, epoch)
            for case in cases
            for run, m in case.replicates
            for number, epoch in enumerate(m.training.get("epochs", ()), 1)
        ],
        _energy(cases),
    )


def training_times(cases: Sequence[Case]) -> Table:
    """The three-framework study's table: training after a warm-up epoch, memory before it and at its peak."""
    return tabulate(
        "training-time",
        "Training time and memory (the three-framework study's table)",
        "Seconds of all epochs after the first, which is the warm-up and pays for compilation; accuracy on the test "
        "split after the last one, about chance where labels are random; memory of the process (RAM, resident) and of "
        "the device's allocator (VRAM) before training and at its peak. Times and memory are medians over seeds.",
        (
            *_WORKLOAD,
            Column("epochs", _epochs),
            metric_column("warm-up", "first_epoch_time"),
            metric_column("training", "training"),
            _scored("test_top1"),
            metric_column("RAM before", "host_initial_memory"),
            metric_column("RAM peak", "host_peak_memory"),
            metric_column("VRAM before", "device_initial_memory"),
            metric_column("VRAM peak", "device_peak_memory"),
        ),
        over_seeds(cases),
        failure=Case.why_failed,
    )


def _energy(cases: Sequence[Case]) -> list[str]:
    return [f"no energy: {reason}" for reason in reasons(cases, "epoch_energy")[:1]]
