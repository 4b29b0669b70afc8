"""Compares two lanes' throughputs: their ratio, the confidence in it, and the basis of both."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, median
from typing import NamedTuple

from fwbench.compare.cases import Case, OfCase, grouped, throughputs
from fwbench.compare.parity import apart, evidence
from fwbench.compare.ratios import (
    EQUAL,
    FEWEST_ROUNDS,
    LEVEL,
    Scatter,
    alike,
    ratio_interval,
    ratio_verdict,
    round_difference,
)
from fwbench.compare.rounds import wider
from fwbench.compare.statistics import estimate
from fwbench.compare.statistics import interval as interval_of
from fwbench.machine.disturbances import disturbances, lengthening
from fwbench.record.workload import Workload
from fwbench.units import Within
from fwbench.units import ratio as times
from fwbench.units import times as span

# The smallest factor that a ratio of single processes can show: by chance few are off by more
# (docs/evidence/answers.md).
BY_CHANCE = 2.0
# The least confidence at which an interval counts (3 runs), and at which it is called clear (6 runs).
_SAYS_SOMETHING = 0.75
CLEAR = 0.95
# The chance that runs without a trend are taken for a drift, and the smallest drift that matters, as a share.
_ALPHA, _LEAST = 0.01, 0.05


@dataclass(frozen=True)
class Interval:
    """An interval of a ratio; `level` is its confidence, from 0 to 1."""

    low: float
    high: float
    level: float

    @property
    def apart(self) -> bool:
        """True if it excludes equality."""
        return self.low > 1 or self.high < 1

    @property
    def farthest(self) -> float:
        """The largest share by which one of the two can be faster."""
        return max(self.high, 1 / self.low) - 1


@dataclass(frozen=True)
class Weighed:
    """The ratio of two lanes' throughputs, and the confidence in it.

    Attributes:
        shown: the first lane's throughput over the second's; if a lane was disturbed, with the bounds between which the
            undisturbed ratio lies.
        confidence: in which lane is faster: `clear` (an interval of at least 95 % excludes equality), `likely`,
            `undecided`; `equal` if rounds of turns show that the two differ by 5 % or less, `near` if by 10 % or less.
        reason: what the confidence rests on.
        pairs: a ratio for each round of turns, or else for each pair of processes of the same run, seed and number.
        basis: what `reach` rests on, in words that follow a verdict: `by one process each`, `after 6 rounds`.
        reach: the interval by which the confidence is decided, widened by the disturbances of either lane; its level is
            0 if it only shows by how much single processes can differ by chance.
        interval: over the pairs; None with fewer than two.
        disturbed: the disturbances of either lane, in words; empty if there are none.
        apart: the rounds of turns that do not count, and the reason, in words; empty if all do.
    """

    shown: float
    confidence: str
    reason: str
    pairs: tuple[float, ...]
    basis: str
    reach: Interval
    interval: Interval | None
    disturbed: str
    apart: str = ""

    @property
    def ratio(self) -> float:
        """The ratio as measured, whatever disturbed it."""
        return float(self.shown)

    @property
    def words(self) -> str:
        """The ratio with its interval, `1.24 (1.21 to 1.27)`; a disturbed one as its bounds alone, if any is known."""
        known = span((self.reach.low, self.reach.high))
        return known if isinstance(self.shown, Within) or not known else f"{self.shown:.2f} ({known})"


@dataclass(frozen=True)
class Judged(OfCase):
    """A case against another one of its workload; both have a throughput.

    Attributes:
        beside: the other case.
        weighed: its throughput over the other's; None if the two must not be compared.
        why: the reason why they must not be (`fwbench.compare.parity.apart`); empty if they may.
    """

    beside: Case
    weighed: Weighed | None
    why: str

    @property
    def workload(self) -> Workload:
        """The workload that the two have in common."""
        return self.case.workload.of_all

    @cached_property
    def evidence(self) -> str:
        """The word for the evidence that both compute the same, or the reason why they must not be compared."""
        return self.why or evidence(self.case, self.beside).word

    @property
    def confidence(self) -> str:
        """The confidence in the ratio, or why there is no ratio."""
        return self.weighed.confidence if self.weighed else self.why

    @property
    def shown(self) -> float | str:
        """The ratio for readers, or why there is no ratio."""
        return self.weighed.shown if self.weighed else self.why


def judge(case: Case, beside: Case, *, threads: bool = True) -> Judged:
    """Judge a case against another one; of both the numbers of threads and CPUs must be equal if `threads`."""
    why = apart(case, beside, threads=threads)
    return Judged(case, beside, None if why else weigh(case, beside), why)


def weigh(first: Case, second: Case) -> Weighed:
    """Weigh two lanes that may be compared (`fwbench.compare.parity.apart`) and have a throughput each.

    Two or more rounds of turns that both played decide, unless their runs are no replicates. Otherwise the lanes' own
    processes decide.
    """
    if in_turns := weigh_turns(first, second, "call"):
        return in_turns
    one, other = _speeds(first), _speeds(second)
    shared = [place for place in one if place in other]
    differences = [math.log(one[place].throughput / other[place].throughput) for place in shared]
    ratios = tuple(map(math.exp, differences))
    causes = disturbances([*first.measurements, *second.measurements])
    met = ", ".join(f"{disturbance.cause.name} ({disturbance.detail})" for disturbance in causes)
    among = f"; {met}" if met else ""
    # The factors by which disturbances of the second lane can make the ratio too high, and those of the first too low.
    high_by, low_by = lengthening(second.measurements), lengthening(first.measurements)
    if len(shared) < 2:
        speed, other_speed = first.value("throughput"), second.value("throughput")
        assert speed
        assert other_speed
        ratio = speed / other_speed
        shown = Within(ratio, ratio / high_by, ratio * low_by) if causes else ratio
        interval, basis = None, "by one process each"
        reason = "one process each" if shared else "processes of different runs"
    else:
        # Each pair's difference if the disturbances of one of the two lanes slowed it as much as they can.
        of_places = list(zip(shared, differences, strict=True))
        lows = [difference - math.log(other[place].lengthened) for place, difference in of_places]
        highs = [difference + math.log(one[place].lengthened) for place, difference in of_places]
        low, high, level = interval_of(differences, CLEAR)
        interval, basis = Interval(math.exp(low), math.exp(high), level), f"after {len(shared)} pairs of processes"
        ratio, least, most = (math.exp(estimate(values)) for values in (differences, lows, highs))
        shown = Within(ratio, least, most) if causes else ratio
        reason = f"{len(shared)} pairs of processes: {times(interval.low)} to {times(interval.high)} at {level:.0%}"
        doubt = _unlike((first, second), [run for run, _, _ in shared], differences)
        if level >= _SAYS_SOMETHING and not doubt:
            reach = Interval(math.exp(interval_of(lows, CLEAR)[0]), math.exp(interval_of(highs, CLEAR)[1]), level)
            confidence = ("clear" if level >= CLEAR else "likely") if reach.apart else "undecided"
            return Weighed(shown, confidence, reason + among, ratios, basis, reach, interval, met)
        reason += f"; {doubt}" if doubt else ", which says too little"
    reach = Interval(ratio / high_by / BY_CHANCE, ratio * low_by * BY_CHANCE, 0.0)
    confidence = "likely" if reach.apart else "undecided"
    if reach.apart:
        reason += f"; beyond {BY_CHANCE:g}x{f' and what comes of {met}' if met else ''}"
    else:
        reason += f"; within {BY_CHANCE:g}x{among}" if max(ratio, 1 / ratio) <= BY_CHANCE else among
    return Weighed(shown, confidence, reason, ratios, basis, reach, interval, met)


def weigh_turns(first: Case, second: Case, metric: str) -> Weighed | None:
    """The ratio by rounds of turns; None if there are too few, or their runs are no replicates.

    Args:
        metric: `call`, `latency` or `memory`, as a record's `turns` have it. The ratio is above 1 if the second lane
            takes more.
    """
    rounds = _rounds(first, second, metric)
    if len(rounds) < FEWEST_ROUNDS or _unlike((first, second), [run for run, _ in rounds], list(rounds.values())):
        return None
    # Other load does not make memory scatter. It slows both lanes alike, and the interval includes its scatter of time.
    expected = Scatter() if metric == "memory" else wider(first.expected, second.expected)
    mean, low, high = ratio_interval(list(rounds.values()), expected)
    interval = Interval(math.exp(low), math.exp(high), LEVEL)
    verdict = ratio_verdict(low, high)
    confidence = "clear" if verdict == "faster" else verdict
    reason = f"{len(rounds)} rounds of turns: {times(interval.low)} to {times(interval.high)} at {LEVEL:.0%}"
    if confidence == "equal":
        reason += f", equal within {EQUAL:.0%}"
    left_out = _left_out(first, second, metric, dict(zip(rounds, alike(list(rounds.values()), expected), strict=True)))
    reason += f"; {left_out}" if left_out else ""
    ratios = tuple(map(math.exp, rounds.values()))
    basis = f"after {len(rounds)} rounds"
    return Weighed(math.exp(mean), confidence, reason, ratios, basis, interval, interval, "", left_out)


# A round, identified by its run and the time when it began.
_Round = tuple[int, float]


def _left_out(first: Case, second: Case, metric: str, counts: Mapping[_Round, bool]) -> str:
    """A clause on the rounds that do not count: the lane that was farther from its other rounds, and how far."""
    outliers = [round_ for round_, counted in counts.items() if not counted]
    if not outliers:
        return ""
    usual = [round_ for round_, counted in counts.items() if counted]
    longer = {}
    for case in (first, second):
        turns = _turns(case, metric)
        each = [round_difference(turns[one], turns[other]) for one in usual for other in outliers]
        longer[case.workload.lane] = median(each)
    lane = max(longer, key=lambda lane: abs(longer[lane]))
    do, them = ("does", "it") if len(outliers) == 1 else ("do", "them")
    amount = "much" if metric == "memory" else "long"
    factor = math.exp(longer[lane])
    count = f"{len(outliers)} of {len(counts)} rounds {do} not count"
    return f"{count}: in {them} {lane} took {factor:.2f} times as {amount} as in the others"


def _turns(case: Case, metric: str) -> dict[_Round, Sequence[float]]:
    return {(run, turns["begun"]): turns[metric] for run, turns in case.turns if metric in turns}


def _rounds(first: Case, second: Case, metric: str) -> dict[_Round, float]:
    """The logarithm of how much more the second lane takes, for each round that both played."""
    of_first, of_second = _turns(first, metric), _turns(second, metric)
    return {each: round_difference(values, of_second[each]) for each, values in of_first.items() if each in of_second}


class _Speed(NamedTuple):
    """A process's samples per second, and the largest factor by which disturbances can have lengthened its calls."""

    throughput: float
    lengthened: float


