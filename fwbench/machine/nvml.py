"""The GPU through NVML, without a framework: its name, energy and state, and the memory that a process holds."""

import contextlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fwbench.errors import Absent
from fwbench.machine.oom import host_memory
from fwbench.record.files import content
from fwbench.record.machine import AcceleratorProcess, AcceleratorState

# NVML's bits of the reasons that hold the clocks down (nvml.h, nvmlClocksEventReasons), less those that are no
# throttling: idle (0x1), and clocks that somebody has set for applications (0x2) or for a display (0x100).
THROTTLE_REASONS = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "thermal limit",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}

# NVML's counters (nvml.h, NVML_FI_DEV_*) of the nanoseconds since the driver was loaded in which each reason has held
# the clocks down. Older drivers have one counter for heat (75), newer ones two, for what software (269) and hardware
# (270) do about it.
_HELD = {
    74: "power cap",
    75: "thermal limit",
    76: "sync boost",
    269: "thermal limit",
    270: "hardware thermal slowdown",
    271: "hardware power brake",
}
_HARDWARE = ("hardware thermal slowdown", "hardware power brake")

# Words of 64 bits in NVML's set of CPUs, enough for the largest machines.
_WORDS = 32

# nvml.h, nvmlComputeMode_t.
_COMPUTE_MODES = {0: "default", 1: "exclusive thread", 2: "prohibited", 3: "exclusive process"}


@dataclass(frozen=True)
class Gpu:
    """One NVIDIA GPU.

    Attributes:
        handle: NVML's handle of what computes: a GPU, or a slice of one (MIG).
        whole: the handle of the GPU itself, which alone has clocks, a power limit and a temperature.
        driver: its version.
        cuda: major and minor version of the newest CUDA that the driver supports; None if NVML finds no libcuda,
            without which nothing computes.
        memory: in bytes; the host's memory if the GPU computes in it (unified memory, as in a GB10).
    """

    handle: Any
    whole: Any
    name: str
    uuid: str
    driver: str
    cuda: tuple[int, int] | None
    memory: int

    def energy(self) -> float:
        """Joules drawn since the driver was loaded; the counter moves about every 100 ms.

        Raises:
            pynvml.NVMLError: the GPU has no such counter (it came with Volta).
        """
        import pynvml

        return float(pynvml.nvmlDeviceGetTotalEnergyConsumption(self.handle)) / 1000

    def state(self) -> AcceleratorState:
        """Read the GPU's clocks, temperature, power limit, throttle reasons and processes now."""
        import pynvml

        def ask(query: str, read: Callable[[Any], Any] = lambda answer: answer, of: Any = self.whole) -> Any:
            answer = _told(query, of)
            return None if answer is None else read(answer)

        def watts(milliwatts: int) -> float:
            return milliwatts / 1000

        def throttling(bits: int) -> tuple[str, ...]:
            return tuple(name for bit, name in THROTTLE_REASONS.items() if bits & bit)

        graphics = _processes("GraphicsRunningProcesses_v3", self.handle)
        drawing = {process.pid for process in graphics or ()}
        computing = _processes("ComputeRunningProcesses_v3", self.handle)
        # The first version counts what the driver keeps for itself as used, too.
        memory = _told("MemoryInfo", self.handle, pynvml.nvmlMemory_v2)
        return AcceleratorState(
            clock=ask("ClockInfo"),
            most_clock=ask("MaxClockInfo"),
            temperature=ask("Temperature"),
            power_limit=ask("EnforcedPowerLimit", watts),
            default_power_limit=ask("PowerManagementDefaultLimit", watts),
            throttle_reasons=ask("CurrentClocksEventReasons", throttling),
            utilisation=ask("UtilizationRates", lambda rates: rates.gpu / 100, of=self.handle),
            used_memory=None if memory is None else int(memory.used),
            persistent=ask("PersistenceMode", bool),
            compute_mode=ask("ComputeMode", _COMPUTE_MODES.get),
            ecc=ask("EccMode", lambda modes: bool(modes[0])),
            # A compositor may be listed as both.
            processes=None if computing is None else tuple(each for each in computing if each.pid not in drawing),
            graphics=graphics,
        )

    def held(self) -> dict[str, float]:
        """Seconds since the driver was loaded in which each of `THROTTLE_REASONS` has held the clocks down.

        Reasons that the driver does not count are left out: those without a counter, and all on an older GPU.
        """
        import pynvml

        told: dict[str, float] = {}
        for each in _told("FieldValues", self.whole) or ():
            if each.nvmlReturn == pynvml.NVML_SUCCESS:
                reason = _HELD[each.fieldId]
                told[reason] = max(told.get(reason, 0.0), each.value.ullVal / 1e9)
        # A hardware slowdown is either of these two.
        if len(either := [told[name] for name in _HARDWARE if name in told]) == len(_HARDWARE):
            told["hardware slowdown"] = max(either)
        return told

    def near(self) -> set[int]:
        """The CPUs of the GPU's NUMA node; empty if the driver does not report them."""
        words = _told("CpuAffinity", self.whole) or ()
        return {64 * index + bit for index, word in enumerate(words) for bit in range(64) if word >> bit & 1}

    def process_memory(self, pid: int) -> int | None:
        """Bytes of GPU memory that a process holds, its context included; None if the driver does not report it."""
        running = _processes("ComputeRunningProcesses_v3", self.handle)
        return next((process.memory for process in running or () if process.pid == pid), None)


