"""The machine and its accelerator, as records hold them."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fwbench.record.decoding import Decoded, Positive, Whole

# The fields that make two machines different. Kernel and driver are left out, as they may be what is compared; so are
# the CPUs that a run was given, which are as good as others, and memory, which kernels count differently and which does
# not change speed.
_SAME = ("device", "accelerator", "cpu", "threads", "power_limit", "quota")


@dataclass(frozen=True)
class Machine(Decoded):
    """The hardware and the system, on which numbers depend besides the code.

    Attributes:
        device: `gpu` where NVML finds one that CUDA would use, else `cpu`.
        accelerator: the GPU's name, or the reason why there is none.
        driver: version of the GPU's driver; None without a GPU.
        accelerator_memory: in bytes; None without a GPU.
        cpu: model name.
        cpus: the logical CPUs a worker is pinned to, one a physical core; with a GPU those near it, if NVML knows them.
        threads: threads of every lane: one for each of `cpus`.
        memory: of the host, in bytes.
        power_limit: of the GPU, in watts; None without one, or if the driver does not report it.
        quota: number of CPUs that a control group lets this process use; None: all that it may run on.
    """

    device: str
    accelerator: str
    driver: str | None
    accelerator_memory: int | None
    cpu: str
    cpus: tuple[int, ...]
    threads: Whole
    memory: int
    kernel: str
    power_limit: float | None = None
    quota: Positive | None = None

    @property
    def title(self) -> str:
        """The processor that computes, for readers: the GPU, or the CPU with its threads."""
        if self.device == "gpu":
            return self.accelerator
        return f"{self.cpu}, {self.threads} thread{'s' * (self.threads != 1)}"

    def in_turns(self) -> "Machine":
        """The machine of a process that takes turns with others: on a CPU it has one thread."""
        return dataclasses.replace(self, threads=1) if self.device == "cpu" else self

    def differences(self, other: "Machine") -> tuple[str, ...]:
        """The fields that make this another machine than `other`, so that their numbers cannot be compared."""
        names = [name for name in _SAME if getattr(self, name) != getattr(other, name)]
        # Without a GPU, `accelerator` is the reason why there is none; and not every driver reports the power limit.
        untold = {
            "accelerator": not self.device == other.device == "gpu",
            "power_limit": None in (self.power_limit, other.power_limit),
        }
        return tuple(name for name in names if not untold.get(name))


@dataclass(frozen=True)
class Node(Decoded):
    """The node of a pool of accelerators that measured something; its machine is of the same kind as the run's.

    Attributes:
        host: its name.
        accelerator: the GPU's UUID, or the CPUs that the measurement had to itself.
        accelerators: number of accelerators of the host, which measure at the same time and share its cores.
        machine: the fields in which the node's machine differs from the run's, such as the kernel.
        lost: names of the hosts that measured it before, until the host or its process was lost.
    """

    host: str
    accelerator: str
    accelerators: int = 1
    machine: Mapping[str, Any] = field(default_factory=dict)
    lost: tuple[str, ...] = ()


@dataclass(frozen=True)
class AcceleratorProcess(Decoded):
    """One process that computes on an accelerator.

    Attributes:
        pid: its number as the driver counts processes; a container may count them differently.
        memory: bytes that it holds; None if the driver does not report them.
    """

    pid: int
    memory: int | None


@dataclass(frozen=True)
class AcceleratorState(Decoded):
    """The state of an accelerator at one moment; a field that the driver does not report is None.

    Attributes:
        clock, most_clock: clock of the multiprocessors, now and at most, in MHz.
        temperature: in degrees Celsius.
        power_limit: the enforced limit, in watts.
        default_power_limit: in watts.
        throttle_reasons: reasons why the clocks are held down. An idle GPU and clocks that a user has set are not
            throttling; set clocks are steady, and `clock` records them.
        utilisation: share of the last sample period, of a second or less, in which some kernel ran; from 0 to 1.
        used_memory: bytes that all processes together hold, without those that the driver keeps for itself.
        persistent: whether the driver stays loaded between processes.
        compute_mode: `default`, `exclusive process`, `prohibited` or `exclusive thread`.
        ecc: whether the memory corrects errors.
        processes: all processes that compute on it and draw nothing.
        graphics: all processes that draw on it, as for a screen.
    """

    clock: float | None = None
    most_clock: float | None = None
    temperature: float | None = None
    power_limit: float | None = None
    default_power_limit: float | None = None
    throttle_reasons: tuple[str, ...] | None = None
    utilisation: float | None = None
    used_memory: int | None = None
    persistent: bool | None = None
    compute_mode: str | None = None
    ecc: bool | None = None
    processes: tuple[AcceleratorProcess, ...] | None = None
    graphics: tuple[AcceleratorProcess, ...] | None = None
