"""The studies' published numbers beside one's own. They are another machine's, and never mixed with measured ones."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files

from fwbench import units
from fwbench.compare.cases import Case, over_seeds
from fwbench.record.metrics import SCALES
from fwbench.report.columns import show, unit
from fwbench.report.tables import Column, Table, tabulate

# Columns of a published file that identify a row's workload, each with the workload's field.
_FIELDS = {"framework": "lane", "model": "model", "batch_size": "batch_size", "optimizer": "optimizer"}

# A published row, and a case of the same workload where there is one.
_Pair = tuple[Mapping[str, str], Case | None]


@dataclass(frozen=True)
class Number:
    """A published number and one's own of the same meaning.

    Attributes:
        name: the start of both columns' names.
        column: its column in the published file.
        quantity: the quantity, as `Case.value` names it.
        unit: the unit in which it was printed; shares are shown from 0 to 1, whatever they were printed in.
        digits: digits after the decimal point, as it was printed.
    """

    name: str
    column: str
    quantity: str
    unit: str = ""
    digits: int = 3

    def columns(self) -> tuple[Column[_Pair], Column[_Pair]]:
        """One's own and the published one, beside each other."""
        si = unit(self.quantity)
        # From the printed unit to SI.
        factor = {"": 1.0, "%": 1e-2}.get(self.unit) or SCALES[si][self.unit]
        own = show(self.quantity) if si in units.SHOW else "{:.3f}".format

        def printed(value: float) -> str:
            shown = value if self.unit == "%" else value / factor
            return f"{shown:.{self.digits}f}{'' if self.unit in ('', '%') else f' {self.unit}'}"

        return (
            Column(f"{self.name}, yours", lambda pair: pair[1].value(self.quantity) if pair[1] else None, si, own),
            Column(f"{self.name}, published", lambda pair: float(pair[0][self.column]) * factor, si, printed),
        )


@dataclass(frozen=True)
class Study:
    """A published table.

    Attributes:
        machine: the machine that it was measured on.
        caption: its origin, and caveats.
        workload: the values of the fields that its workloads have in common.
    """

    key: str
    title: str
    machine: str
    caption: str
    workload: Mapping[str, str]
    numbers: tuple[Number, ...]

    def rows(self) -> list[dict[str, str]]:
        """The published rows, as they were printed."""
        text = files(__package__).joinpath(f"{self.key}.csv").read_text(encoding="utf-8")
        return list(csv.DictReader(text.splitlines()))


def beside(cases: Sequence[Case]) -> list[Table]:
    """A table for each study with a row that one's own cases measured; only cases on one device count."""
    merged = over_seeds(case for case in cases if case.replicates and case.workload.devices == 1)
    tables = []
    for study in STUDIES:
        pairs: list[_Pair] = []
        for row in study.rows():
            fields = {**study.workload, **{field: row[column] for column, field in _FIELDS.items() if column in row}}
            same = [case for case in merged if all(str(getattr(case.workload, of)) == fields[of] for of in fields)]
            pairs += [(row, case) for case in same] or [(row, None)]
        if any(case for _, case in pairs):
            tables.append(_table(study, pairs))
    return tables


def _table(study: Study, pairs: Sequence[_Pair]) -> Table:
    def printed(name: str) -> Column[_Pair]:
        return Column(name, lambda pair: pair[0][name])

    texts = [name for name in ("model", "optimizer") if name in pairs[0][0]]
    sized = "batch_size" in pairs[0][0]
    missing = sum(case is None for _, case in pairs)
    return tabulate(
        f"published-{study.key}",
        f"Beside {study.title}",
        f"Published numbers are from another machine ({study.machine}), shown as they were printed. {study.caption}",
        (
            *map(printed, texts),
            *((Column[_Pair]("batch", lambda pair: int(pair[0]["batch_size"]), "1"),) if sized else ()),
            Column("lane", lambda pair: pair[1].lane if pair[1] else pair[0]["framework"]),
            *(column for number in study.numbers for column in number.columns()),
        ),
        pairs,
        [f"{missing} of {len(pairs)} published rows have no measurement of yours beside them"] if missing else [],
    )


STUDIES = (
    Study(
        "paper_inference_h100",
        "the paper's inference (Tables I and II)",
        "NVIDIA H100",
        "Its precision was not controlled, its PyTorch is eager, and its JAX memory is the peak of a process's life.",
        # Calls on a CPU say nothing beside an H100's.
        {"mode": "inference", "device": "gpu"},
        (
            Number("throughput/s", "throughput_img_s", "throughput", "", 0),
            Number("p50", "p50_ms", "latency_p50", "ms", 1),
            Number("p95", "p95_ms", "latency_p95", "ms", 1),
            Number("memory", "peak_memory_mb", "peak_memory", "MB", 0),
        ),
    ),
    Study(
        "paper_training_h100",
        "the paper's training on ImageNet-100 (Tables III and IV)",
        "NVIDIA H100",
        "Its PyTorch began with pretrained weights and its JAX with drawn ones, so their accuracies say nothing of the "
        "frameworks; its epochs were bound by reading images. JAX trained no ViT.",
        {"mode": "fit", "data": "imagenet-100"},
        (
            Number("train loss", "train_loss", "train_loss"),
            Number("val. top-1", "val_top1_pct", "validation_top1", "%"),
            Number("val. top-5", "val_top5_pct", "validation_top5", "%"),
            Number("epoch", "epoch_s", "epoch_time", "s", 1),
            Number("energy/epoch", "energy_kj", "epoch_energy", "kJ", 1),
        ),
    ),
    Study(
        "mnist_mlp",
        "the course report's MLP on MNIST",
        "which it does not name",
        "Its JAX trained with SGD and its PyTorch with Adam, so their accuracies say nothing of the frameworks. One "
        "seed.",
        {"mode": "fit", "model": "mlp", "data": "mnist"},
        (
            Number("first epoch", "first_epoch_s", "first_epoch_time", "s"),
            Number("epoch", "steady_epoch_s", "epoch_time", "s"),
            Number("test top-1", "test_accuracy", "test_top1"),
        ),
    ),
    Study(
        "simple_cnn_l4",
        "the three-framework study's small CNN",
        "NVIDIA L4",
        "It names neither batch size nor epochs, so seconds of training are comparable among its own rows alone. Its "
        "TensorFlow is Keras's, compiled by XLA. Its largest RAM lies below the initial one for JAX: the sampler "
        "missed the peak.",
        {"mode": "fit", "model": "cnn"},
        (
            Number("training", "training_s", "training", "s", 2),
            Number("RAM before", "initial_ram_gb", "host_initial_memory", "GB", 2),
            Number("RAM peak", "max_ram_gb", "host_peak_memory", "GB", 2),
            Number("VRAM before", "initial_vram_gb", "device_initial_memory", "GB", 2),
            Number("VRAM peak", "max_vram_gb", "device_peak_memory", "GB", 2),
        ),
    ),
)
