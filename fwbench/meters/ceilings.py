"""The highest rates that a lane's libraries reach on this machine: matrix products, a convolution and a copy.

A report compares a row with the best rate of all lanes. The rates of the row's own lane are no limit: PyTorch's
convolutions beat its matrix products on AMD's CPUs.
"""

import dataclasses
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fwbench.errors import Absent
from fwbench.frameworks.contract import Framework, Offered
from fwbench.frameworks.faults import first_line
from fwbench.machine import cpu_vendor, last_cache, nvml
from fwbench.machine.oom import host_memory
from fwbench.meters.latency import Clock
from fwbench.record.measurement import Metric, unavailable
from fwbench.record.workload import Workload

# Sides of square matrices. A small product ends before another process takes its core; a large one keeps many cores
# busy. So several sizes are tried, and the best counts.
_SIDES = {"cpu": (512, 1024, 2048, 4096, 8192), "gpu": (4096, 8192)}
# Longest product in seconds, estimated from the previous size's rate; a longer one is not begun.
_LONGEST = 0.1
# Fewest calls, and fewest seconds, of each operation: a single call may share its core with another process.
_CALLS, _SECONDS = 5, 0.1

# The convolution in the middle of ResNet-50, on as many images as take 20 ms at the best product's rate.
_PIXELS, _CHANNELS, _KERNEL = 28, 256, 3
_CONVOLUTION, _MOST_IMAGES = 0.02, 128

# Fewest and most bytes of a copy. STREAM asks for four times the last cache; but a virtual machine may report the cache
# of its whole host, so the copy also has a largest size, and a largest share of the memory. On a GPU a copy must take
# far longer than the overhead of a call: an H200 copies 256 MiB in 0.12 ms, and a call in JAX adds 0.06 ms.
_LEAST, _MOST, _MOST_ON_GPU = 64 * 2**20, 256 * 2**20, 4 * 2**30
_CACHES, _OF_MEMORY = 4, 16

Array = NDArray[np.float32]


def ceilings(framework: Framework, workload: Workload, clock: Clock, highest: float | None = None) -> dict[str, Metric]:
    """Measure the highest rates of a lane's libraries, in the workload's precision and on its device.

    Called after a build. Empty for a lane that offers no operation. Where another lane has reached `highest`, this lane
    tries its largest product alone, and has a ceiling only if that is faster: XLA compiles each operation for seconds
    on a GPU. If an operation fails, for instance for lack of memory, its metric is unavailable with the reason, so that
    times already measured are not lost. If the convolution fails, the product is the ceiling, and its source says why.
    """
    metrics: dict[str, Metric] = {}

    def tried(name: str, trial: Callable[[], Metric | None]) -> float:
        """The rate, which is also noted under this name; 0 if the operation is not offered or fails."""
        try:
            found = trial()
        except Exception as error:
            where = f"on {_processor(workload)}; {workload.precision}"
            found = unavailable(where, f"{type(error).__name__}: {first_line(error)}")
        if found:
            metrics[name] = found
        return (found and found.value) or 0.0

    product = tried("matrix_product_rate", lambda: _product(framework, workload, clock, highest is not None))
    if highest is not None:
        if product > highest:
            metrics["compute_ceiling"] = metrics["matrix_product_rate"]
        return metrics
    if product and tried("compute_ceiling", lambda: _convolution(framework, workload, product, clock)) < product:
        best, other = metrics["matrix_product_rate"], metrics.get("compute_ceiling")
        failure = f"; a convolution failed: {other.reason}" if other and other.reason else ""
        metrics["compute_ceiling"] = dataclasses.replace(best, source=best.source + failure)
    tried("memory_bandwidth", lambda: _copy(framework, workload, clock))
    return metrics


def matrices(side: int) -> tuple[Array, Array]:
    """Two square matrices of random numbers, the same in every lane."""
    rng = np.random.default_rng(0)
    return rng.random((side, side), dtype=np.float32), rng.random((side, side), dtype=np.float32)


def images_and_kernel(images: int) -> tuple[Array, Array]:
    """The operands of the convolution: images in NHWC, and a kernel (out, in, height, width)."""
    rng = np.random.default_rng(0)
    kernel = rng.random((_CHANNELS, _CHANNELS, _KERNEL, _KERNEL), dtype=np.float32)
    return rng.random((images, _PIXELS, _PIXELS, _CHANNELS), dtype=np.float32), kernel


def copied(cache: int, memory: int) -> int:
    """The bytes of a copy, so many that no cache holds them, from the bytes of the last cache and of all memory."""
    return min(max(_LEAST, _CACHES * cache), _MOST, memory // _OF_MEMORY)


def _product(framework: Framework, workload: Workload, clock: Clock, largest: bool) -> Metric | None:
    best, most = None, 0.0
    for side in _SIDES[workload.device][-1 if largest else 0 :]:
        operations = 2.0 * side**3
        if best and operations > _LONGEST * most:
            break
        offered = framework.matrix_product(workload, *matrices(side))
        if offered is None:
            break
        found = _fastest(workload, offered, operations, f"product of {side} x {side}", clock)
        if (rate := found.value or 0.0) > most:
            best, most = found, rate
    return best


def _convolution(framework: Framework, workload: Workload, rate: float, clock: Clock) -> Metric | None:
    # The border of zeros is multiplied too.
    operations = 2.0 * _PIXELS**2 * _CHANNELS**2 * _KERNEL**2
    if operations > _LONGEST * rate:
        return None
    images = min(max(1, int(_CONVOLUTION * rate / operations)), _MOST_IMAGES)
    offered = framework.convolution(workload, *images_and_kernel(images))
    if offered is None:
        return None
    what = f"{_KERNEL}x{_KERNEL} convolution of {images} x {_PIXELS} x {_PIXELS} x {_CHANNELS}"
    return _fastest(workload, offered, images * operations, what, clock)


def _copy(framework: Framework, workload: Workload, clock: Clock) -> Metric | None:
    if workload.device == "gpu":
        gpu = nvml.find()
        size = _MOST if isinstance(gpu, Absent) else min(_MOST_ON_GPU, gpu.memory // _OF_MEMORY)
    else:
        size = copied(last_cache(), host_memory() or _MOST * _OF_MEMORY)
    offered = framework.copy(workload, size // 4)
    if offered is None:
        return None
    return _fastest(workload, offered, 2.0 * size, f"copy of {size / 2**20:.0f} MiB, read and written", clock)


def _fastest(workload: Workload, offered: Offered, amount: float, what: str, clock: Clock) -> Metric:
    """The rate of the fastest of several calls, in operations or bytes a second: a disturbance makes a call slower."""
    call, library = offered
    # The first call starts threads, touches memory, and may tune.
    call()
    seconds: list[float] = []
    begun = now = clock()
    while len(seconds) < _CALLS or now < begun + _SECONDS:
        start = clock()
        call()
        now = clock()
        seconds.append(now - start)
    where = f"{library} on {_processor(workload)}"
    operation = f"{workload.precision} {what}, the best of {len(seconds)}"
    return Metric(amount / min(seconds), f"{where}; {operation}", library=where, operation=operation)


def _processor(workload: Workload) -> str:
    return cpu_vendor() if workload.device == "cpu" else "the GPU"
