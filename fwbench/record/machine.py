"""The machine as records hold it."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fwbench.record.decoding import Decoded

# The fields in which two machines differ. Kernel and driver may be what is compared; the CPUs that a run was given are
# as good as others; and memory, of which a kernel keeps a little more or less for itself, is no matter of speed.
_SAME = ("device", "accelerator", "cpu", "threads", "power_limit", "quota")


@dataclass(frozen=True)
class Machine(Decoded):
    """What numbers depend on besides the code.

    Attributes:
        device: `gpu` where NVML finds one that CUDA would use, else `cpu`.
        accelerator: the GPU's name, or why there is none.
        driver: of the GPU; None without one.
        accelerator_memory: in bytes; None without a GPU.
        cpu: model name.
        cpus: the logical CPUs a worker is pinned to, one a physical core; with a GPU those near it, if NVML tells.
        threads: for every lane alike: one for each of these.
        memory: of the host, in bytes.
        power_limit: of the GPU, in watts; None without one, or where the driver does not tell.
        quota: how many CPUs a control group lets this process use; None: all that it may run on.
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
    power_limit: float | None = None
    quota: float | None = None

    @property
    def title(self) -> str:
        """What computes, for readers: the GPU, or the CPU with its threads."""
        if self.device == "gpu":
            return self.accelerator
        return f"{self.cpu}, {self.threads} thread{'s' * (self.threads != 1)}"

    def in_turns(self) -> "Machine":
        """The machine as processes have it that take turns: on a CPU each has one thread."""
        return dataclasses.replace(self, threads=1) if self.device == "cpu" else self

    def differences(self, other: "Machine") -> tuple[str, ...]:
        """The fields that make this another machine than `other`, whose numbers say nothing of this one's."""
        names = [name for name in _SAME if getattr(self, name) != getattr(other, name)]
        # Without a GPU, what stands for its name is why there is none; and not every driver tells the power limit.
        untold = {
            "accelerator": not self.device == other.device == "gpu",
            "power_limit": None in (self.power_limit, other.power_limit),
        }
        return tuple(name for name in names if not untold.get(name))


@dataclass(frozen=True)
class Node(Decoded):
    """Where a pool of accelerators measured something; the node's machine is of the run's kind.

    Attributes:
        host: its name.
        accelerator: the GPU's UUID, or the CPUs that were its own meanwhile.
        accelerators: how many the host has, which measure at the same time and share its cores.
        machine: the fields of its fingerprint that are not those of the run's machine, such as the kernel.
        lost: names of the hosts that measured it before and were lost meanwhile, or whose process was.
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
        pid: as the driver counts processes; in a container that may not be how the container counts them.
        memory: that it holds, in bytes; None where the driver does not tell.
    """

    pid: int
    memory: int | None


@dataclass(frozen=True)
class AcceleratorState(Decoded):
    """What of an accelerator changes from hour to hour; None where the driver does not tell.

    Attributes:
        clock, most_clock: of the multiprocessors, now and at most, in MHz.
        temperature: in degrees Celsius.
        power_limit: that is enforced, in watts.
        default_power_limit: in watts.
        throttle_reasons: what holds the clocks down against everybody's settings. Idleness is none, and nor are
            clocks that somebody has set: they are steady, and `clock` tells them.
        utilisation: share of the last sample period, of a second or less, in which some kernel ran; from 0 to 1.
        used_memory: that everybody together holds, in bytes, without what the driver keeps for itself.
        persistent: whether the driver stays loaded between processes.
        compute_mode: `default`, `exclusive process`, `prohibited` or `exclusive thread`.
        ecc: whether the memory corrects errors.
        processes: all that compute on it and draw nothing.
        graphics: all that draw on it, as for a screen.
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
