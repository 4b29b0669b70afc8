"""Lets lanes take turns after all measurements, until all ratios are precise or the minutes are over."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fwbench import units
from fwbench.compare import rounds
from fwbench.compare.cases import by_workload, cases
from fwbench.compare.pair import Fault
from fwbench.compare.parity import comparable_lanes
from fwbench.compare.ratios import EQUAL, FEWEST_ROUNDS, MOST_ROUNDS, PRECISE, Scatter, as_usual, ratio_interval
from fwbench.machine.load import disturbs, needed
from fwbench.record.measurement import Failure, Measurement
from fwbench.record.rounds import PlayedRound
from fwbench.record.workload import Workload
from fwbench.worker.turns.lanes import AMOUNTS, Round, seconds_on_gpu
from fwbench.worker.turns.taken import SLOW

Play = Callable[[Sequence[Workload], Callable[[Workload, Round | Fault], None]], object]

# For an estimate of a first round: the calls of each lane outside its turns, and its share of the seconds in which
# servers start, as the workloads of a run share them.
_CALLS, _START = 6, 0.5

# Light load slows all lanes that take turns alike: their ratio stands twice the load that disturbs one process
# (docs/evidence/interference.md).
_SHARED = 2


@dataclass
class Contest:
    """A workload whose lanes take turns.

    Attributes:
        workload: its own lane is empty.
        lanes: their names.
        seconds: the expected length of its next round.
        turns: by lane, its rounds as a measurement stores them.
        programs: the digest of the measured program, by lane.
        sources: the digests of the user's files that the measured process had read, by lane and name.
        cpus: the number of CPUs on which other load is in the way of the lanes' turns.
        device: by lane, a GPU's computing time for a call, in seconds.
        busy: whether a GPU sets the speed of all lanes.
        expected: by lane, the expected scatter of its rounds, given the rounds of the other workloads.
        usual: the usual pace of the run's rounds, in seconds; 0: unknown.
        disturbed: the number of rounds that are not kept, as others used the CPUs or the GPU, or a process was stopped.
        fault: the reason why a lane cannot take turns; None: all can.
    """

    workload: Workload
    lanes: tuple[str, ...]
    seconds: float
    turns: Mapping[str, list[Mapping[str, Any]]]
    programs: Mapping[str, str | None] = field(default_factory=dict)
    cpus: int = 1
    sources: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    device: Mapping[str, float] = field(default_factory=dict)
    busy: bool = False
    expected: Mapping[str, Scatter] = field(default_factory=dict)
    usual: float = 0.0
    disturbed: int = 0
    fault: Fault | None = field(default=None, repr=False)

    @property
    def played(self) -> int:
        """The number of rounds that count."""
        return len(self._counted(self.lanes[0]))

    @property
    def slow(self) -> int:
        """The number of rounds that do not count, as the CPUs handed numbers over at an unusual pace."""
        return len(self.turns[self.lanes[0]]) - self.played

    def _counted(self, lane: str) -> list[Mapping[str, Any]]:
        return rounds.counted(self.turns[lane], self.usual)

    @property
    def width(self) -> float:
        """Half the width of the widest interval of two lanes' ratio, as a share of it; infinite with too few rounds."""
        if self.played < FEWEST_ROUNDS:
            return math.inf
        widths = []
        for pair in itertools.combinations(self.counted.items(), 2):
            expected = rounds.wider(*(self.expected.get(lane, Scatter()) for lane, _ in pair))
            _, low, high = ratio_interval(next(rounds.differences(dict(pair))), expected)
            widths.append(math.expm1((high - low) / 2))
        return max(widths)

    @property
    def lacks(self) -> bool:
        """True if it lacks rounds for an interval."""
        return math.isinf(self.width)

    @property
    def mixed(self) -> bool:
        """True if of its two rounds one alone was at the usual pace: both count until a third one is played."""
        usual = [as_usual(each.get("pace", 0.0), self.usual) for each in self.turns[self.lanes[0]]]
        return len(usual) == FEWEST_ROUNDS and usual.count(True) == 1

    @property
    def price(self) -> float:
        """Seconds of rounds until its ratio is likely to be known within 5 %; infinite if it may not play so many."""
        needed = math.ceil(self.played * (self.width / EQUAL) ** 2) if self.played >= FEWEST_ROUNDS else math.inf
        return max(1, needed - self.played) * self.seconds if needed <= MOST_ROUNDS else math.inf

    @property
    def over(self) -> bool:
        """True if it plays no further rounds: it is precise, has had the most rounds, or a lane cannot take turns."""
        over = self.played >= MOST_ROUNDS or self.played + self.slow >= 2 * MOST_ROUNDS
        return self.fault is not None or over or self.width <= PRECISE

    @property
    def missing(self) -> int:
        """The number of rounds that it lacks for a first interval; 1 if it has one that may become narrower."""
        return max(1, FEWEST_ROUNDS - self.played)

    def add(self, result: Round | Fault) -> PlayedRound | None:
        """Add a round, and return it if it is to be kept."""
        if isinstance(result, Fault):
            self.fault = result
            return None
        for lane in self.lanes:
            if why := self._unlike(lane, result):
                failure = Failure("error", f"when it took turns {why} than the one that was measured")
                self.fault = Fault("here", lane, failure)
                return None
        self.seconds = result.seconds
        if result.held or result.disturbed or disturbs(result.load, self.cpus, result.waited, _SHARED):
            self.disturbed += 1
            return None
        for lane, turns in self.turns.items():
            turns.append({"begun": result.begun, "pace": result.pace, **result.values[lane]})
        return PlayedRound(self.workload, result.begun, result.values, result.pace)

    def _unlike(self, lane: str, result: Round) -> str:
        """A phrase if a lane ran another text or program in a round than when it was measured; else empty."""
        measured, read = self.sources.get(lane, {}), result.sources.get(lane, {})
        for name in measured.keys() & read.keys():
            if measured[name] != read[name]:
                return f"{name} was another text"
        digest = result.programs.get(lane)
        return "it ran another program" if digest and digest != self.programs.get(lane, digest) else ""

    @property
    def counted(self) -> dict[str, list[rounds.Turns]]:
        """By lane, the rounds that count."""
        return {lane: self._counted(lane) for lane in self.lanes}


