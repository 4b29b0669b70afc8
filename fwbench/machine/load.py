"""Other load: the share of the CPUs that somebody else used while we measured, and that our numbers suffer from."""

import os
import time
from collections.abc import Callable
from pathlib import Path

from fwbench.record.measurement import Metric, unavailable

# Share of the CPUs below which the background of an idle machine stays; beyond it numbers are not the machine's.
BUSY = 0.05

_SOURCE = "/proc/stat less the CPU time of this process and its children, on the CPUs it is pinned to"
# Columns of a cpu line in which time was spent: user, nice, system, irq, softirq, steal (Linux, proc_stat(5)).
_BUSY = (0, 1, 2, 5, 6, 7)


class OtherLoad:
    """Watches from its construction until `read`.

    Args:
        cpus: to watch; default: those this process may run on.
        clock: seconds of wall time.
        own: seconds of CPU time of this process and of those it started.
        stat: the kernel's counters.
    """

    def __init__(
        self,
        cpus: set[int] | None = None,
        clock: Callable[[], float] = time.perf_counter,
        own: Callable[[], float] | None = None,
        stat: Path = Path("/proc/stat"),
    ) -> None:
        self._cpus = cpus if cpus is not None else _affinity()
        self._clock, self._own, self._stat = clock, own or family_time, stat
        self._start = (clock(), self._own(), self._busy())

    def read(self) -> Metric:
        """The share of the CPUs' time that other processes (or the hypervisor) took, from 0 to 1."""
        start, own, busy = self._start
        now = self._busy()
        elapsed = self._clock() - start
        if busy is None or now is None or elapsed <= 0:
            return unavailable(_SOURCE, "this system has no /proc/stat")
        other = (now - busy) - (self._own() - own)
        return Metric(max(0.0, other / (elapsed * len(self._cpus))), _SOURCE)

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


def family_time(root: int | None = None, proc: Path = Path("/proc")) -> float:
    """Seconds of CPU time of a process, its living descendants, and whoever of them has ended and been waited for.

    Loaders that decode images and compilers that a framework starts are not other load.
    """
    ticks: dict[int, int] = {}
    parents: dict[int, int] = {}
    for stat in proc.glob("[0-9]*/stat"):
        try:
            # After the name, which may hold anything and ends with the last parenthesis (Linux, proc_pid_stat(5)).
            columns = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        process = int(stat.parent.name)
        parents[process] = int(columns[1])
        # utime, stime, and those of waited-for children.
        ticks[process] = sum(map(int, columns[11:15]))
    family = {os.getpid() if root is None else root}
    grown = True
    while grown:
        more = {process for process, parent in parents.items() if parent in family} - family
        family |= more
        grown = bool(more)
    return sum(ticks.get(process, 0) for process in family) / os.sysconf("SC_CLK_TCK")


def _affinity() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))
