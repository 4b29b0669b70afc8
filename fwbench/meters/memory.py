"""Memory: four numbers with four meanings, each named after its source."""

import ctypes
import dataclasses
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fwbench.frameworks.contract import Program
from fwbench.machine import nvml
from fwbench.record.files import content
from fwbench.record.measurement import Metric, unavailable

_PROC = Path("/proc/self")

# Linux keeps resident memory in a counter that each CPU updates in steps of up to 64 pages (lib/percpu_counter.c).
_IMPRECISION = 64 * os.sysconf("SC_PAGE_SIZE") * (os.cpu_count() or 1)

# Seconds of waiting. A thread of XLA's frees a call's buffer some time after the result is ready; a buffer still held
# when the heap is trimmed would count beside the next call's own.
_GIVEN_BACK = 0.05


def memory(
    program: Program, device: str, work: Callable[[], Any], proc: Path = _PROC, number: int = 0, count: int = 1
) -> dict[str, Metric]:
    """Do some work, a step or a whole training, wait for its end, and read the peaks.

    Of several GPUs, `count` from this number on among those that CUDA sees, a metric is the largest of any of them.

    Returns, all in bytes:
        `device_initial_memory`, `device_peak_memory`: memory that the device allocator had given out before the work,
            and at the peak. If the allocator's peak cannot be reset, and an earlier one was higher (perhaps while
            kernels were tuned), the peak is an upper bound.
        `program_memory`: the program's need, as the compiler states it.
        `process_device_memory`: the driver's figure for this process, context and caches included.
        `host_initial_memory`, `host_peak_memory`: resident memory of the process before the work, and at its peak.

    Raises:
        ArithmeticError: a peak is below its initial value, so the meter is wrong.
    """
    time.sleep(_GIVEN_BACK)
    trim_heap()
    program.reset_peak_memory()
    device_initial, host_initial = program.memory_in_use(), _resident(proc, "VmRSS")
    earlier = program.peak_memory()
    peak_of_host = host_peak(work, proc)
    device_peak = program.peak_memory()
    of_process = max(process_device_memories(device, number, count), key=lambda metric: metric.value or 0.0)
    if device_peak.value == earlier.value and earlier.value != device_initial.value:
        device_peak = dataclasses.replace(device_peak, at_most=True)
    metrics = {
        "device_initial_memory": device_initial,
        "device_peak_memory": device_peak,
        "program_memory": program.program_memory(),
        "process_device_memory": of_process,
        "host_initial_memory": host_initial,
        "host_peak_memory": peak_of_host,
    }
    for kind, slack in (("device", 0), ("host", _IMPRECISION)):
        initial, peak = metrics[f"{kind}_initial_memory"].value, metrics[f"{kind}_peak_memory"].value
        if initial is not None and peak is not None and peak + slack < initial:
            raise ArithmeticError(
                f"the {kind}'s peak memory, {peak:.0f} B, is below the initial {initial:.0f} B: the meter is wrong"
            )
    return metrics


def host_peak(work: Callable[[], Any], proc: Path = _PROC) -> Metric:
    """The peak of the process's resident memory during some work, in bytes."""
    not_reset = ""
    try:
        # 5 resets the peak resident set size (Linux, proc_pid_clear_refs(5)).
        (proc / "clear_refs").write_text("5")
    except OSError as error:
        not_reset = f"the kernel does not let the peak be reset ({error.strerror})"
    work()
    return unavailable("VmHWM", not_reset) if not_reset else _resident(proc, "VmHWM")


def trim_heap() -> None:
    """Return freed heap pages to the system (glibc), so that memory freed after the build does not count."""
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    except (OSError, AttributeError):
        return  # another libc, whose allocator cannot be trimmed


def _resident(proc: Path, field: str) -> Metric:
    status = content(proc / "status")
    if not status:
        return unavailable(field, "this system has no /proc/self/status")
    match = re.search(rf"^{field}:\s+(\d+) kB$", status, re.MULTILINE)
    if not match:
        return unavailable(field, f"/proc/self/status has no {field}")
    return Metric(int(match[1]) * 1024.0, f"/proc/self/status {field}, interpreter and libraries included")


def process_device_memories(device: str, number: int, count: int) -> list[Metric]:
    """The memory of this process on each of some GPUs, by the driver, or the reason why it is unavailable."""
    source, metrics = "NVML, per process", []
    for index in range(count):
        gpu: nvml.Gpu | str = "the program runs on the CPU"
        if device == "gpu":
            gpu = nvml.find(number=number + index)
        used = None if isinstance(gpu, str) else gpu.process_memory(os.getpid())
        reason = gpu if isinstance(gpu, str) else "the driver does not state it for this process"
        metrics.append(unavailable(source, reason) if used is None else Metric(float(used), source))
    return metrics