def contests(measured: Sequence[Measurement], cpus: int) -> list[Contest]:
    """The workloads in which at least two lanes have a throughput and may be compared.

    Fits are left out, as their epochs are too long for turns, and so are workloads over several devices and lanes that
    ran with fallback flags.
    """
    usual = [m for m in measured if m.workload.mode != "fit" and m.workload.devices == 1 and not m.fallback]
    comparable = []
    for of in by_workload(cases(usual)).values():
        chosen = comparable_lanes({lane: case for lane, case in of.items() if case.value("throughput")})
        lanes = tuple(chosen)
        if len(lanes) < 2:
            continue
        by_seed = [{m.workload.seed: m for m in case.measurements} for case in chosen.values()]
        # With several seeds, the lanes take turns with the first seed that all of them have.
        seed = next((seed for seed in by_seed[0] if all(seed in seeds for seeds in by_seed)), None)
        if seed is None:
            continue
        own = {lane: seeds[seed] for lane, seeds in zip(lanes, by_seed, strict=True)}
        # A lane without a median latency made few calls, so its calls are taken to be slow.
        latencies = [m.value("latency_p50") or SLOW for m in own.values()]
        seconds = _START + _CALLS * sum(latencies)
        device = rounds.device_times(own.values())
        calls = [m.workload.samples / (m.value("throughput") or math.inf) for m in own.values()]
        on_gpu = own[lanes[0]].workload.device == "gpu"
        pairs = zip(own, calls, strict=True)
        busy = on_gpu and all(rounds.sets_speed(device.get(lane, 0.0), call) for lane, call in pairs)
        if on_gpu:
            seconds += sum(seconds_on_gpu(*each, busy=busy) for each in zip(latencies, calls, strict=True))
        else:
            seconds += AMOUNTS["cpu"].turns(max(latencies), len(lanes))
        seconds += sum(m.stages.get("build", 0.0) + m.loading for m in own.values())
        # Rounds from an earlier part of the run, if all lanes played them.
        shared = set.intersection(*({turns["begun"] for turns in m.turns} for m in own.values()))
        turns = {lane: [each for each in m.turns if each["begun"] in shared] for lane, m in own.items()}
        workload = dataclasses.replace(own[lanes[0]].workload, lane="")
        programs = {lane: m.program.digest for lane, m in own.items() if m.program}
        sources = {lane: m.sources for lane, m in own.items()}
        comparable.append(
            Contest(
                *(workload, lanes, seconds, turns, programs, needed(workload.device, cpus), sources),
                device=device,
                busy=busy,
            )
        )
    return comparable