# NVML's queries of a GPU, by the rest of their names, with the arguments behind the handle (nvml.h).
QUERIES: Mapping[str, tuple[Any, ...]] = {
    **dict.fromkeys(("Name", "MemoryInfo", "MigMode", "NumGpuCores", "CudaComputeCapability"), ()),
    **dict.fromkeys(("EnforcedPowerLimit", "PowerManagementDefaultLimit", "PowerUsage", "TotalEnergyConsumption"), ()),
    **dict.fromkeys(("CurrentClocksEventReasons", "UtilizationRates", "PersistenceMode", "ComputeMode", "EccMode"), ()),
    **dict.fromkeys(("ComputeRunningProcesses_v3", "GraphicsRunningProcesses_v3", "DisplayActive"), ()),
    **{"ClockInfo": (1,), "MaxClockInfo": (1,), "Temperature": (0,), "MaxMigDeviceCount": ()},
    **{"FieldValues": (list(_HELD),), "CpuAffinity": (_WORDS,)},
}


def _processes(query: str, handle: Any) -> tuple[AcceleratorProcess, ...] | None:
    """The processes that NVML lists; None if it has no list.

    The query has a version in its name: the one without raises another error than NVMLError if a driver is too old.
    """
    running = _told(query, handle)
    if running is None:
        return None
    # In a container the driver may report 0 bytes, but a listed process has a context at least.
    return tuple(AcceleratorProcess(process.pid, process.usedGpuMemory or None) for process in running)


def _told(query: str, handle: Any, *arguments: Any) -> Any:
    """NVML's answer to a query of a GPU, one of `QUERIES` with the arguments there; None if it has none."""
    import pynvml

    try:
        return getattr(pynvml, f"nvmlDeviceGet{query}")(handle, *(arguments or QUERIES.get(query, ())))
    except pynvml.NVMLError:
        return None


def visible(most: int) -> list[Gpu]:
    """The GPUs that CUDA would use, in CUDA's order, this many at most; empty if there is none."""
    gpus: list[Gpu] = []
    while len(gpus) < most and isinstance(gpu := find(number=len(gpus)), Gpu):
        gpus.append(gpu)
    return gpus


