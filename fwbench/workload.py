"""What to measure: pure data that travels as JSON from pytest to the worker and onto the record."""

import dataclasses
from dataclasses import dataclass
from typing import Any

PRECISIONS = ("fp32", "tf32", "bf16")
DEVICES = ("cpu", "gpu")
OPTIMIZERS = ("adam", "sgd")
WEIGHTS = ("drawn", "pretrained")


@dataclass(frozen=True)
class Workload:
    """One configuration to measure: the benchmark's id, the worker's input and the record's key.

    Attributes:
        framework: the lane, a name in `fwbench.lanes.LANES` (`torch`, `torch-compile`, `jax`, ...).
        model: a name in `fwbench.models.CATALOG`.
        mode: what one step does; `inference` is a forward pass, `train_step` one optimizer step,
            `dispatch` an empty program over the model's weights.
        batch_size: samples per step, at least 1.
        precision: `fp32` (IEEE everywhere), `tf32` or `bf16`; never a framework's default.
        device: `cpu` or `gpu`. It is no part of the id: the machine's fingerprint names the accelerator.
        weights: where the model's weights come from: `drawn` (canonical, seeded) or `pretrained` (torchvision's).
        optimizer: of the training modes: `adam` or `sgd` (with momentum).
        seed: of the drawn weights and of the batch.

    Raises:
        ValueError: a field has a value that no worker could run; one sentence says which.
    """

    framework: str
    model: str
    mode: str = "inference"
    batch_size: int = 1
    precision: str = "fp32"
    device: str = "cpu"
    weights: str = "drawn"
    optimizer: str = "adam"
    seed: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.batch_size, bool) or not isinstance(self.batch_size, int) or self.batch_size < 1:
            raise ValueError(f"batch size {self.batch_size!r} is not a whole number of at least 1")
        if self.precision not in PRECISIONS:
            raise ValueError(f"unknown precision {self.precision!r}: choose from {', '.join(PRECISIONS)}")
        if self.device not in DEVICES:
            raise ValueError(f"unknown device {self.device!r}: choose from {', '.join(DEVICES)}")

        if self.weights not in WEIGHTS:
            raise ValueError(f"unknown weights {self.weights!r}: choose from {', '.join(WEIGHTS)}")

        if self.optimizer not in OPTIMIZERS:
            raise ValueError(f"unknown optimizer {self.optimizer!r}: choose from {', '.join(OPTIMIZERS)}")

    @property
    def id(self) -> str:
        """The stable name under which baselines keep this workload; defaults are not named."""
        parts = [self.framework, self.model, self.mode, f"b{self.batch_size}"]
        if self.precision != "fp32":
            parts.append(self.precision)
        if self.weights != "drawn":
            parts.append(self.weights)
        if self.optimizer != "adam":
            parts.append(self.optimizer)
        return "-".join(parts)

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON primitives."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Workload":
        """The inverse of `to_json`; an unknown field is a TypeError."""
        return cls(**data)
