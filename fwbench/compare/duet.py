"""Runs a duet: a few pairs of every benchmark, then more pairs of those that seem to have changed.

A pair is one process of base and one of head that took turns (`fwbench.worker.turns.pairs` plays them). Its differences
are the replicates on which `fwbench.compare.statistics` decides.
"""

import functools
import math
import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic

from fwbench.compare.criteria import CRITERIA, Threshold
from fwbench.compare.findings import ORDER, Decision, Verdict
from fwbench.compare.pair import Comparison, Fault, Of, Pair, Stage, alike, remarks_on
from fwbench.compare.programs import Remark, changes
from fwbench.compare.statistics import (
    MOST_UNSUSPECTED,
    SCREENING,
    Confirmation,
    Suspect,
    cleared,
    deciding_pairs,
    screen,
    screening_pairs,
    unfinished,
)
from fwbench.extensions import added
from fwbench.record.measurement import Failure
from fwbench.record.plain import PlainTest
from fwbench.record.workload import Workload
from fwbench.text import change

# A change of time from a placing's first block to its last is reported if it exceeds this logarithm.
_DRIFT = 0.02

# The least confidence of an interval that decides on a changed program.
_CHANGED_CONFIDENCE = 0.95
# The fewest pairs that have such an interval.
_CHANGED_PAIRS = 6

# A workload gets no further pairs once its disturbed pairs outnumber those that count by this many.
MOST_DISTURBED = 3

# Plays one fresh pair of each given workload, and hands over each pair or fault as soon as it is there.
Play = Callable[[Sequence[Of], Callable[[Of, Pair | Fault], None]], object]


def compare(
    thresholds: Mapping[Of, Mapping[str, Threshold]],
    play: Play[Of],
    tell: Callable[[str], None] = lambda _: None,
    left: Callable[[], float] = lambda: math.inf,
) -> dict[Of, Comparison[Of]]:
    """Compare workloads in a new duet; the arguments are those of `Duet` and its `play`."""
    duet = Duet(thresholds)
    duet.play(play, tell, left)
    return duet.comparisons()


