"""Other load: the share of the CPUs that somebody else used while we measured, and that our numbers suffer from."""

import contextlib
import itertools
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fwbench.machine.host import affinity
from fwbench.record.files import content
from fwbench.record.measurement import Metric, unavailable

# Share of the CPUs below which the background of an idle machine stays, and of many CPUs the part of one: what keeps
# half of one busy is a program. Beyond either, numbers are not the machine's.
_SHARE, _PART = 0.05, 0.5

# So short a wait for a CPU, as a share of the time, changes no number.
_WAITED = 0.01

# What shares its CPUs evenly takes 1 / (1 - share) times as long. The load of bursts falls on some measurements whole,
# so that it is this power of it: docs/method.md.
_POWER = 5

# How far the share of a CPU that others left may be wrong: the kernel counts hundredths of a second, and a pass lasts
# about a second.
_UNSURE = 0.05

# Seconds in which nobody else has computed: the kernel counts hundredths of them, of which a few are anybody's.
_QUIET = 0.25
_TICKS = 2

_SOURCE = "/proc/stat less the CPU time of this process and its children, on the CPUs it is pinned to"
# Columns of a cpu line in which time was spent: user, nice, system, irq, softirq, steal (Linux, proc_stat(5)).
_BUSY = (0, 1, 2, 5, 6, 7)


@dataclass(frozen=True)
class _Moment:
    """What counters say.

    Attributes:
        clock: seconds of wall time.
        own, busy: seconds of CPU time of this process and its family, and of everybody.
    """

    clock: float
    own: float
    busy: float | None


class OtherLoad:
    """Watches from its construction until `read`.

    Args:
        cpus: to watch; default: those this process may run on.
        clock: seconds of wall time.
        own: seconds of CPU time of this process and of those it started.
        stat: the kernel's counters.
        device: that what is measured computes on.
    """

    def __init__(
        self,
        cpus: set[int] | None = None,
        clock: Callable[[], float] = time.perf_counter,
        own: Callable[[], float] | None = None,
        stat: Path = Path("/proc/stat"),
        device: str = "cpu",
    ) -> None:
        self._device = device
        self._cpus = cpus if cpus is not None else affinity()
        self._clock, self._own, self._stat = clock, own or family_time, stat
        self._moments = [self._now()]

    def lap(self) -> None:
        """One thing that is measured is over, and another begins."""
        self._moments.append(self._now())

    def read(self) -> Metric:
        """The share of the CPUs' time that other processes (or the hypervisor) took, from 0 to 1: of all laps the most.

        Laps too short for the kernel's clock count as one.
        """
        moments = [*self._moments, self._now()]
        if any(end.clock - start.clock < _QUIET for start, end in itertools.pairwise(moments)):
            moments = [moments[0], moments[-1]]
        if moments[0].busy is None or moments[-1].clock <= moments[0].clock:
            return unavailable(_SOURCE, "this system has no /proc/stat")
        return Metric(max(0.0, *itertools.starmap(self._share, itertools.pairwise(moments))), _SOURCE)

    def taken(self) -> tuple[float, float]:
        """CPU seconds that there have been, and how many of them others took: 0 where this system does not tell.

        By the kernel's clock, others may seem to have taken some hundredths less than nothing; sums of many are right.
        """
        start, end = self._moments[0], self._now()
        there = (end.clock - start.clock) * self.cpus
        return there, 0.0 if start.busy is None else self._share(start, end) * there

    @property
    def cpus(self) -> int:
        """How many are watched."""
        return len(self._cpus)

    @property
    def none(self) -> bool:
        """Whether others have left the CPUs alone; also where this system does not tell."""
        share, elapsed = self.read().value, self._clock() - self._moments[0].clock
        ticks = _TICKS / os.sysconf("SC_CLK_TCK") / max(elapsed, _QUIET) / self.cpus
        return share is None or share <= busy(needed(self._device, self.cpus)) + ticks

    def _share(self, start: "_Moment", end: "_Moment") -> float:
        other = ((end.busy or 0.0) - (start.busy or 0.0)) - (end.own - start.own)
        return other / ((end.clock - start.clock) * self.cpus)

    def _now(self) -> "_Moment":
        return _Moment(self._clock(), self._own(), self._busy())

    def _busy(self) -> float | None:
        lines = content(self._stat).splitlines()
        if not lines:
            return None
        ticks = 0
        for line in lines:
            name, *columns = line.split()
            if name.startswith("cpu") and name[3:].isdigit() and int(name[3:]) in self._cpus:
                ticks += sum(int(columns[index]) for index in _BUSY)
        return ticks / os.sysconf("SC_CLK_TCK")


def busy(cpus: int) -> float:
    """The share of the time of so many CPUs beyond which other processes disturb what is measured on them."""
    return min(_SHARE, _PART / cpus)


def needed(device: str, cpus: int) -> int:
    """On how many of so many CPUs other load is in the way of what computes on a device.

    A GPU's program is fed by a thread or two, for which any free CPU will do.
    """
    return cpus if device == "cpu" else 1


def disturbs(share: float, cpus: int, waited: float | None = None, light: int = 1) -> bool:
    """Whether other load of this share of the CPUs is in the way.

    Args:
        cpus: as `needed` has them.
        waited: the share of the time for which threads of a GPU's program waited for a CPU; None: unknown.
        light: how many times as much load is borne.
    """
    return share > light * busy(cpus) and (waited is None or waited > _WAITED)


def lengthened(share: float, cpus: int = 1, waited: float | None = None) -> float:
    """How many times as long other load of this share of the CPUs can make a time take; 1 where it is nobody's load.

    All of it may lie on one of the CPUs, and a program whose threads wait for each other is as slow as the slowest. Of
    a GPU's program it is known how long its threads waited for a CPU, which is all that others can have cost.

    Args:
        cpus, waited: as in `disturbs`.
    """
    if not disturbs(share, cpus, waited):
        return 1.0
    left = 1 - (share * cpus if waited is None else waited)
    if waited is not None:
        return math.inf if left < _UNSURE else 1 / left
    return math.inf if left < _UNSURE else max((1 - share) ** -_POWER, 1 / left)


def wait_for_quiet(
    patience: float, sleep: Callable[[float], None] = time.sleep, watch: Callable[[], OtherLoad] = OtherLoad
) -> bool:
    """Wait until others leave the CPUs alone.

    Args:
        patience: seconds that this may take.

    Returns:
        Whether they do.
    """
    waited = 0.0
    while waited < patience:
        load = watch()
        sleep(_QUIET)
        waited += _QUIET
        if load.none:
            return True
    return False


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
