"""What a comparison has found, benchmark by benchmark and metric by metric, and the exit code that it deserves."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

# What statistics can say of one metric.
Decision = Literal["regressed", "improved", "unchanged", "inconclusive"]

# What can become of a benchmark, or of one of its metrics. Beside times that were compared stand `different`: head
# computes something else; `program`: another program. `changed`: another program where programs alone are compared.
Kind = Decision | Literal["failed", "missing", "incomparable", "changed", "different", "program", "new"]

# Gravest first; what stands in front of a report.
ORDER: tuple[Kind, ...] = (
    "failed",
    "regressed",
    "changed",
    "missing",
    "incomparable",
    "inconclusive",
    "different",
    "program",
    "improved",
    "new",
    "unchanged",
)
FAILING: tuple[Kind, ...] = ("failed", "regressed", "changed", "missing")
# Kinds that stand beside what became of a benchmark's times.
BESIDE: tuple[Kind, ...] = ("different", "program")
_COMPARED = ("regressed", "improved", "unchanged", "inconclusive", "changed")

OK, WORSE, NOTHING = 0, 1, 4

# Stands for a benchmark's name where a finding is about the whole comparison.
ALL = "all"


@dataclass(frozen=True)
class Verdict:
    """What statistics say of one metric of a benchmark.

    Attributes:
        ratio: estimate of head over base.
        interval: of the ratio, at `confidence`.
        pairs: that the estimate rests on.
        p_value: of the test, where one was made.
        note: for an inconclusive one, what would resolve it.
        ended: why no further pair was played.
    """

    kind: Decision
    ratio: float
    interval: tuple[float, float]
    confidence: float
    pairs: int
    p_value: float | None = None
    note: str = ""
    ended: str = ""


@dataclass(frozen=True)
class Finding:
    """What became of one benchmark, or of one of its metrics.

    Attributes:
        benchmark: its workload's id, a plain benchmark's full name, or `ALL`.
        metric: empty where the finding is about the whole benchmark.
        base, head: typical values in the metric's SI unit; of a duet, base's and the verdict's ratio times that.
        replicates: what the verdict rests on, as in `10 pairs, confirmed`.
        verdict: of the statistics, with ratio and interval.
        note: one sentence: why, or what to do.
        in_test: whether the benchmark's own test was judged by it, so that it counts no second time: where it is a
            fault that test has failed, and where that was expected, it is forgiven.
    """

    benchmark: str
    kind: Kind
    metric: str = ""
    base: float | None = None
    head: float | None = None
    replicates: str = ""
    verdict: Verdict | None = None
    note: str = ""
    in_test: bool = False


@dataclass(frozen=True)
class Outcome:
    """A whole comparison.

    Attributes:
        base, head: what was compared, for readers.
        seconds: that it took, where it was measured for the purpose.
        notes: about all of it.
    """

    base: str
    head: str
    findings: Sequence[Finding]
    seconds: float | None = None
    notes: Sequence[str] = ()

    @property
    def exit_code(self) -> int:
        """What the comparison makes of an exit code that is 0 so far.

        Returns:
            1 where a benchmark is worse, failed or missing, unless its own test was judged by that; else 4 where
            nothing could be compared, or something could not; else 0.
        """
        if any(finding.kind in FAILING and not finding.in_test for finding in self.findings):
            return WORSE
        kinds = {finding.kind for finding in self.findings}
        return OK if kinds.intersection(_COMPARED) and "incomparable" not in kinds else NOTHING

    @property
    def counts(self) -> Mapping[Kind, int]:
        """The number of benchmarks by the gravest that became of each, the gravest first."""
        gravest: dict[str, int] = {}
        for finding in self.findings:
            if finding.kind not in BESIDE and finding.benchmark != ALL:
                rank = ORDER.index(finding.kind)
                gravest[finding.benchmark] = min(rank, gravest.get(finding.benchmark, rank))
        counts = Counter(gravest.values())
        return {ORDER[rank]: counts[rank] for rank in sorted(counts)}

    def reason(self, exit_code: int) -> str:
        """The reason for the exit code with which a run with this comparison ended, in a phrase."""
        if exit_code == OK:
            return "no benchmark fails the run"
        grave = {WORSE: FAILING, NOTHING: ("incomparable",)}.get(exit_code, ())
        counted = [f"{count} {kind}" for kind, count in self.counts.items() if kind in grave]
        if not counted and exit_code == self.exit_code == NOTHING:
            return "nothing was compared"
        return ", ".join(counted) or f"pytest ended with exit code {exit_code}"