def _speeds(case: Case) -> dict[tuple[int, int, int], _Speed]:
    """Throughput by run, seed and number of the process, so that processes with the same key make a pair."""
    speeds: dict[tuple[int, int, int], _Speed] = {}
    counts: Counter[tuple[int, int]] = Counter()
    for run, m in case.replicates:
        for speed in throughputs(m):
            # A workload that a run measured twice has further processes.
            number = counts[run, m.workload.seed]
            counts[run, m.workload.seed] += 1
            if speed:
                speeds[run, m.workload.seed, number] = _Speed(speed, lengthening([m]))
    return speeds


def _unlike(cases: Sequence[Case], runs: Sequence[int], differences: Sequence[float]) -> str:
    """A phrase that says why two lanes' runs are no replicates, which differ by chance alone; empty if they are.

    Each pair of processes has a run, numbered in the order of time, and a difference, a logarithm.
    """
    by_run = grouped(zip(runs, differences, strict=True), lambda pair: pair[0])
    commits = dict.fromkeys(commit for case in cases for commit in case.commits)
    if len(by_run) > 1 and len(commits) > 1:
        return f"no replicates, as the runs are of {len(commits)} commits; `fwbench history` shows them apart"
    drifted = _drift([fmean(difference for _, difference in of) for _, of in sorted(by_run.items())])
    if drifted:
        return f"no replicates, as the ratio drifts by {math.expm1(abs(drifted)):.0%} from the first run to the last"
    return ""


def _drift(values: Sequence[float]) -> float:
    """The drift of the values from first to last; 0 if chance explains it or it is at most `_LEAST`.

    By Kendall's rank correlation with the place (Mann 1945, Econometrica 13, 245-259) and the median slope (Theil 1950;
    Sen 1968, Journal of the American Statistical Association 63, 1379-1389).
    """
    if len(values) < 3:
        return 0.0
    # SciPy takes a second to import. With fewer than three runs the terminal's table must not wait for it.
    from scipy import stats

    places = range(len(values))
    if not stats.kendalltau(places, values).pvalue <= _ALPHA:
        return 0.0
    moved = float(stats.theilslopes(values, places).slope) * (len(values) - 1)
    return moved if abs(moved) > math.log1p(_LEAST) else 0.0
