"""Other load: the share of the CPUs that somebody else used while we measured, and that our numbers suffer from."""

import contextlib
import math
import os
import time
from collections.abc import Callable
from pathlib import Path

from fwbench.record.measurement import Metric, unavailable

# Share of the CPUs below which the background of an idle machine stays; beyond it numbers are not the machine's.
BUSY = 0.05

# What shares its CPUs evenly takes 1 / (1 - share) times as long. Threads that wait for each other by spinning lose
# more, and the load of bursts falls on some measurements whole, so that it is this power of it: docs/method.md.
_POWER = 5

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


def lengthened(share: float) -> float:
    """How many times as long other load of this share of the CPUs can make a time take; 1 where it is nobody's load."""
    if share <= BUSY:
        return 1.0
    return math.inf if share >= 1 else (1 - share) ** -_POWER


def family_time(root: int | None = None, proc: Path = Path("/proc")) -> float:
    """Seconds of CPU time of a process, its living descendants, and whoever of them has ended and been waited for.

    Loaders that decode images and compilers that a framework starts are not other load.
    """
    # utime, stime, and those of waited-for children.
    return sum(sum(map(int, columns[11:15])) for columns in _family(root, proc).values()) / os.sysconf("SC_CLK_TCK")


def family() -> set[int]:
    """The numbers of this process and of its living descendants."""
    return {os.getpid(), *_family(None, Path("/proc"))}


def _family(root: int | None, proc: Path) -> dict[int, list[str]]:
    """What the kernel says of a process (default: this one) and of each living descendant, by number.

    Each thread's children are asked for, which distributions' kernels list (CONFIG_PROC_CHILDREN): to read all of a
    machine's hundreds of processes, before and after what is timed, would take many milliseconds of every benchmark.
    """
    told: dict[int, list[str]] = {}
    left = [os.getpid() if root is None else root]
    while left:
        number = left.pop()
        # It may have ended, or the system may have no /proc.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            # After the name, which may hold anything and ends with the last parenthesis (Linux, proc_pid_stat(5)).
            told[number] = _content(f"{proc}/{number}/stat").rpartition(")")[2].split()
            for thread in os.listdir(f"{proc}/{number}/task"):
                left += map(int, _content(f"{proc}/{number}/task/{thread}/children").split())
    return told


def _content(path: str) -> str:
    # Quicker than by way of a buffer and a decoder.
    with open(path, "rb", buffering=0) as file:
        return file.read().decode(errors="replace")


def _affinity() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))