class Duet(Generic[Of]):
    """The state of a duet: its pairs, those still to be played, and its results, even if play stops early.

    Args:
        thresholds: by workload and metric.
        keep: called with each pair as soon as it is played.
    """

    def __init__(
        self,
        thresholds: Mapping[Of, Mapping[str, Threshold]],
        keep: Callable[[Stage, Of, Pair], None] = lambda *_: None,
    ) -> None:
        self.thresholds: Mapping[Of, Mapping[str, Threshold]] = thresholds
        self._keep: Callable[[Stage, Of, Pair], None] = keep
        self.screening: dict[Of, list[Pair]] = {workload: [] for workload in thresholds}
        self.confirmation: dict[Of, list[Pair]] = {workload: [] for workload in thresholds}
        self.failed: dict[Of, Fault] = {}
        # The comparisons of failed workloads that had regressed before.
        self._regressed: dict[Of, Comparison[Of]] = {}
        # The cause of each disturbed pair; such pairs do not count.
        self.disturbed: dict[Of, list[str]] = {workload: [] for workload in thresholds}
        self._stage: Confirmation[tuple[Of, str]] = Confirmation({})

    def play(
        self, play: Play[Of], tell: Callable[[str], None] = lambda _: None, left: Callable[[], float] = lambda: math.inf
    ) -> None:
        """Take the workloads through all stages; a workload for which no time is left stays undecided.

        Args:
            tell: called with each step as it begins.
            left: returns the seconds that may still be spent.
        """

        def step(doing: str, stage: Stage, wanted: Sequence[Of]) -> None:
            number = 1 + len((self.screening if stage == "screening" else self.confirmation)[wanted[0]])
            expected = sum(map(self._length, wanted))
            about = f", about {expected / 60:.1f} min" if expected else ""
            tell(f"{doing}, pair {number} (benchmarks: {len(wanted)}{about})")
            play(wanted, functools.partial(self._played, stage))

        while True:
            while wanted := self._fitting(self.to_screen(), left()):
                step("screening", "screening", wanted)
            self._stage = Confirmation(self.suspects())
            self._stage.judge(self._fresh())
            while wanted := self._fitting(self._to_confirm(left()), left()):
                step("confirming", "confirmation", wanted)
                self._stage.judge(self._fresh())
            # Further pairs may turn a workload into a suspect.
            while self.suspects().keys() == self._stage.names and (wanted := self._fitting(self.to_clear(), left())):
                step("clearing", "screening", wanted)
            # Suspects may have needed fewer pairs than were reserved for them, or have waited for others to be cleared.
            if self.suspects().keys() == self._stage.names and not (
                self._fitting(self.to_screen(), left()) or self._fitting(self._to_confirm(left()), left())
            ):
                return

    def _to_confirm(self, seconds: float) -> list[Of]:
        """The workloads with open suspects.

        Pairs that do not agree, as of a program with two speeds, may never decide. Such a suspect waits while another
        workload needs pairs and these seconds suffice for one.
        """
        open_ = list(dict.fromkeys(workload for workload, _ in self._fresh()))
        agreed = deciding_pairs(len(self._stage.names))
        hopeful = [workload for workload in open_ if len(self.confirmation[workload]) < agreed]
        return self._fitting(hopeful, seconds) or ([] if self._fitting(self.to_clear(), seconds) else open_)

    def take(self, stage: Stage, workload: Of, pair: Pair) -> None:
        """Add a pair to its stage, and drop earlier ones with other flags or another batch."""
        pairs: list[Pair] = (self.screening if stage == "screening" else self.confirmation)[workload]
        pairs[:] = alike([*pairs, pair])

    def _played(self, stage: Stage, workload: Of, played: Pair | Fault) -> None:
        """Take a fresh pair and have it kept, or note a fault. A pair that was disturbed does not count."""
        if isinstance(played, Fault):
            self._fail(workload, played)
        elif played.disturbed:
            self.disturbed[workload].append(played.disturbed)
            counted = len(self.screening[workload]) + len(self.confirmation[workload])
            if len(self.disturbed[workload]) >= counted + MOST_DISTURBED:
                failure = Failure("error", _disturbed(self.disturbed[workload]))
                self._fail(workload, Fault("here", "the GPU", failure))
        else:
            self.take(stage, workload, played)
            self._keep(stage, workload, played)

    def _fail(self, workload: Of, fault: Fault) -> None:
        """Note a fault, and the regressions that earlier pairs have confirmed: they stand."""
        if self._pairs(workload):
            compared = self._compared(workload, self.suspects())
            regressed = {metric: each for metric, each in compared.verdicts.items() if each.kind == "regressed"}
            if regressed:
                self._regressed[workload] = replace(compared, verdicts=regressed)
        self.failed[workload] = fault

    def _fitting(self, wanted: Sequence[Of], seconds: float) -> list[Of]:
        """Choose the workloads that get a pair now.

        First come those that these seconds can bring to a verdict: each reserves the pairs that it is likely to need,
        now and in later stages. Time left over goes to the others, one pair each. A first pair is always played.
        Changed programs go before unchanged ones, and short pairs before long ones.
        """
        suspects, chosen = self.suspects(), list[Of]()
        needs = {each: self._needs(each, suspects) for each in self.screening if each not in self.failed}
        order = sorted(needs, key=lambda each: (not needs[each], not self._is_changed(each), self._length(each)))
        for reserving in (True, False):
            for workload in order:
                pairs = needs[workload] if reserving else 1 if workload in wanted else 0
                length = pairs * self._length(workload)
                if pairs and workload not in chosen and (length <= seconds or not self.screening[workload]):
                    seconds -= length
                    chosen.append(workload)
        return [workload for workload in wanted if workload in chosen]

    def _needs(self, workload: Of, suspects: Collection[tuple[Of, str]]) -> int:
        """The number of further pairs that the workload is likely to need for its verdicts; 0 if it has them."""
        pairs, screened, changed = self._pairs(workload), self.screening[workload], self._is_changed(workload)
        missing = max(1, SCREENING - len(screened)) if self._to_screen(workload) else 0
        undecided = any(of[0] == workload and of not in self._stage.verdicts for of in suspects)
        if missing and len(screened) > (not changed):
            # A single pair of an unchanged program says little.
            undecided = any(
                screen([pair.differences[metric] for pair in screened], self.threshold(workload, metric, pairs))
                for metric in self._metrics(workload)
            )
        if not undecided:
            return missing
        if not changed:
            return missing + max(1, deciding_pairs(len(suspects)) - len(self.confirmation[workload]))
        if self._compared(workload, suspects).kind == "regressed":
            return 0
        return max(1, missing, _CHANGED_PAIRS - len(pairs))

    def _is_changed(self, workload: Of) -> bool:
        pairs = self.screening[workload]
        return bool(pairs) and bool(changes(remarks_on(workload, pairs[0].described)))

    def _length(self, workload: Of) -> float:
        """An estimate of the seconds that the workload's next pair takes; 0 before the first one.

        It is the time of the last pair. But a first pair also reads files and compiles, so the second is expected to be
        shorter, by the median factor of other workloads' second pairs.
        """
        pairs = [*self.screening[workload], *self.confirmation[workload]]
        if len(pairs) != 1:
            return pairs[-1].seconds if pairs else 0.0
        several = [each for each in self.screening.values() if len(each) > 1 and each[0].seconds]
        shares = [second.seconds / first.seconds for first, second, *_ in several]
        return pairs[0].seconds * min(1.0, statistics.median(shares or [1.0]))

    def to_screen(self) -> list[Of]:
        """The workloads of which screening needs another pair."""
        return [workload for workload in self.screening if self._to_screen(workload)]

    def _to_screen(self, workload: Of) -> bool:
        pairs = self.screening[workload]
        differences = [pair.differences["latency"] for pair in pairs]
        wanted = screening_pairs(differences, self.threshold(workload, "latency", pairs))
        return workload not in self.failed and len(pairs) < wanted

    def to_clear(self) -> list[Of]:
        """The workloads that are no suspects, but whose pairs scatter too much to say that nothing changed."""
        excluded = {*self.failed, *self.to_screen(), *(workload for workload, _ in self.suspects())}
        return [
            workload
            for workload, pairs in self.screening.items()
            if workload not in excluded
            and len(pairs) < MOST_UNSUSPECTED
            and any(self._cleared(workload, metric).kind == "inconclusive" for metric in self._metrics(workload))
        ]

    def threshold(self, workload: Of, metric: str, pairs: Sequence[Pair]) -> float:
        """The smallest change that counts, as a share of base."""
        threshold = self.thresholds[workload][metric]
        if not threshold.amount or not pairs:
            return threshold.share
        return threshold.of(statistics.median(pair.values["base"][metric] for pair in pairs))

    def suspects(self) -> dict[tuple[Of, str], Suspect]:
        """The suspects of every screening that is over; exact metrics are never suspects, as one pair decides them."""
        over = self.screening.keys() - self.failed.keys() - set(self.to_screen())
        return {
            (workload, metric): suspect
            for workload, pairs in self.screening.items()
            if workload in over
            for metric in self._metrics(workload)
            if (suspect := screen([p.differences[metric] for p in pairs], self.threshold(workload, metric, pairs)))
        }

    def _fresh(self) -> dict[tuple[Of, str], list[float]]:
        """The differences in the fresh pairs of each open suspect that can still be decided.

        A process may hide the peak of its memory; then that metric cannot be decided.
        """
        return {
            (workload, metric): [pair.differences[metric] for pair in self.confirmation[workload]]
            for workload, metric in self._stage.open
            if workload not in self.failed and all(metric in pair.differences for pair in self.confirmation[workload])
        }

    def comparisons(self) -> dict[Of, Comparison[Of]]:
        """The comparison of each workload that was played at all."""
        comparisons, suspects = {}, self.suspects()
        for workload, pairs in self.screening.items():
            if fault := self.failed.get(workload):
                failed, regressed = _failed(workload, fault, built=bool(pairs)), self._regressed.get(workload)
                stands = regressed if failed.kind == "incomparable" else None
                comparisons[workload] = replace(stands, note=failed.note) if stands else failed
            elif pairs:
                comparisons[workload] = self._compared(workload, suspects)
        return comparisons

    def _compared(self, workload: Of, suspects: Collection[tuple[Of, str]]) -> Comparison[Of]:
        pairs = self._pairs(workload)
        verdicts = {metric: self._verdict((workload, metric), suspects) for metric in self._metrics(workload)}
        verdicts |= {metric: self._exact(workload, metric) for metric in self._metrics(workload, exact=True)}
        remarks = remarks_on(workload, pairs[0].described)
        if changes(remarks):
            for metric, verdict in verdicts.items():
                verdicts[metric] = _of_changed(verdict, self.threshold(workload, metric, pairs))
        held = sum(pair.held for pair in pairs)
        stopped = f"in {held} of {len(pairs)} pairs processes were stopped, or a quota of CPUs held them back"
        same, disturbed = _alike_sides(remarks, pairs[0].described), _disturbed(self.disturbed[workload])
        notes = (_odd(workload, pairs), same, stopped if held else "", disturbed)
        kind = min((verdict.kind for verdict in verdicts.values()), key=ORDER.index)
        fitted, note = workload.fitted(pairs[-1].unfit), "; ".join(filter(None, notes))
        return Comparison(fitted, kind, verdicts, self.screening[workload], self.confirmation[workload], note)

    def _verdict(self, of: tuple[Of, str], suspects: Collection[tuple[Of, str]]) -> Verdict:
        workload, metric = of
        if of in self._stage.verdicts:
            return self._stage.verdicts[of]
        if of in suspects or self._to_screen(workload):
            # A run may end before a suspect's first fresh pair. The interval of a changed program uses all pairs.
            fresh = [] if self._is_changed(workload) else self.confirmation[workload]
            return unfinished([pair.differences[metric] for pair in fresh or self._pairs(workload)])
        return self._cleared(workload, metric)

    def _cleared(self, workload: Of, metric: str) -> Verdict:
        pairs = self._pairs(workload)
        return cleared([pair.differences[metric] for pair in pairs], self.threshold(workload, metric, pairs))

    def _pairs(self, workload: Of) -> list[Pair]:
        """The pairs of both stages that ran with the last pair's flags and batch."""
        return alike([*self.screening[workload], *self.confirmation[workload]])

    def _metrics(self, workload: Of, exact: bool = False) -> list[str]:
        """The metrics that every pair has and that no single pair decides, or, if `exact`, that each one does."""
        pairs = (*self.screening[workload], *self.confirmation[workload])
        shared = (metric for metric in self.thresholds[workload] if all(metric in each.differences for each in pairs))
        return [metric for metric in shared if CRITERIA[metric].decided_by_one(workload.device) == exact]

    def _exact(self, workload: Of, metric: str) -> Verdict:
        pairs = self._pairs(workload)
        ratio = math.exp(statistics.median(pair.differences[metric] for pair in pairs))
        limit = 1 + self.threshold(workload, metric, pairs)
        kind: Decision = "regressed" if ratio > limit else "improved" if ratio < 1 / limit else "unchanged"
        return Verdict(kind, ratio, (ratio, ratio), 1.0, len(pairs))


