"""The studies' published numbers, to stand beside one's own: another machine's, and never mixed with measured ones."""

import csv
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files

from fwbench.report import units
from fwbench.report.cases import Case, over_seeds
from fwbench.report.fits import training_seconds
from fwbench.report.tables import Column, Table, tabulate

_Values = Mapping[str, str]


@dataclass(frozen=True)
class Number:
    """A published number and one's own of the same meaning.

    Attributes:
        column: of the published file.
        factor: from the published unit to SI.
        unit: SI.
        published, own: how each is shown; a published one in its own unit, as it was printed.
        of: one's own, in SI.
    """

    name: str
    column: str
    factor: float
    unit: str
    published: Callable[[float], str]
    own: Callable[[float], str]
    of: Callable[[Case], float | None]


@dataclass(frozen=True)
class Study:
    """A published table.

    Attributes:
        machine: that it was measured on.
        caption: where it is from, and caveats.
        matches: whether a published row and a case are the same workload.
    """

    key: str
    title: str
    machine: str
    caption: str
    matches: Callable[[_Values, Case], bool]
    numbers: tuple[Number, ...]

    def rows(self) -> list[dict[str, str]]:
        """The published rows, as they were printed."""
        text = files(__package__).joinpath(f"{self.key}.csv").read_text(encoding="utf-8")
        return list(csv.DictReader(text.splitlines()))


def beside(cases: Sequence[Case]) -> list[Table]:
    """A table for each study of which one's own cases have at least one row."""
    merged = over_seeds(case for case in cases if case.replicates)
    tables = []
    for study in STUDIES:
        pairs = [_Pair(row, case) for row in study.rows() for case in _matching(study, row, merged)]
        if any(pair.case for pair in pairs):
            tables.append(_table(study, pairs))
    return tables


@dataclass(frozen=True)
class _Pair:
    row: _Values
    case: Case | None


def _matching(study: Study, row: _Values, cases: Sequence[Case]) -> Sequence[Case | None]:
    return [case for case in cases if study.matches(row, case)] or [None]


def _table(study: Study, pairs: Sequence[_Pair]) -> Table:
    def own(number: Number, pair: _Pair) -> float | None:
        return number.of(pair.case) if pair.case else None

    def published(number: Number, pair: _Pair) -> float:
        return float(pair.row[number.column]) * number.factor

    def field(name: str, pair: _Pair) -> str:
        return pair.row[name]

    texts = [name for name in ("model", "optimizer") if name in pairs[0].row]
    missing = sum(pair.case is None for pair in pairs)
    return tabulate(
        f"published-{study.key}",
        f"Beside {study.title}",
        f"Published numbers are from another machine ({study.machine}), shown as they were printed. {study.caption}",
        (
            *(Column[_Pair](name, functools.partial(field, name)) for name in texts),
            *(
                [Column[_Pair]("batch", lambda pair: int(pair.row["batch_size"]), "1")]
                if "batch_size" in pairs[0].row
                else []
            ),
            Column("lane", lambda pair: pair.case.lane if pair.case else pair.row["framework"]),
            *(
                column
                for number in study.numbers
                for column in (
                    Column[_Pair](f"{number.name}, yours", functools.partial(own, number), number.unit, number.own),
                    Column[_Pair](
                        f"{number.name}, published", functools.partial(published, number), number.unit, number.published
                    ),
                )
            ),
        ),
        pairs,
        [f"{missing} of {len(pairs)} published rows have no measurement of yours beside them"] if missing else [],
    )


def _metric(name: str) -> Callable[[Case], float | None]:
    return lambda case: case.value(name)


def _in(unit: str, factor: float, digits: int) -> Callable[[float], str]:
    return lambda value: f"{value / factor:.{digits}f} {unit}".rstrip()


_score = "{:.3f}".format


def _inference(row: _Values, case: Case) -> bool:
    # Calls on a CPU say nothing beside an H100's.
    return (case.workload.mode, case.workload.device) == ("inference", "gpu") and _same(row, case)


def _training(row: _Values, case: Case) -> bool:
    return case.workload.mode == "fit" and case.workload.data == "imagenet-100" and _same(row, case)


