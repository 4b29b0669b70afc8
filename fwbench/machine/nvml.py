"""The GPU as NVML knows it: what it is, what it has drawn, what a process holds. No framework needed."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Gpu:
    """One NVIDIA GPU.

    Attributes:
        memory: in bytes.
        power_limit: in watts; None where the driver does not tell.
    """

    handle: Any
    name: str
    uuid: str
    driver: str
    memory: int
    power_limit: float | None

    def energy(self) -> float:
        """Joules drawn since the driver was loaded; the counter moves about every 100 ms.

        Raises:
            pynvml.NVMLError: the GPU has no such counter (it came with Volta).
        """
        import pynvml

        return float(pynvml.nvmlDeviceGetTotalEnergyConsumption(self.handle)) / 1000

    def state(self) -> "State":
        """How it stands at this moment."""
        import pynvml

        def ask(query: Callable[..., Any], *arguments: Any) -> Any:
            try:
                return query(self.handle, *arguments)
            except pynvml.NVMLError:
                return None

        persistent = ask(pynvml.nvmlDeviceGetPersistenceMode)
        default = ask(pynvml.nvmlDeviceGetPowerManagementDefaultLimit)
        return State(
            persistent=None if persistent is None else bool(persistent),
            clock=ask(pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_SM),
            most_clock=ask(pynvml.nvmlDeviceGetMaxClockInfo, pynvml.NVML_CLOCK_SM),
            default_power_limit=None if default is None else default / 1000,
            processes=len(ask(pynvml.nvmlDeviceGetComputeRunningProcesses) or ()),
        )

    def process_memory(self, pid: int) -> int | None:
        """Bytes of GPU memory that a process holds, its context included; None where the driver does not tell."""
        import pynvml

        try:
            running = pynvml.nvmlDeviceGetComputeRunningProcesses(self.handle)
        except pynvml.NVMLError:
            return None
        for process in running:
            if process.pid == pid and process.usedGpuMemory is not None:
                return int(process.usedGpuMemory)
        return None


@dataclass(frozen=True)
class State:
    """What of a GPU changes from hour to hour; None where the driver does not tell.

    Attributes:
        persistent: whether the driver stays loaded between processes.
        clock, most_clock: of the multiprocessors, now and at most, in MHz.
        default_power_limit: in watts.
        processes: that compute on it.
    """

    persistent: bool | None
    clock: float | None
    most_clock: float | None
    default_power_limit: float | None
    processes: int


def find() -> Gpu | str:
    """The first GPU that CUDA would use, or one sentence on why there is none.

    `CUDA_VISIBLE_DEVICES` is honoured as CUDA does: empty or -1 hides all GPUs.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip()
    if visible in ("", "-1"):
        return "CUDA_VISIBLE_DEVICES hides every GPU"
    try:
        import pynvml
    except ImportError:
        return "nvidia-ml-py is not installed"
    try:
        pynvml.nvmlInit()
        if visible.isdigit():
            handle = pynvml.nvmlDeviceGetHandleByIndex(int(visible))
        else:
            handle = pynvml.nvmlDeviceGetHandleByUUID(_whole(visible))
        handle = _computing(handle)
        return Gpu(
            handle=handle,
            name=pynvml.nvmlDeviceGetName(handle),
            uuid=pynvml.nvmlDeviceGetUUID(handle),
            driver=pynvml.nvmlSystemGetDriverVersion(),
            memory=int(pynvml.nvmlDeviceGetMemoryInfo(handle).total),
            power_limit=_power_limit(handle),
        )
    except pynvml.NVMLError as error:
        return f"NVML finds no NVIDIA GPU ({error})"


def _whole(uuid: str) -> str:
    """The UUID of which CUDA was given the beginning."""
    import pynvml

    handles = (pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount()))
    return next((found for found in map(pynvml.nvmlDeviceGetUUID, handles) if found.startswith(uuid)), uuid)


def _computing(handle: Any) -> Any:
    """What CUDA computes on: of a GPU that is cut into slices (MIG) the first one, not the whole."""
    import pynvml

    try:
        mode, _ = pynvml.nvmlDeviceGetMigMode(handle)
    except pynvml.NVMLError:
        return handle  # it cannot be cut, or is a slice itself
    return pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, 0) if mode == pynvml.NVML_DEVICE_MIG_ENABLE else handle


def _power_limit(handle: Any) -> float | None:
    import pynvml

    try:
        return float(pynvml.nvmlDeviceGetEnforcedPowerLimit(handle)) / 1000
    except pynvml.NVMLError:
        return None
