"""Estimates the time of a run: each benchmark's last time on this machine, else a rough figure.

The time that benchmarks have taken so far corrects the estimate of the rest.
"""

import contextlib
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from fwbench import units
from fwbench.compare.statistics import SCREENING
from fwbench.errors import UserError
from fwbench.machine import Machine
from fwbench.machine.facts import WORTH
from fwbench.meters.energy import POLLING, SHORTEST_WINDOW, counter
from fwbench.meters.latency import MAX_ROUNDS, SAMPLES_NEEDED
from fwbench.record.journal import oldest_first
from fwbench.record.measurement import CEILING, Measurement
from fwbench.record.reading import read
from fwbench.record.workload import Workload
from fwbench.suite.costs import cost, once, start
from fwbench.suite.profiles import Protocol
from fwbench.worker.turns.pairs import Pairs

# This machine's newest journals are read until they know every benchmark: at most so many, and so many bytes in all.
_JOURNALS = 5
_BYTES = 32 * 2**20

# The stages whose length the protocol sets.
_TIMED = ("warm-up", "latency", "throughput", "energy")

# Calls whose number the protocol does not set: the first call, the memory pass and the fingerprint; and calls that show
# whether anything is compiled, when only programs are examined.
_OTHER_CALLS = 3
_STEADY_CALLS = 2

# Seconds of a call below which a GPU draws so little that each benchmark reads idle power itself.
_SMALL = 2e-3

# Seconds assumed to have been planned rightly, so that one small benchmark corrects little.
_PRIOR = 10.0

_Asked = tuple[Workload, Protocol]


class Estimate(NamedTuple):
    """The seconds that a benchmark will take, and whether they are from a record or the table of rough figures."""

    lane: str
    seconds: float
    recorded: bool


@dataclass
class Plan:
    """The time left of a run, corrected by how long its benchmarks took.

    Attributes:
        pending: the estimates of benchmarks that are not over, by their test's id; None where there is none.
        made: the date of the newest record that they rest on.
        duet: whether they are a duet, whose benchmarks have no times of their own.
        at_once: the number of benchmarks that are measured at the same time.
        turns: from the seconds that measuring still takes, the most seconds left of a run whose lanes then take turns,
            in minutes that waiting uses up, too; None: the run ends with measuring.
    """

    pending: dict[str, Estimate | None]
    made: datetime | None = None
    duet: bool = False
    at_once: int = 1
    turns: Callable[[float], float] | None = None
    # By lane and source: seconds as planned, and as taken.
    _over: dict[tuple[str, bool], tuple[float, float]] = field(
        default_factory=lambda: defaultdict(lambda: (_PRIOR, _PRIOR)), init=False
    )

    @property
    def left(self) -> float:
        """Seconds until all is measured, as far as they are known."""
        return self.of(self.pending)

    def of(self, tests: Iterable[str]) -> float:
        """Seconds until those of these tests that are not over are measured, as far as they are known."""
        each = [0.0]
        for lane, seconds, recorded in filter(None, map(self.pending.get, tests)):
            planned, taken = self._over[lane, recorded]
            each.append(seconds * taken / planned)
        # They take at least as long as the longest of them.
        return max(sum(each) / self.at_once, *each)

    def took(self, test: str, seconds: float | None) -> None:
        """Note that a test is over, after so many seconds; None: it was not measured to its end."""
        estimate = self.pending.pop(test, None)
        if estimate and seconds is not None:
            planned, taken = self._over[estimate.lane, estimate.recorded]
            self._over[estimate.lane, estimate.recorded] = planned + estimate.seconds, taken + seconds

    def told(self) -> str:
        """A line for the start of the run: its expected length, and the sources of the estimate."""
        counts = Counter(estimate and estimate.recorded for estimate in self.pending.values())
        day = self.made.astimezone() if self.made else None
        sources = (
            (counts[True], f"from the record of {day.day} {day:%b %Y}" if day else "from a record"),
            (counts[False], "from rough figures, as no record of this machine has them"),
            (counts[None], "of unknown length"),
        )
        count = len(self.pending)
        benchmarks = f"{count} benchmark{'s' * (count > 1)}{' in a duet' * self.duet}"
        least = "at least" if self.duet or counts[None] else "about"
        rests_on = "; ".join(f"{number} {of}" if number < count else of for number, of in sources if number)
        return f"fwbench: {benchmarks}, {least} {units.duration(self.left)} ({rests_on})"

    def left_told(self) -> str:
        """The time left, for the progress line; empty if nothing is known."""
        are_known = [estimate is not None for estimate in self.pending.values()]
        if self.duet or not any(are_known):
            return ""
        if self.turns:
            return f"up to {units.duration(self.turns(self.left))} left"
        return f"{'' if all(are_known) else 'over '}{units.duration(self.left)} left"