def _of_changed(verdict: Verdict, threshold: float) -> Verdict:
    """The verdict on a changed program's metric: regressed if its interval lies above 1 and extends past the threshold.

    This rule raises no false alarm on unchanged code, which makes the same program.
    """
    low, high = verdict.interval
    worse = verdict.confidence >= _CHANGED_CONFIDENCE and low > 1 and high > 1 + threshold
    if verdict.kind not in ("unchanged", "inconclusive") or not worse:
        return verdict
    return replace(verdict, kind="regressed", note="its program has changed, and the whole interval is worse")


def _disturbed(pairs: Sequence[str]) -> str:
    """A clause on the number of disturbed pairs, which do not count, and the last cause; empty if there are none."""
    further = "1 further pair does" if len(pairs) == 1 else f"{len(pairs)} further pairs do"
    return f"{further} not count, as {pairs[-1]}" if pairs else ""


def _odd(workload: Workload | PlainTest, pairs: Sequence[Pair]) -> str:
    """A remark on odd times of the workload's calls; empty if there is nothing odd."""
    if isinstance(workload, PlainTest):
        return "; ".join(added("remarks", pairs))
    drift = statistics.median(pair.drift for pair in pairs)
    if abs(drift) <= _DRIFT:
        return ""
    return (
        f"calls change by {change(math.exp(drift))} while the program stays in place: look for state that the model "
        "keeps from call to call, and see `fwbench doctor` for the machine's clock rates"
    )