def _mnist(row: _Values, case: Case) -> bool:
    workload = case.workload
    return (
        (workload.mode, workload.model, workload.data) == ("fit", "mlp", "mnist")
        and workload.optimizer == row["optimizer"]
        and (workload.lane, str(workload.batch_size)) == (row["framework"], row["batch_size"])
    )


def _cnn(row: _Values, case: Case) -> bool:
    workload = case.workload
    return (workload.mode, workload.model, workload.lane) == ("fit", "cnn", row["framework"])


def _same(row: _Values, case: Case) -> bool:
    workload = case.workload
    return (workload.model, workload.lane, str(workload.batch_size)) == (
        row["model"],
        row["framework"],
        row["batch_size"],
    )


STUDIES = (
    Study(
        "paper_inference_h100",
        "the paper's inference (Tables I and II)",
        "NVIDIA H100",
        "Its precision was not controlled, its PyTorch is eager, and its JAX memory is the peak of a process's life.",
        _inference,
        (
            Number("throughput/s", "throughput_img_s", 1, "1/s", "{:.0f}".format, units.rate, _metric("throughput")),
            Number("p50", "p50_ms", 1e-3, "s", _in("ms", 1e-3, 1), units.seconds, _metric("latency_p50")),
            Number("p95", "p95_ms", 1e-3, "s", _in("ms", 1e-3, 1), units.seconds, _metric("latency_p95")),
            Number(
                "memory",
                "peak_memory_mb",
                1e6,
                "B",
                _in("MB", 1e6, 0),
                units.size,
                lambda case: case.memory,
            ),
        ),
    ),
    Study(
        "paper_training_h100",
        "the paper's training on ImageNet-100 (Tables III and IV)",
        "NVIDIA H100",
        "Its PyTorch began with pretrained weights and its JAX with drawn ones, so their accuracies say nothing of the "
        "frameworks; its epochs were bound by reading images. JAX trained no ViT.",
        _training,
        (
            Number("train loss", "train_loss", 1, "1", _score, _score, _metric("train_loss")),
            Number("val. top-1", "val_top1_pct", 1e-2, "1", _score, _score, _metric("validation_top1")),
            Number("val. top-5", "val_top5_pct", 1e-2, "1", _score, _score, _metric("validation_top5")),
            Number("epoch", "epoch_s", 1, "s", _in("s", 1, 1), units.seconds, _metric("epoch_time")),
            Number("energy/epoch", "energy_kj", 1e3, "J", _in("kJ", 1e3, 1), units.joules, _metric("epoch_energy")),
        ),
    ),
    Study(
        "mnist_mlp",
        "the course report's MLP on MNIST",
        "which it does not name",
        "Its JAX trained with SGD and its PyTorch with Adam, so their accuracies say nothing of the frameworks. One "
        "seed.",
        _mnist,
        (
            Number("first epoch", "first_epoch_s", 1, "s", _in("s", 1, 3), units.seconds, _metric("first_epoch_time")),
            Number("epoch", "steady_epoch_s", 1, "s", _in("s", 1, 3), units.seconds, _metric("epoch_time")),
            Number("test top-1", "test_accuracy", 1, "1", _score, _score, _metric("test_top1")),
        ),
    ),
    Study(
        "simple_cnn_l4",
        "the three-framework study's small CNN",
        "NVIDIA L4",
        "It names neither batch size nor epochs, so seconds of training are comparable among its own rows alone. Its "
        "TensorFlow is Keras's, compiled by XLA. Its largest RAM lies below the initial one for JAX: the sampler "
        "missed the peak.",
        _cnn,
        (
            Number("training", "training_s", 1, "s", _in("s", 1, 2), units.seconds, training_seconds),
            Number(
                "RAM before", "initial_ram_gb", 1e9, "B", _in("GB", 1e9, 2), units.size, _metric("host_initial_memory")
            ),
            Number("RAM peak", "max_ram_gb", 1e9, "B", _in("GB", 1e9, 2), units.size, _metric("host_peak_memory")),
            Number(
                "VRAM before",
                "initial_vram_gb",
                1e9,
                "B",
                _in("GB", 1e9, 2),
                units.size,
                _metric("device_initial_memory"),
            ),
            Number("VRAM peak", "max_vram_gb", 1e9, "B", _in("GB", 1e9, 2), units.size, _metric("device_peak_memory")),
        ),
    ),
)
