"""What to measure: pure data that travels as JSON from pytest to the worker and onto the record."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

TRAINING = ("train_step", "fit")
MODES = ("inference", *TRAINING)
# Of the benchmarks that price the harness itself.
HARNESS_MODES = ("dispatch", "fixed")
PRECISIONS = ("fp32", "tf32", "bf16")
DEVICES = ("cpu", "gpu")
OPTIMIZERS = ("adam", "sgd")
WEIGHTS = ("drawn", "pretrained")


@dataclass(frozen=True)
class Workload:
    """One configuration to measure: the benchmark's id, the worker's input and the record's key.

    Attributes:
        lane: a name in `fwbench.record.lanes.LANES` (`torch`, `torch-compile`, `jax`, ...).
        model: its name.
        mode: what is measured; `inference` is a forward pass, `train_step` one optimizer step, `fit` epochs of
            training with validation, `dispatch` an empty program over the model's weights.
        batch_size: samples per step, of all devices together; at least 1.
        precision: `fp32` (IEEE everywhere), `tf32` or `bf16`; never a framework's default.
        device: `cpu` or `gpu`. It is no part of the id: the machine's fingerprint names the accelerator.
        weights: where the model's weights come from: `drawn` (canonical, seeded) or `pretrained` (torchvision's).
        seed: of the drawn weights, of the batch, and of the data's order.
        optimizer: of the training modes: `adam` or `sgd` (with momentum).
        learning_rate: None: the optimizer's default, in `fwbench.frameworks.training`.
        accumulate: parts that a training step's batch is cut into, their gradients added up; divides the batch size.
        remat: activation checkpointing (rematerialisation): whether a block's activations are computed again in the
            backward pass instead of kept.
        data: of `fit`: a name in `fwbench.data.NAMES`.
        data_path: where this machine has the data; no part of the id.
        epochs: of `fit`, at least 1.
        variant: a study's label for a comparison that is not the corrected one.
        axes: name and value of each of the model's axes that has several values, such as a sequence length.
        plain: whether networks run with their framework's own operators alone, without fwbench's forms of convolutions
            for JAX on a CPU.
        target: the GPU that the program is compiled for without being run, a name in `fwbench.machine.targets.NAMES`;
            None: it is for the device that it runs on.
        devices: over how many devices a step is spread, each with an equal part of the batch (data parallelism); of
            several on a CPU, each is a process with cores of its own.

    Raises:
        ValueError: a field has a value that no worker could run; one sentence says which.
    """

    lane: str
    model: str
    mode: str = "inference"
    batch_size: int = 1
    precision: str = "fp32"
    device: str = "cpu"
    weights: str = "drawn"
    seed: int = 0
    optimizer: str = "adam"
    learning_rate: float | None = None
    accumulate: int = 1
    remat: bool = False
    data: str = "synthetic"
    data_path: str | None = None
    epochs: int = 1
    variant: str = ""
    axes: tuple[tuple[str, int], ...] = ()
    plain: bool = False
    target: str | None = None
    devices: int = 1

    def __post_init__(self) -> None:
        counts = {
            "batch size": self.batch_size,
            "epochs": self.epochs,
            "accumulate": self.accumulate,
            "devices": self.devices,
        }
        for name, count in counts.items():
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise ValueError(f"{name} {count!r} is not a whole number of at least 1")
        if self.learning_rate is not None and not self.learning_rate > 0:
            raise ValueError(f"learning rate {self.learning_rate!r} is not above 0")
        if self.batch_size % self.parts:
            raise ValueError(f"a batch of {self.batch_size} cannot be cut into {self.parts} equal parts")
        if self.precision not in PRECISIONS:
            raise ValueError(f"unknown precision {self.precision!r}: choose from {', '.join(PRECISIONS)}")
        if self.device not in DEVICES:
            raise ValueError(f"unknown device {self.device!r}: choose from {', '.join(DEVICES)}")

        if self.weights not in WEIGHTS:
            raise ValueError(f"unknown weights {self.weights!r}: choose from {', '.join(WEIGHTS)}")

        if self.optimizer not in OPTIMIZERS:
            raise ValueError(f"unknown optimizer {self.optimizer!r}: choose from {', '.join(OPTIMIZERS)}")

    def halved(self) -> "Workload | None":
        """With half the batch, rounded down to a multiple of `parts`; None where that leaves nothing."""
        samples = self.batch_size // 2 // self.parts
        return dataclasses.replace(self, batch_size=samples * self.parts) if samples else None

    def fitted(self, unfit: Sequence[int]) -> "Workload":
        """With half the last batch of those that did not fit; as it is where none did not.

        Raises:
            ValueError: that batch has no half.
        """
        if not unfit:
            return self
        smaller = dataclasses.replace(self, batch_size=unfit[-1]).halved()
        if smaller is None:
            raise ValueError(f"a batch of {unfit[-1]} has no smaller one")
        return smaller

    @property
    def parts(self) -> int:
        """How many equal parts a batch is cut into: for each device as many as its gradients are added up from."""
        return self.devices * self.accumulate

    @property
    def subject(self) -> str:
        """The model at its axes' values, for readers: `tiny-bert length 128`."""
        return " ".join([self.model, *(f"{axis} {size}" for axis, size in self.axes)])

    @property
    def id(self) -> str:
        """The stable name under which baselines keep this workload; defaults are not named."""
        parts = [self.lane, self.model, self.mode, f"b{self.batch_size}"]
        parts += [f"{axis}{size}" for axis, size in self.axes]
        if self.precision != "fp32":
            parts.append(self.precision)
        if self.weights != "drawn":
            parts.append(self.weights)
        if self.mode == "fit":
            parts += [self.data, f"e{self.epochs}"]
        if self.optimizer != "adam":
            parts.append(self.optimizer)
        if self.learning_rate is not None:
            parts.append(f"lr{self.learning_rate:g}")
        if self.accumulate != 1:
            parts.append(f"a{self.accumulate}")
        if self.remat:
            parts.append("remat")
        if self.seed:
            parts.append(f"s{self.seed}")
        if self.variant:
            parts.append(self.variant)
        if self.plain:
            parts.append("plain")
        if self.target:
            parts.append(self.target)
        if self.devices != 1:
            parts.append(f"d{self.devices}")
        return "-".join(parts)

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON primitives."""
        return {**dataclasses.asdict(self), "axes": dict(self.axes)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Workload":
        """The inverse of `to_json`; an unknown field is a TypeError."""
        return cls(**{**data, "axes": tuple(data.get("axes", {}).items())})