def _alike_sides(remarks: Sequence[Remark], described: Mapping[str, Mapping[str, Any]]) -> str:
    base, head = (described.get(side, {}).get("sources") for side in ("base", "head"))
    same = any(remark.kind == "same" for remark in remarks) and not changes(remarks)
    return "both sides ran the same sources and the same program" if same and base and base == head else ""


def _failed(workload: Of, fault: Fault, built: bool) -> Comparison[Of]:
    """The comparison of a workload that ended with a fault; `built`: both sides had built it before."""
    failure, says = fault.failure, f"{fault.title}: {fault.failure.message}"
    if failure.kind == "out_of_memory":
        # The side that runs out of memory first is arbitrary.
        note = f"memory must hold both sides at once; {says}"
        return Comparison(workload, "incomparable", note=note, fault=fault)
    cannot = f"{fault.title} cannot run it: {failure.message}"
    if fault.lost:
        return Comparison(workload, "missing", note=cannot, fault=fault)
    if fault.side == "head" and failure.kind == "unavailable":
        return Comparison(workload, "incomparable" if built else "unavailable", note=cannot, fault=fault)
    if fault.side == "head":
        return Comparison(workload, "failed", note=failure.message, fault=fault)
    if isinstance(workload, PlainTest) and fault.side == "base" and not built:
        return Comparison(workload, "new", note=says, fault=fault)
    unbuildable = failure.kind == "error" and failure.stage in ("build", "compile")
    if (failure.kind == "unavailable" or unbuildable) and not built:
        return Comparison(workload, "new", note=f"{fault.title} cannot build it: {failure.message}", fault=fault)
    return Comparison(workload, "incomparable", note=says, fault=fault)
