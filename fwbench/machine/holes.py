"""Times in which a process gets no CPU: it is stopped, frozen, suspended, or held by a quota of its control group."""

import contextlib
import os
import resource
import statistics
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fwbench.machine.oom import groups

# Calls stood still if they took longer than usual by this many seconds, and by this share of the usual time.
_LEAST, _SHARE = 0.1, 0.5


def quota(root: Path = Path("/")) -> float | None:
    """The number of CPUs that this process's control group, or one around it, may use; None: as many as there are."""
    granted = []
    for group in groups(root, "cpu"):
        with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
            if (group / "cpu.max").exists():
                most, period = (group / "cpu.max").read_text().split()
            else:
                most, period = ((group / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
            # "max" is no number.
            if float(most) > 0:
                granted.append(float(most) / float(period))
    return min(granted, default=None)


def throttled(root: Path = Path("/")) -> dict[Path, float]:
    """Seconds for which each control group of this process has been held back by a quota, summed over CPUs."""
    seconds = {}
    for group in groups(root, "cpu"):
        with contextlib.suppress(OSError, ValueError):
            told = dict(line.split() for line in (group / "cpu.stat").read_text().splitlines())
            # Microseconds in version 2 of control groups, nanoseconds in version 1.
            if "throttled_usec" in told or "throttled_time" in told:
                seconds[group] = int(told.get("throttled_usec", 0)) / 1e6 + int(told.get("throttled_time", 0)) / 1e9
    return seconds


class Watch:
    """Watches a pass from its construction until `read`.

    Args:
        usual: seconds and CPU seconds of a call; None: the medians of the pass itself.
        cpu: CPU seconds of all threads of this process.
    """

    def __init__(
        self,
        usual: tuple[float, float] | None = None,
        clock: Callable[[], float] = time.perf_counter,
        cpu: Callable[[], float] = time.process_time,
        root: Path = Path("/"),
    ) -> None:
        self._usual, self._clock, self._cpu, self._root = usual, clock, cpu, root
        # Calls, seconds and CPU seconds of each lap, in an array, so that memory hardly grows with them.
        self._laps = array("d")
        self._throttled, self._counters = throttled(root), self._count()
        self._last = clock(), cpu()

    def lap(self, calls: int) -> None:
        """End a lap of this many calls, whose end was waited for; 0 begins the first lap."""
        now = self._clock(), self._cpu()
        if calls:
            self._laps.extend((calls, now[0] - self._last[0], now[1] - self._last[1]))
        self._last = now

    def usual(self) -> tuple[float, float]:
        """The median seconds and median CPU seconds of a call."""
        laps = self._by_lap() or [(1.0, 0.0, 0.0)]
        return (
            statistics.median(spent / calls for calls, spent, _ in laps),
            statistics.median(computed / calls for calls, _, computed in laps),
        )

    def read(self) -> dict[str, Any]:
        """The times of the pass and its interruptions.

        Returns:
            `seconds` and `cpu` seconds of all calls; `gap`: seconds for which calls took longer than usual while the
            process neither computed nor waited for a CPU that others used; `throttled`: seconds for which a quota held
            it back, summed over CPUs; `suspended`: seconds for which the machine slept, which `seconds` leaves out;
            `switches`: number of times that a thread was made to leave its CPU; `waited`: seconds for which threads
            waited for a CPU, summed over threads, None if the kernel does not report it.
        """
        laps, (usual, busy) = self._by_lap(), self._usual or self.usual()
        gap = 0.0
        for calls, spent, computed in laps:
            longer = spent - calls * usual
            if longer > max(_LEAST, _SHARE * calls * usual) and computed - calls * busy < longer / 2:
                gap += longer
        (asleep, switches, waiting), (slept, switched, before) = self._count(), self._counters
        waited = None if waiting is None or before is None else max(0.0, waiting - before)
        # A thread's wait for a CPU is reported as other load, or as throttled.
        gap -= waited or 0.0
        now = throttled(self._root)
        held = max((now[group] - then for group, then in self._throttled.items() if group in now), default=0.0)
        return {
            "seconds": sum(spent for _, spent, _ in laps),
            "cpu": sum(computed for _, _, computed in laps),
            "gap": gap if gap > _LEAST else 0.0,
            "throttled": max(0.0, held),
            "suspended": max(0.0, asleep - slept),
            "switches": switches - switched,
            "waited": waited,
        }

    def _by_lap(self) -> list[tuple[float, float, float]]:
        return list(zip(*[iter(self._laps)] * 3, strict=True))

    @staticmethod
    def _count() -> tuple[float, float, float | None]:
        """Seconds for which the machine slept; involuntary switches; seconds for which threads waited for a CPU."""
        asleep, waiting = 0.0, None
        if hasattr(time, "CLOCK_BOOTTIME"):
            # CLOCK_BOOTTIME moves while the machine sleeps, and CLOCK_MONOTONIC does not.
            asleep = time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)
        with contextlib.suppress(OSError):
            for thread in os.listdir("/proc/self/task"):
                # The thread may have ended.
                with contextlib.suppress(OSError, ValueError, IndexError):
                    delay = int(Path(f"/proc/self/task/{thread}/schedstat").read_text().split()[1]) / 1e9
                    waiting = (waiting or 0.0) + delay
        return asleep, float(resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw), waiting


def watched(
    usual: tuple[float, float], calls: int, take: Callable[..., dict[str, Any]], *amounts: int
) -> dict[str, Any]:
    """The answer of a turn of this many calls, with two more entries.

    `held`: the seconds for which the process stood still, was throttled or suspended. `waited`: the share of the turn's
    time for which threads waited for a CPU, None if unknown.
    """
    watch = Watch(usual)
    watch.lap(0)
    answer = take(*amounts)
    watch.lap(calls)
    told = watch.read()
    waited = told["waited"] / told["seconds"] if told["seconds"] and told["waited"] is not None else None
    return {**answer, "held": told["gap"] + told["throttled"] + told["suspended"], "waited": waited}


def stood_still(told: dict[str, Any]) -> bool:
    """True if a pass with these figures should be made again. A quota is no reason: it holds back the next one, too."""
    return bool(told["gap"] > 0 or told["suspended"] > _LEAST)
