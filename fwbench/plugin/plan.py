"""How long a run will take: its protocol's windows, and the rest from a record, from this run or from a table.

    a benchmark = windows (of the protocol: the same everywhere) + work (start, building, compiling, slow calls)

The windows are computed as the worker spends them. The work comes from a record of the same workload on this machine,
or else from a table (`fwbench.suite.costs`). What the run has taken so far corrects what is left.
"""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from fwbench.compare.statistics import SCREENING
from fwbench.errors import UserError
from fwbench.machine import Machine
from fwbench.machine.disturbances import loaded
from fwbench.meters.energy import POLLING, SHORTEST_WINDOW
from fwbench.meters.latency import MAX_ROUNDS, SAMPLES_NEEDED
from fwbench.record.journal import oldest_first
from fwbench.record.measurement import Measurement
from fwbench.record.reading import read
from fwbench.record.workload import Workload
from fwbench.report import units
from fwbench.suite.costs import cost, start
from fwbench.suite.profiles import Protocol
from fwbench.worker.turns.pairs import Pairs

# This machine's newest journals are read until they know every workload: at most so many, and so many bytes in all.
_JOURNALS = 5
_BYTES = 32 * 2**20

# The stages whose length the protocol sets.
_TIMED = ("warm-up", "latency", "throughput", "energy")

# Calls that the protocol sets no amount of: the first call, the memory pass and the fingerprint; and calls that show
# whether anything is compiled, when only programs are examined.
_OTHER_CALLS = 3
_STEADY_CALLS = 2

# Seconds of work assumed to have been planned rightly, so that one small benchmark corrects little.
_PRIOR = 10.0


@dataclass(frozen=True)
class Estimate:
    """How long a benchmark will take.

    Attributes:
        lane: its name.
        windows: seconds that the protocol asks for, whatever the machine.
        work: seconds of everything else.
        recorded: whether `work` comes from a record; else it comes from the table.
    """

    lane: str
    windows: float
    work: float
    recorded: bool


@dataclass(frozen=True)
class Known:
    """What this machine's records hold.

    Attributes:
        measured: the newest measurement of each workload.
        made: when the newest of the records was begun; None if there is none.
    """

    measured: Mapping[Workload, Measurement] = dataclasses.field(default_factory=dict)
    made: datetime | None = None


def known(
    storage: Path, machine: Machine, workloads: Iterable[Workload], *, programs: bool = False, duet: bool = False
) -> Known:
    """Find the workloads in the newest journals of this machine; skip journals that cannot be read.

    Args:
        programs: whether the run examines programs alone.
        duet: whether the run is a duet.
    """

    def tells(measured: Measurement) -> bool:
        if measured.failure:
            # Other failures may have been repaired, or come at another moment.
            return measured.failure.kind == "unavailable"
        return bool(measured.duet) if duet else bool(measured.stages) and (programs or bool(measured.samples))

    missing, measured, made = set(workloads), dict[Workload, Measurement](), None
    budget = _BYTES
    for path in oldest_first(storage / "journal")[: -_JOURNALS - 1 : -1]:
        with contextlib.suppress(UserError, OSError):
            budget -= path.stat().st_size
            if budget < 0 or not missing:
                break
            record = read(path)
            if record.machine is None or record.machine.differences(machine):
                continue
            newest = {m.workload: m for m in record.measurements if m.workload in missing and tells(m)}
            missing -= newest.keys()
            measured |= newest
            made = made or (record.made if newest else None)
    return Known(measured, made)


