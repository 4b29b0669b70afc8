"""After all measurements, lanes take turns in rounds until all workloads are decided or the minutes are over."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fwbench.compare.pair import Fault
from fwbench.compare.statistics import (
    LOOKS,
    Scatter,
    pooled_scatter,
    ratio_interval,
    ratio_verdict,
    round_difference,
    rounds_to_decide,
)
from fwbench.machine.load import busy
from fwbench.record.measurement import Failure, Measurement
from fwbench.record.workload import Workload
from fwbench.report import units
from fwbench.report.answers import comparable_lanes
from fwbench.report.cases import cases, comparisons
from fwbench.worker.turns.lanes import Lanes, Round
from fwbench.worker.turns.taken import SLOW

Play = Callable[[Sequence[Workload], Callable[[Workload, Round | Fault], None]], object]

# To guess how long a first round takes: the calls of each lane outside its turns; the seconds in which servers start;
# and on a CPU the time to load a cached program, as a share of its compile time. On a GPU each round compiles anew.
_CALLS, _START, _LOADING = 6, 3.0, 0.25


# Lanes that take turns share light load: twice as much as disturbs one process leaves their ratio as it is
# (docs/evidence/interference.md).
_SHARED = 2


@dataclass
class Contest:
    """A workload whose lanes take turns.

    Attributes:
        workload: its own lane is empty.
        lanes: names.
        seconds: how long its next round will take.
        turns: by lane, its rounds as a measurement stores them.
        programs: the digest of the measured program, by lane.
        cpus: the number of CPUs on which the lanes take turns.
        expected: how far its rounds were expected to scatter at the last look.
        looked: the number of rounds at the last look.
        wanted: how many rounds after the last look would decide its lanes, if they go on alike; before the first look,
            estimated from the measured speeds.
        decided: whether its lanes were told apart or equal at the last look.
        over: whether its lanes are decided, it has had the most rounds, or a lane cannot take turns.
        disturbed: the number of rounds that do not count, as others used the CPUs meanwhile.
    """

    workload: Workload
    lanes: tuple[str, ...]
    seconds: float
    turns: Mapping[str, list[Mapping[str, Any]]]
    programs: Mapping[str, str | None] = field(default_factory=dict)
    cpus: int = 1
    expected: Scatter = field(default_factory=Scatter)
    looked: int = 0
    wanted: int = LOOKS[0]
    decided: bool = False
    over: bool = False
    disturbed: int = 0
    fault: Fault | None = field(default=None, repr=False)

    @property
    def played(self) -> int:
        """The number of rounds played."""
        return len(next(iter(self.turns.values())))

    @property
    def rounds_left(self) -> int:
        """The rounds that are still to be played until its lanes are decided, as far as can be foreseen."""
        return max(1, self.wanted - (self.played - self.looked))

    def add(self, result: Round | Fault) -> None:
        """Add a round."""
        if isinstance(result, Fault):
            self.fault, self.over = result, True
            return
        for lane, digest in result.programs.items():
            if digest and digest != self.programs.get(lane, digest):
                failure = Failure("error", "when it took turns it ran another program than the one that was measured")
                self.fault, self.over = Fault("here", lane, failure), True
                return
        self.seconds = result.seconds
        if result.load > _SHARED * busy(self.cpus):
            self.disturbed += 1
            return
        for lane, turns in self.turns.items():
            values = {metric: list(numbers) for metric, numbers in result.values[lane].items()}
            turns.append({"begun": result.begun, **values})

    def look(self, others: Sequence["Contest"]) -> None:
        """See whether the lanes are decided, given the scatter of other workloads' rounds."""
        self.expected = pooled_scatter(rounds for other in others for rounds in other.differences)
        self.looked = self.played
        if self.played >= LOOKS[0]:
            undecided = []
            for lanes in itertools.combinations(self.lanes, 2):
                rounds = self._differences(*lanes)
                mean, low, high = ratio_interval(rounds, self.expected)
                if ratio_verdict(low, high) == "undecided":
                    undecided.append(rounds_to_decide(mean, rounds, self.expected))
            self.wanted, self.decided = max(undecided, default=0), not undecided
        self.over = self.played >= LOOKS[-1] or self.decided

    @property
    def differences(self) -> Iterator[list[float]]:
        """Each other lane's differences from the first lane, round by round."""
        return (self._differences(self.lanes[0], lane) for lane in self.lanes[1:])

    def _differences(self, one: str, other: str) -> list[float]:
        rounds = zip(self.turns[one], self.turns[other], strict=True)
        return [round_difference(first["call"], second["call"]) for first, second in rounds]