def find(root: Path = Path("/"), number: int = 0) -> Gpu | Absent:
    """The first GPU that CUDA would use, or the one with this number as CUDA counts, or the reason why there is none.

    `CUDA_VISIBLE_DEVICES` is honoured as CUDA does: empty or -1 hides all GPUs.
    """
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    listed = [str(number)] if named is None else [each.strip() for each in named.split(",")]
    if listed[0] in ("", "-1"):
        return Absent("CUDA_VISIBLE_DEVICES hides every GPU", "`unset CUDA_VISIBLE_DEVICES`")
    if named is not None:
        # CUDA ignores all entries after one that it does not know.
        listed = listed[: next((index for index, each in enumerate(listed) if each in ("", "-1")), len(listed))]
        if number >= len(listed):
            return Absent(f"CUDA_VISIBLE_DEVICES names {len(listed)} of the machine's GPUs", "let it name more of them")
    visible = listed[0 if named is None else number]
    try:
        import pynvml
    except ImportError:
        return Absent("nvidia-ml-py is not installed", "`pip install nvidia-ml-py`")
    try:
        pynvml.nvmlInit()
        if not pynvml.nvmlDeviceGetCount():
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        try:
            handle = _named(visible)
        except (pynvml.NVMLError_InvalidArgument, pynvml.NVMLError_NotFound) as error:
            return Absent(
                f"NVML finds no NVIDIA GPU {visible} ({error})",
                "let CUDA_VISIBLE_DEVICES name a GPU that `nvidia-smi -L` lists",
            )
        handle = _computing(handle)
        if handle is None:
            return Absent("the GPU is cut into slices (MIG), and there is none", "make one: `sudo nvidia-smi mig -cgi`")
        # For a whole GPU there is no answer.
        whole = _told("DeviceHandleFromMigDeviceHandle", handle)
        return Gpu(
            handle=handle,
            whole=handle if whole is None else whole,
            name=pynvml.nvmlDeviceGetName(handle),
            uuid=pynvml.nvmlDeviceGetUUID(handle),
            driver=pynvml.nvmlSystemGetDriverVersion(),
            cuda=_cuda(),
            memory=_memory(handle),
        )
    except pynvml.NVMLError as error:
        if _in_the_system(root):
            return Absent(
                f"an NVIDIA GPU is here, but its driver does not answer ({error})",
                "`nvidia-smi` must list it: install the driver, restart after an upgrade, give the container its GPUs",
            )
        return Absent(f"NVML finds no NVIDIA GPU ({error})", "for a GPU's numbers: an NVIDIA GPU and its driver")


def _named(visible: str) -> Any:
    """The handle of the GPU with this number (as CUDA counts), this UUID, or this beginning of a UUID."""
    import pynvml

    if visible.isdigit():
        # Raises an error if there are fewer GPUs.
        handle = pynvml.nvmlDeviceGetHandleByIndex(int(visible))
        ordered = _as_cuda_counts()
        return ordered[int(visible)] if ordered else handle
    handles = (pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount()))
    uuids = map(pynvml.nvmlDeviceGetUUID, handles)
    return pynvml.nvmlDeviceGetHandleByUUID(next((uuid for uuid in uuids if uuid.startswith(visible)), visible))


def _as_cuda_counts() -> list[Any]:
    """All GPUs in CUDA's order: the fastest first unless CUDA_DEVICE_ORDER says otherwise, the others as on the bus.

    Empty if the driver does not report speeds. CUDA's way to find the fastest is not documented; the number of cores
    times their clock tells a card for a display from one that computes. Workers get the UUID of the chosen GPU, so the
    record names the GPU that was measured in any case.
    """
    import pynvml

    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        if len(handles) == 1 or os.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID":
            return handles
        speeds = [
            pynvml.nvmlDeviceGetNumGpuCores(each) * pynvml.nvmlDeviceGetMaxClockInfo(each, pynvml.NVML_CLOCK_SM)
            for each in handles
        ]
    except pynvml.NVMLError:
        return []
    fastest = handles.pop(speeds.index(max(speeds)))
    return [fastest, *handles]


def _memory(handle: Any) -> int:
    import pynvml

    try:
        return int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
    except pynvml.NVMLError_NotSupported:
        return host_memory()


def _computing(handle: Any) -> Any:
    """The handle that CUDA computes on: the GPU, or its first slice if it is cut into slices (MIG); None without any.

    A removed slice leaves its number free, so that the first slice may have any number.
    """
    import pynvml

    # There is no answer if the GPU cannot be cut, or is a slice itself.
    if not (mode := _told("MigMode", handle)) or mode[0] != pynvml.NVML_DEVICE_MIG_ENABLE:
        return handle
    for index in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        with contextlib.suppress(pynvml.NVMLError_NotFound):
            return pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
    return None


def _cuda() -> tuple[int, int] | None:
    import pynvml

    try:
        version = int(pynvml.nvmlSystemGetCudaDriverVersion_v2())
    except pynvml.NVMLError:
        return None
    return version // 1000, version % 1000 // 10


def _in_the_system(root: Path) -> bool:
    """True if Linux shows an NVIDIA GPU: on the PCI bus, or by the driver's files."""
    for device in root.glob("sys/bus/pci/devices/*"):
        # NVIDIA's vendor number, and the class of display controllers (pci.ids).
        if content(device / "vendor") == "0x10de" and content(device / "class").startswith("0x03"):
            return True
    return any(root.glob("dev/nvidia[0-9]*")) or any(root.glob("proc/driver/nvidia/gpus/*"))