def plan(
    benchmarks: Mapping[str, tuple[Workload, Protocol]],
    known: Known,
    *,
    threads: int,
    metered: bool,
    processes: int = 1,
    duet: bool = False,
    at_once: int = 1,
    turns: Callable[[float], float] | None = None,
) -> "Plan":
    """The plan of a run.

    Args:
        benchmarks: by the test's id, in the order of the run.
        known: from records.
        threads: of every lane, on a CPU.
        metered: whether there is an energy counter; without one nothing is waited for.
        processes: that measure each workload one after another.
        duet: whether the benchmarks take turns with another revision's.
        at_once: how many are measured at the same time.
        turns: as `Plan` has it.
    """
    estimates: dict[str, Estimate | None] = {}
    lanes: set[str] = set()
    for name, (workload, protocol) in benchmarks.items():
        measured = known.measured.get(workload)
        if duet:
            estimate = _of_duet(workload, measured, threads)
        else:
            estimate = _of_record(workload, protocol, measured, metered) if measured else None
            estimate = estimate or _of_table(workload, protocol, threads, metered)
            if estimate and not protocol.programs:
                estimate = dataclasses.replace(
                    estimate, windows=processes * estimate.windows, work=processes * estimate.work
                )
        if estimate and workload.lane not in lanes:
            # The first benchmark of a lane waits for its server.
            estimate = dataclasses.replace(estimate, work=estimate.work + start(workload))
        lanes.add(workload.lane)
        estimates[name] = estimate
    return Plan(estimates, known.made, duet=duet, at_once=at_once, turns=turns)


def windows(protocol: Protocol, call: float, metered: bool) -> float:
    """Seconds that warm-up, latency, throughput and energy take, for calls of so many seconds each.

    Args:
        metered: whether there is an energy counter; without one nothing is waited for.
    """
    warm_up = max(1, protocol.warmup_iterations)
    if protocol.warmup_time:
        warm_up = min(warm_up, _calls(protocol.warmup_time, call, least=2))
    if protocol.least_warmup_time:
        warm_up = max(warm_up, _calls(protocol.least_warmup_time, call))
    if protocol.programs:
        return (warm_up + _STEADY_CALLS) * call
    most = max(MAX_ROUNDS, protocol.min_rounds)
    latency = min(most, _calls(protocol.max_time, call, least=protocol.min_rounds))
    if SAMPLES_NEEDED[95] * call <= protocol.percentile_time:
        latency = max(latency, SAMPLES_NEEDED[95])
    throughput = _calls(protocol.throughput_time, call, least=2)
    seconds = (warm_up + latency + throughput) * call
    if metered:
        seconds += POLLING
    if metered and protocol.energy_time >= SHORTEST_WINDOW:
        seconds += protocol.energy_time + _calls(protocol.energy_time, call) * call
    return seconds


def _calls(window: float, call: float, least: int = 1) -> int:
    """Calls that fill a window, the last of which ends after it."""
    return max(least, math.ceil(window / max(call, 1e-9)))