def decide(
    contests: Sequence[Contest],
    play: Play,
    left: Callable[[], float],
    keep: Callable[[PlayedRound], None],
    tell: Callable[[str], None],
    further: bool = True,
) -> None:
    """Play rounds of the contests until all are over or none fits into the time left.

    The widths of the intervals decide the order, and never the ratios themselves (`_first`).

    Args:
        play: plays a round of each workload; hands over each result as soon as it is there.
        left: the seconds that may still be spent.
        keep: called with each round as soon as it is played.
        tell: called with a line before each batch of rounds, and with the outcome.
        further: whether contests that have an interval play on.
    """
    of = {contest.workload: contest for contest in contests}

    def arrived(workload: Workload, result: Round | Fault) -> None:
        if played := of[workload].add(result):
            keep(played)

    _expect(contests)
    while waiting := [contest for contest in contests if not contest.over and (further or contest.lacks)]:
        waiting.sort(key=lambda contest: contest.seconds)
        chosen = _fitting(_first(waiting), left()) or _fitting(waiting, left())
        if not chosen:
            break
        tell(
            f"lanes take turns: {len(chosen)} workload{'s' * (len(chosen) > 1)}, about "
            f"{units.duration(sum(contest.seconds for contest in chosen))}, {units.duration(left())} left"
        )
        play([contest.workload for contest in chosen], arrived)
        _expect(contests)
    tell(_outcome(contests))


def _first(waiting: Sequence[Contest]) -> list[Contest]:
    """The contests without an interval; else those whose ratio will be known within 5 % soonest; else the widest.

    A third round replaces one at an unusual pace, so it comes before those of other contests.

    If the widest came first, a program whose processes have two speeds would get all rounds.
    """
    if without := [contest for contest in waiting if contest.lacks]:
        return without
    if mixed := [contest for contest in waiting if contest.mixed]:
        return mixed
    if unknown := sorted((each for each in waiting if each.width > EQUAL), key=lambda contest: contest.price):
        return [contest for contest in unknown if contest.price <= 2 * unknown[0].price]
    widest = max(contest.width for contest in waiting)
    return [contest for contest in waiting if contest.width >= widest / 2]


def _expect(contests: Sequence[Contest]) -> None:
    usual = rounds.usual(turns for contest in contests for turns in contest.turns[contest.lanes[0]])
    for contest in contests:
        contest.usual = usual
    played = [rounds.Played(contest.counted, contest.device) for contest in contests]
    for contest, own in zip(contests, played, strict=True):
        contest.expected = rounds.expected(own, (other for other in played if other is not own))


def _fitting(waiting: Sequence[Contest], seconds: float) -> list[Contest]:
    """Choose, in order, the contests whose missing rounds fit into the time."""
    chosen: list[Contest] = []
    for contest in waiting:
        if contest.missing * contest.seconds <= seconds:
            seconds -= contest.missing * contest.seconds
            chosen.append(contest)
    return chosen


def _outcome(contests: Sequence[Contest]) -> str:
    known = sum(contest.width <= EQUAL for contest in contests if contest.fault is None)
    faults = [
        f"{contest.workload.model} {contest.workload.mode} b{contest.workload.batch_size}, {contest.fault.title}: "
        f"{contest.fault.failure.message}"
        for contest in contests
        if contest.fault
    ]
    played = sum(contest.played for contest in contests)
    disturbed = sum(contest.disturbed + contest.slow for contest in contests)
    why = (
        "as other processes used the CPUs or the GPU, one that takes turns was stopped or held back by a quota, or all "
        "ran slowly"
    )
    further = "1 further round does" if disturbed == 1 else f"{disturbed} further rounds do"
    others = f"{further} not count, {why}" if disturbed else ""
    parts = [f"{known} of {len(contests)} workloads known within {EQUAL:.0%}", others, *faults]
    return f"{played} rounds of turns: {'; '.join(filter(None, parts))}"