def estimates(
    benchmarks: Mapping[str, _Asked],
    storage: Path,
    machine: Machine,
    processes: int = 1,
    duet: bool = False,
    kept: bool = False,
) -> tuple[dict[str, Estimate | None], datetime | None]:
    """The estimate of each benchmark, and the date of the newest record that they rest on.

    Args:
        benchmarks: by the test's id, in the order of the run.
        storage: the folder of records.
        processes: the number that measure each workload, one after another.
        duet: whether the benchmarks take turns with another revision's.
        kept: whether programs for a GPU that an earlier run has compiled are loaded.
    """
    # Without an energy counter no benchmark waits for its readings.
    metered = not isinstance(counter(machine.device), str)
    # Several processes of a workload each compile for themselves.
    recorded, made = _recorded(benchmarks.values(), storage, machine, metered, duet, kept and processes == 1)
    pending: dict[str, Estimate | None] = {}
    lanes: set[str] = set()
    # Lanes and precisions whose ceilings and arithmetic are known (`fwbench.machine.facts`).
    found = {(workload.lane, workload.precision) for workload, _ in recorded}
    for name, (workload, protocol) in benchmarks.items():
        last = recorded.get((workload, protocol))
        seconds = _rough(workload, protocol, machine.threads, metered, duet) if last is None else last
        if seconds is not None:
            alone = duet or protocol.programs
            seconds *= 1 if alone else processes
            # The first benchmark of a lane waits for its server, and finds out facts that later ones take over.
            if workload.lane not in lanes:
                seconds += start(workload)
                if last is None and not alone and workload.mode != "fit":
                    seconds += rest(protocol, metered)
            if not alone and (workload.lane, workload.precision) not in found:
                seconds += once(workload)
                found.add((workload.lane, workload.precision))
        lanes.add(workload.lane)
        pending[name] = None if seconds is None else Estimate(workload.lane, seconds, last is not None)
    return pending, made


def _recorded(
    asked: Iterable[_Asked], storage: Path, machine: Machine, metered: bool, duet: bool, kept: bool
) -> tuple[dict[_Asked, float], datetime | None]:
    """The seconds from the newest journals of this machine, and the date of the newest of these."""
    asked = set(asked)
    known: dict[_Asked, float] = {}
    made, budget = None, _BYTES
    for path in oldest_first(storage / "journal")[: -_JOURNALS - 1 : -1]:
        with contextlib.suppress(UserError, OSError):
            budget -= path.stat().st_size
            if budget < 0 or len(known) == len(asked):
                break
            record = read(path)
            if record.machine is None or record.machine.differences(machine):
                continue
            last = {m.workload: m for m in sorted(record.measurements, key=lambda m: not m.failure)}
            found = {
                (workload, protocol): seconds
                for workload, protocol in asked
                if workload in last and (seconds := _last(last[workload], protocol, metered, duet, kept)) is not None
            }
            made = made or (record.made if found else None)
            known = found | known
    return known, made


def _last(measured: Measurement, protocol: Protocol, metered: bool, duet: bool, kept: bool) -> float | None:
    """The seconds that a measurement took, with this protocol's windows in place of its own; None: unknown."""
    spent = sum(measured.stages.values()) + (measured.overhead_s or 0.0)
    if measured.failure:
        # Other failures may have been repaired, or come at another moment.
        return spent if measured.failure.kind == "unavailable" else None
    if duet:
        # Suspects take several times as long as screening, but nobody knows how many there will be.
        return sum(pair["seconds"] for pair in measured.duet.get("screening", ())) if measured.duet else None
    if not measured.stages or not (measured.samples or protocol.programs):
        return None
    # Later runs take over the ceilings and a long probe.
    probe = measured.stages.get("probe", 0.0)
    spent -= measured.stages.get(CEILING, 0.0) + probe * (probe >= WORTH)
    if kept and measured.workload.device == "gpu" and "compile" in measured.stages:
        spent += measured.loading - measured.stages["compile"]
    if measured.workload.mode == "fit" or measured.protocol == protocol.to_json():
        return spent
    call = statistics.median(measured.samples) if measured.samples else 0.0
    timed = sum(measured.stages.get(stage, 0.0) for stage in _TIMED)
    rested = rest(protocol, metered) if measured.stages.get("energy", 0.0) >= POLLING else 0.0
    return spent - timed + windows(protocol, call, metered) + rested


def _rough(workload: Workload, protocol: Protocol, threads: int, metered: bool, duet: bool) -> float | None:
    """The seconds by the table of rough figures; None: it has none, or epochs are asked for in a duet."""
    figures = cost(workload, threads)
    if figures is None or (duet and workload.mode == "fit"):
        return None
    if duet:
        return SCREENING * (Pairs.amounts.turns(figures.call, seats=2) + 2 * figures.ready)
    timed = 0.0 if workload.mode == "fit" else windows(protocol, figures.call, metered)
    if workload.mode != "fit" and figures.call < _SMALL:
        timed += rest(protocol, metered)
    return figures.ready + _OTHER_CALLS * figures.call + timed


def windows(protocol: Protocol, call: float, metered: bool) -> float:
    """Seconds that warm-up, latency and throughput take, energy included, for calls of so many seconds each."""
    warm_up = max(1, protocol.warmup_iterations) * call
    if protocol.warmup_time:
        warm_up = min(warm_up, _filled(protocol.warmup_time, call, 2))
    warm_up = max(warm_up, _filled(protocol.least_warmup_time, call, 0))
    if protocol.programs:
        return warm_up + _STEADY_CALLS * call
    most = max(MAX_ROUNDS, protocol.min_rounds) * call
    latency = min(most, _filled(protocol.max_time, call, protocol.min_rounds))
    if SAMPLES_NEEDED[95] * call <= protocol.percentile_time:
        latency = max(latency, SAMPLES_NEEDED[95] * call)
    queue = max(protocol.throughput_time, protocol.energy_time) if metered else protocol.throughput_time
    return warm_up + latency + _filled(queue, call, 2)


def rest(protocol: Protocol, metered: bool) -> float:
    """Seconds without calls, in which idle power is read."""
    if not metered or protocol.programs:
        return 0.0
    return POLLING + (protocol.energy_time if protocol.energy_time >= SHORTEST_WINDOW else 0.0)


def _filled(window: float, call: float, least: int) -> float:
    """Seconds of the calls that fill a window, the last of which ends after it."""
    return max(least, math.ceil(window / max(call, 1e-9))) * call