def _of_record(workload: Workload, protocol: Protocol, measured: Measurement, metered: bool) -> Estimate | None:
    stages = measured.stages
    spent = sum(stages.values()) + (measured.overhead_s or 0.0)
    if workload.mode == "fit" or measured.failure:
        return Estimate(workload.lane, 0.0, spent, recorded=True)
    timed = sum(stages.get(stage, 0.0) for stage in _TIMED)
    if measured.protocol == protocol.to_json() and not loaded(measured):
        return Estimate(workload.lane, timed, spent - timed, recorded=True)
    if not measured.samples:
        return None
    typical = sorted(measured.samples)[len(measured.samples) // 2]
    return Estimate(workload.lane, windows(protocol, typical, metered), spent - timed, recorded=True)


def _of_table(workload: Workload, protocol: Protocol, threads: int, metered: bool) -> Estimate | None:
    assumed = cost(workload, threads)
    if assumed is None:
        return None
    timed = 0.0 if workload.mode == "fit" else windows(protocol, assumed.call, metered)
    return Estimate(workload.lane, timed, assumed.ready + _OTHER_CALLS * assumed.call, recorded=False)


def _of_duet(workload: Workload, measured: Measurement | None, threads: int) -> Estimate | None:
    """Seconds of a duet's screening. Suspects take several times that, but nobody knows how many there will be."""
    if measured:
        pairs = measured.duet.get("screening", ())
        return Estimate(workload.lane, 0.0, sum(pair["seconds"] for pair in pairs), recorded=True)
    assumed = cost(workload, threads)
    # Epochs are too long to take turns.
    if assumed is None or workload.mode == "fit":
        return None
    turns = Pairs.amounts.turns(assumed.call, seats=2)
    return Estimate(workload.lane, SCREENING * turns, SCREENING * 2 * assumed.ready, recorded=False)


class Plan:
    """How long a run's benchmarks will take, corrected by how long they took.

    Args:
        benchmarks: by the test's id; None where nobody knows.
        made: when the record was made that knows some of them.
        duet: whether they are a duet, whose benchmarks have no times of their own.
        at_once: how many are measured at the same time.
        turns: the most seconds that are left of the run, of those that measuring takes; None: it ends with measuring.
            Then lanes take turns, in minutes that waiting uses up, too.

    Attributes:
        pending: the benchmarks that are not over.
    """

    def __init__(
        self,
        benchmarks: Mapping[str, Estimate | None],
        made: datetime | None = None,
        *,
        duet: bool = False,
        at_once: int = 1,
        turns: Callable[[float], float] | None = None,
    ) -> None:
        self.pending: dict[str, Estimate | None] = dict(benchmarks)
        self._made = made
        self._duet = duet
        self._at_once = at_once
        self._turns = turns
        # Seconds of work by source and lane: as planned, and as taken.
        self._planned: dict[tuple[bool, str], float] = {}
        self._taken: dict[tuple[bool, str], float] = {}

    @property
    def left(self) -> float:
        """Seconds until the run ends, as far as they are known."""
        each = [
            estimate.windows + estimate.work * self._factor(estimate) for estimate in self.pending.values() if estimate
        ]
        # The run lasts at least as long as its longest benchmark.
        return max(sum(each) / self._at_once, *each, 0.0)

    def took(self, name: str, seconds: float | None) -> None:
        """Note that a benchmark is over.

        Args:
            name: its test's id; a test that was not planned changes nothing.
            seconds: how long it took; None if it was not measured to its end.
        """
        estimate = self.pending.pop(name, None)
        if estimate and seconds is not None:
            key = (estimate.recorded, estimate.lane)
            self._planned[key] = self._planned.get(key, 0.0) + estimate.work
            self._taken[key] = self._taken.get(key, 0.0) + max(0.0, seconds - estimate.windows)

    def _factor(self, estimate: Estimate) -> float:
        """The ratio of taken to planned work of this source and lane."""
        key = (estimate.recorded, estimate.lane)
        return (self._taken.get(key, 0.0) + _PRIOR) / (self._planned.get(key, 0.0) + _PRIOR)

    # Told

    def told(self) -> str:
        """A line for the start of the run: how long it will take, and how that is known."""
        estimates = [estimate for estimate in self.pending.values() if estimate]
        count, recorded = len(self.pending), sum(estimate.recorded for estimate in estimates)
        benchmarks = f"fwbench: {count} benchmark{'s' if count > 1 else ''}{' in a duet' if self._duet else ''}"
        if not estimates:
            return f"{benchmarks}, whose length is not known"
        sources = []
        if recorded and self._made:
            local = self._made.astimezone()
            of = f"{recorded} " if recorded < count else ""
            sources.append(f"{of}from the record of {local.day} {local:%b %Y}")
        if recorded < len(estimates):
            of = f"{len(estimates) - recorded} " if len(estimates) - recorded < count else ""
            sources.append(f"{of}from rough figures, as no record of this machine has them")
        if len(estimates) < count:
            sources.append(f"without {count - len(estimates)} whose length is not known")
        least = "at least" if self._duet or len(estimates) < count else "about"
        return f"{benchmarks}, {least} {units.duration(self.left)} ({'; '.join(sources)})"

    def left_told(self) -> str:
        """The time left, for the progress line; empty if nothing is known."""
        are_known = [estimate is not None for estimate in self.pending.values()]
        if self._duet or not any(are_known):
            return ""
        if self._turns:
            return f"up to {units.duration(self._turns(self.left))} left"
        return f"{'' if all(are_known) else 'over '}{units.duration(self.left)} left"