def contests(measured: Sequence[Measurement], cpus: int) -> list[Contest]:
    """The workloads in which at least two lanes have a throughput and may be compared.

    Fits are left out, as their epochs are too long for turns, and so are workloads over several devices and lanes that
    ran with fallback flags.
    """
    usual = [m for m in measured if m.workload.mode != "fit" and m.workload.devices == 1 and not m.fallback]
    comparable = []
    for comparison in comparisons(cases(usual)):
        speeds = [lane for lane, case in comparison.lanes.items() if case.value("throughput")]
        lanes = tuple(comparable_lanes(comparison, speeds))
        if len(lanes) < 2:
            continue
        by_seed = [{m.workload.seed: m for m in comparison.lanes[lane].measurements} for lane in lanes]
        # With several seeds, the lanes take turns with the first seed that all of them have.
        seed = next((seed for seed in by_seed[0] if all(seed in seeds for seeds in by_seed)), None)
        if seed is None:
            continue
        own = {lane: seeds[seed] for lane, seeds in zip(lanes, by_seed, strict=True)}
        loading = 1.0 if own[lanes[0]].workload.device == "gpu" else _LOADING
        # A lane without a median latency made few calls, so its calls are taken to be slow.
        latencies = [m.value("latency_p50") or SLOW for m in own.values()]
        seconds = _START + _CALLS * sum(latencies) + Lanes.amounts.turns(max(latencies), len(lanes))
        seconds += sum(m.stages.get("build", 0.0) + loading * m.stages.get("compile", 0.0) for m in own.values())
        # Rounds from an earlier part of the run, if all lanes played them.
        shared = set.intersection(*({turns["begun"] for turns in m.turns} for m in own.values()))
        turns = {lane: [each for each in m.turns if each["begun"] in shared] for lane, m in own.items()}
        workload = dataclasses.replace(own[lanes[0]].workload, lane="")
        programs = {lane: m.program.digest for lane, m in own.items() if m.program}
        # The speeds as they were measured only choose which workload begins.
        logarithms = [math.log(comparison.lanes[lane].value("throughput") or 1) for lane in lanes]
        wanted = max(rounds_to_decide(one - other, ()) for one, other in itertools.combinations(logarithms, 2))
        comparable.append(Contest(workload, lanes, seconds, turns, programs, cpus, wanted=wanted))
    return comparable


def decide(contests: Sequence[Contest], play: Play, left: Callable[[], float], tell: Callable[[str], None]) -> None:
    """Play rounds of the contests until all are over or none fits into the time left.

    Those that will be decided soonest come first, so that the time decides as many as possible.

    Args:
        play: plays a round of each workload; hands over each result as soon as it is there.
        left: the seconds that may still be spent.
        tell: called with a line before each batch of rounds, and with the outcome.
    """
    of = {contest.workload: contest for contest in contests}
    _look([contest for contest in contests if contest.played in LOOKS], contests)
    while waiting := [contest for contest in contests if not contest.over]:
        chosen = _fitting(sorted(waiting, key=lambda contest: contest.rounds_left * contest.seconds), left())
        if not chosen:
            break
        tell(
            f"lanes take turns: {len(chosen)} workload{'s' * (len(chosen) > 1)}, about "
            f"{units.duration(sum(contest.seconds for contest in chosen))}, {units.duration(left())} left"
        )
        play([contest.workload for contest in chosen], lambda workload, result: of[workload].add(result))
        _look([contest for contest in chosen if contest.played in LOOKS], contests)
    # The last look, after as many rounds as there was time for.
    _look(contests, contests)
    tell(_outcome(contests))


def _look(at: Sequence[Contest], contests: Sequence[Contest]) -> None:
    """Look at contests that are not over and have new rounds since their last look."""
    for contest in at:
        if not contest.over and contest.looked < contest.played:
            contest.look([other for other in contests if other is not contest])


def _fitting(waiting: Sequence[Contest], seconds: float) -> list[Contest]:
    """Choose contests in order: first those that the time decides, then those that it brings to a first look."""
    chosen: list[Contest] = []
    until_decided = [(contest, contest.rounds_left) for contest in waiting]
    until_looked = [(contest, max(1, LOOKS[0] - contest.played)) for contest in waiting]
    for contest, rounds in (*until_decided, *until_looked):
        if contest not in chosen and rounds * contest.seconds <= seconds:
            seconds -= rounds * contest.seconds
            chosen.append(contest)
    return chosen


def _outcome(contests: Sequence[Contest]) -> str:
    decided = sum(contest.fault is None and contest.decided for contest in contests)
    faults = [
        f"{contest.workload.model} {contest.workload.mode} b{contest.workload.batch_size}, {contest.fault.title}: "
        f"{contest.fault.failure.message}"
        for contest in contests
        if contest.fault
    ]
    rounds = sum(contest.played for contest in contests)
    disturbed = sum(contest.disturbed for contest in contests)
    open_ = len(contests) - decided - len(faults)
    others = f"{disturbed} further rounds do not count, as other processes used the CPUs" if disturbed else ""
    parts = [f"{decided} of {len(contests)} workloads decided", f"{open_} open" if open_ else "", others, *faults]
    return f"{rounds} rounds of turns: {'; '.join(filter(None, parts))}"
