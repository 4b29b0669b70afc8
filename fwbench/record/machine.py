"""The machine as records hold it."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Machine:
    """What numbers depend on besides the code.

    Attributes:
        device: `gpu` where NVML finds one that CUDA would use, else `cpu`.
        accelerator: the GPU's name, or why there is none.
        driver: of the GPU; None without one.
        accelerator_memory: in bytes; None without a GPU.
        cpu: model name.
        cpus: the logical CPUs a worker is pinned to, one a physical core.
        threads: for every lane alike: one a physical core that this process may use.
        memory: of the host, in bytes.
    """

    device: str
    accelerator: str
    driver: str | None
    accelerator_memory: int | None
    cpu: str
    cpus: tuple[int, ...]
    threads: int
    memory: int
    kernel: str

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON primitives."""
        return asdict(self)
