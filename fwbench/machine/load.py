"""Other load: the share of the CPUs that other processes used during a measurement, and its effect on the numbers."""

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

# The background of an idle machine uses less than this share of its CPUs and, if there are many, less than this part of
# one CPU: whatever keeps half of one busy is a program. Beyond either limit, numbers are disturbed.
_SHARE, _PART = 0.05, 0.5

# Threads that wait for a CPU for less than this share of the time change no number.
_WAITED = 0.01

# A program that shares its CPUs evenly takes 1 / (1 - share) times as long. A burst of load may fall on one measurement
# as a whole, so that the factor may be this power of it: docs/method.md.
_POWER = 5

# The error of the share of a CPU that others left: the kernel counts hundredths of a second, and a pass lasts about a
# second.
_UNSURE = 0.05

# The CPUs are quiet if nobody else has computed for this many seconds. The kernel counts hundredths of a second
# (ticks), of which a few are anybody's.
_QUIET = 0.25
_TICKS = 2

_SOURCE = "/proc/stat less the CPU time of this process and its children, on the CPUs it is pinned to"
# Columns of a cpu line in which time was spent: user, nice, system, irq, softirq, steal (Linux, proc_stat(5)).
_BUSY = (0, 1, 2, 5, 6, 7)


@dataclass(frozen=True)
class _Moment:
    """Seconds at one moment: of wall time, and of CPU time of this process and its family, and of everybody."""

    clock: float
    own: float
    busy: float | None


class OtherLoad:
    """Watches other load on these CPUs, or those this process may run on, from its construction until `read`.

    The load is all CPU time in the kernel's counters `stat` less the seconds of this process and its family (`own`).
    The device that the measured program computes on decides how much of it is in the way.
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
        """End one lap, that is one measured stretch, and begin another."""
        self._moments.append(self._now())

    def read(self) -> Metric:
        """The share of the CPUs' time that other processes (or the hypervisor) took, from 0 to 1, in the worst lap.

        If a lap is too short for the kernel's clock, all laps count as one.
        """
        moments = [*self._moments, self._now()]
        if any(end.clock - start.clock < _QUIET for start, end in itertools.pairwise(moments)):
            moments = [moments[0], moments[-1]]
        if moments[0].busy is None or moments[-1].clock <= moments[0].clock:
            return unavailable(_SOURCE, "this system has no /proc/stat")
        return Metric(max(0.0, *itertools.starmap(self._share, itertools.pairwise(moments))), _SOURCE)

    def taken(self) -> tuple[float, float]:
        """The CPU seconds that there have been, and those that others took: 0 if this system does not report them.

        The kernel's clock is coarse: others may seem to have taken some hundredths of a second less than nothing, but
        sums of many are right.
        """
        start, end = self._moments[0], self._now()
        there = (end.clock - start.clock) * self.cpus
        return there, 0.0 if start.busy is None else self._share(start, end) * there

    @property
    def cpus(self) -> int:
        """The number of CPUs that are watched."""
        return len(self._cpus)

    @property
    def none(self) -> bool:
        """True if no other process used the CPUs, or if this system does not report it."""
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
    """The share of this many CPUs' time beyond which other processes disturb a measurement on them."""
    return min(_SHARE, _PART / cpus)


def needed(device: str, cpus: int) -> int:
    """The number of CPUs on which other load is in the way of a program that runs on a device.

    For a GPU's program it is 1: the program is fed by a thread or two, for which any free CPU will do.
    """
    return cpus if device == "cpu" else 1


def disturbs(share: float, cpus: int, waited: float | None = None, light: int = 1) -> bool:
    """True if other load of this share of so many CPUs (`needed`) is in the way; `light` times as much is accepted.

    Threads of a GPU's program have `waited` for a CPU for this share of the time; None: unknown.
    """
    return share > light * busy(cpus) and (waited is None or waited > _WAITED)


def lengthened(share: float, cpus: int = 1, waited: float | None = None) -> float:
    """The factor by which other load of this share of the CPUs can lengthen a time; 1 if it does not disturb.

    All of the load may lie on one CPU, and a program whose threads wait for each other is as slow as the slowest. The
    time for which a GPU's program waited for a CPU is known, and others can have cost it no more than that.
    """
    if not disturbs(share, cpus, waited):
        return 1.0
    left = 1 - (share * cpus if waited is None else waited)
    if left < _UNSURE:
        return math.inf
    return 1 / left if waited is not None else max((1 - share) ** -_POWER, 1 / left)


def wait_for_quiet(
    patience: float, sleep: Callable[[float], None] = time.sleep, watch: Callable[[], OtherLoad] = OtherLoad
) -> bool:
    """Wait until others leave the CPUs alone, but no longer than `patience` seconds; return whether they do."""
    waited = 0.0
    while waited < patience:
        load = watch()
        sleep(_QUIET)
        waited += _QUIET
        if load.none:
            return True
    return False


def family_time(root: int | None = None, proc: Path = Path("/proc")) -> float:
    """CPU seconds of a process, of its living descendants, and of descendants that have ended and been waited for.

    Loaders that decode images and compilers that a framework starts are not other load.
    """
    # utime, stime, and those of waited-for children.
    return sum(sum(map(int, columns[11:15])) for columns in _family(root, proc).values()) / os.sysconf("SC_CLK_TCK")


def family() -> set[int]:
    """The numbers of this process and of its living descendants."""
    return {os.getpid(), *_family(None, Path("/proc"))}


def _family(root: int | None, proc: Path) -> dict[int, list[str]]:
    """The fields of /proc/PID/stat for a process (default: this one) and each living descendant, by process number.

    Children are read from the list of each thread, which distributions' kernels have (CONFIG_PROC_CHILDREN). To read
    all of a machine's hundreds of processes before and after each timing would cost every benchmark many milliseconds.
    """
    told: dict[int, list[str]] = {}
    left = [os.getpid() if root is None else root]
    while left:
        number = left.pop()
        # The process may have ended, or the system may have no /proc.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            # Those after the name, which may hold anything and ends at the last parenthesis (Linux, proc_pid_stat(5)).
            told[number] = _content(f"{proc}/{number}/stat").rpartition(")")[2].split()
            for thread in os.listdir(f"{proc}/{number}/task"):
                left += map(int, _content(f"{proc}/{number}/task/{thread}/children").split())
    return told


def _content(path: str) -> str:
    # Faster than through a buffer and a decoder.
    with open(path, "rb", buffering=0) as file:
        return file.read().decode(errors="replace")
