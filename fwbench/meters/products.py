"""How fast a lane multiplies matrices on this machine: what its library for that makes of the CPU."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fwbench.machine import cpu_vendor
from fwbench.meters.latency import Clock
from fwbench.record.measurement import Metric

# Large enough for a library to be at its best, small enough for a tenth of a second.
_SIZE = 1024
# Products that are timed, at least: a single one may meet somebody else on a core.
_PRODUCTS = 5
_SECONDS = 0.2

Matrix = NDArray[np.float32]


def matrices() -> tuple[Matrix, Matrix]:
    """Two square matrices, the same everywhere."""
    rng = np.random.default_rng(0)
    return rng.random((_SIZE, _SIZE), dtype=np.float32), rng.random((_SIZE, _SIZE), dtype=np.float32)


def product_rate(product: Callable[[], Any], library: str, clock: Clock) -> Metric:
    """Floating-point operations a second, of the fastest of several products: what disturbs one makes it slower.

    Args:
        product: multiplies `matrices` and waits for the result.
        library: that does it, for the record.
        clock: seconds.
    """
    # Threads start, and a compiler compiles.
    product()
    seconds: list[float] = []
    begun = now = clock()
    while len(seconds) < _PRODUCTS or now < begun + _SECONDS:
        start = clock()
        product()
        now = clock()
        seconds.append(now - start)
    operations = 2.0 * _SIZE**3
    source = f"{library} on {cpu_vendor()}; float32, {_SIZE} x {_SIZE}, the best of {len(seconds)}"
    return Metric(operations / min(seconds), source)
