"""Memory growth: the bytes that a program still adds with each call, long after the first calls."""

import contextlib
import ctypes
import os
from collections.abc import Callable, Sequence
from itertools import pairwise

from fwbench.meters.latency import Clock
from fwbench.record.measurement import Metric, unavailable

_PAGE = os.sysconf("SC_PAGE_SIZE")
# Seconds between two looks at the memory. A look takes some microseconds, while nothing is timed.
_BETWEEN = 0.01
# Growth is judged by the last half of the looks, cut into `_PARTS` parts. In each part memory must grow at a rate of at
# least `_STEADY` times the half's. A heap that settles grows in the first calls, or once.
_PARTS, _STEADY = 3, 0.5
# Fewest looks, and fewest calls, in that half. Over fewer, two passes could look like growth, as calls that wait in a
# queue hold memory, too.
_LEAST_LOOKS, _LEAST_CALLS = 2 * _PARTS, 32
# Bytes a call, and bytes over that half, below which growth is the harness's own or the kernel's rounding.
_CALL, _ALL = 1024, 2**20

# Calls so far, and bytes by the name of their source.
Look = tuple[int, dict[str, float]]


class Growth:
    """Looks at the memory of a process from time to time while a program makes calls, and counts these in `calls`.

    Bytes `in_use` are what the device's allocator has given out, if there is one; `host` tells bytes of this process by
    the name of their source.
    """

    def __init__(
        self, in_use: Callable[[], float | None], clock: Clock, host: Callable[[], dict[str, float]] | None = None
    ) -> None:
        self._in_use, self._clock, self._host = in_use, clock, host or _of_this_process
        self.calls, self._due = 0, clock()
        self._looks: list[Look] = []

    def lap(self, calls: int) -> None:
        """Count these further calls; look at the memory if a look is due."""
        self.calls += calls
        now = self._clock()
        if now >= self._due:
            device = self._in_use()
            known = {} if device is None else {"device allocator": device}
            self._looks.append((self.calls, self._host() | known))
            self._due = now + _BETWEEN

    def read(self) -> Metric:
        """`memory_growth`: bytes by which memory grew with each call; 0 if the growth did not go on."""
        half = self._looks[len(self._looks) // 2 :]
        calls = half[-1][0] - half[0][0] if half else 0
        source = f"{len(half)} looks at the memory of the last {calls} calls"
        if len(half) < _LEAST_LOOKS or calls < _LEAST_CALLS or not half[0][1]:
            return unavailable(source, "too few calls, or a system that does not tell")
        rates = {name: _rate([(calls, told[name]) for calls, told in half if name in told]) for name in half[0][1]}
        name = max(rates, key=lambda name: rates[name])
        return Metric(rates[name], f"{source}: {name}")


def _rate(looks: Sequence[tuple[int, float]]) -> float:
    """Growth in bytes a call; 0 if memory did not grow in each part."""
    (first, least), (last, most) = looks[0], looks[-1]
    if last == first or most - least < _ALL:
        return 0.0
    rate = (most - least) / (last - first)
    ends = [looks[len(looks) * part // _PARTS - (part > 0)] for part in range(_PARTS + 1)]
    steady = all(to - at >= _STEADY * rate * (end - begin) for (begin, at), (end, to) in pairwise(ends))
    return rate if steady and rate >= _CALL else 0.0


class _Allocated(ctypes.Structure):
    """glibc's `struct mallinfo2` (mallinfo(3)): `hblkhd` counts the bytes of large blocks, `uordblks` of all others."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks"),
            "keepcost",
        )
    )


def _of_this_process() -> dict[str, float]:
    told = {}
    with contextlib.suppress(OSError), open("/proc/self/statm", "rb", buffering=0) as file:
        told["resident memory"] = float(file.read().split()[1]) * _PAGE
    # Freed memory stays resident, so growth shows late in resident memory. Only glibc has `mallinfo2`.
    with contextlib.suppress(OSError, AttributeError):
        allocated = ctypes.CDLL("libc.so.6").mallinfo2
        allocated.restype = _Allocated
        now = allocated()
        told["allocated memory"] = float(now.uordblks + now.hblkhd)
    return told
