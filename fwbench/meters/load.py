"""Other load: the share of the CPUs that somebody else used while we measured, and that our numbers suffer from."""

import os
import time
from collections.abc import Callable
from pathlib import Path

from fwbench.measurement import Metric, unavailable

_SOURCE = "/proc/stat less this process's CPU time, on the CPUs it is pinned to"
# Columns of a cpu line in which time was spent: user, nice, system, irq, softirq, steal (Linux, proc_stat(5)).
_BUSY = (0, 1, 2, 5, 6, 7)


class OtherLoad:
    """Watches from its construction until `read`.

    Args:
        cpus: to watch; default: those this process may run on.
        clock: seconds of wall time.
        own: seconds of CPU time of this process, all threads.
        stat: the kernel's counters.
    """

    def __init__(
        self,
        cpus: set[int] | None = None,
        clock: Callable[[], float] = time.perf_counter,
        own: Callable[[], float] = time.process_time,
        stat: Path = Path("/proc/stat"),
    ) -> None:
        self._cpus = cpus if cpus is not None else _affinity()
        self._clock, self._own, self._stat = clock, own, stat
        self._start = (clock(), own(), self._busy())

    def read(self) -> Metric:
        """The share of the CPUs' time that other processes (or the hypervisor) took, from 0 to 1."""
        start, own, busy = self._start
        now = self._busy()
        elapsed = self._clock() - start
        if busy is None or now is None or elapsed <= 0:
            return unavailable("1", "lower", _SOURCE, "this system has no /proc/stat")
        other = (now - busy) - (self._own() - own)
        return Metric(max(0.0, other / (elapsed * len(self._cpus))), "1", "lower", _SOURCE)

    def _busy(self) -> float | None:
        try:
            lines = self._stat.read_text().splitlines()
        except OSError:
            return None
        ticks = 0
        for line in lines:
            name, *columns = line.split()
            if name.startswith("cpu") and name[3:].isdigit() and int(name[3:]) in self._cpus:
                ticks += sum(int(columns[index]) for index in _BUSY)
        return ticks / os.sysconf("SC_CLK_TCK")


def _affinity() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))
