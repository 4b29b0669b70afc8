"""The findings of a comparison, by benchmark and metric, and the exit code that they lead to."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

# The statistics' verdicts on one metric.
Decision = Literal["regressed", "improved", "unchanged", "inconclusive"]

# Kinds of findings on a benchmark or one of its metrics. `different` (head computes something else) and `program` (head
# has another program) stand beside compared times. `changed` is another program in a comparison of programs alone.
Kind = Decision | Literal["failed", "missing", "incomparable", "changed", "different", "program", "new"]

# The order in a report, gravest first.
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
# Kinds that stand beside the finding on a benchmark's times.
BESIDE: tuple[Kind, ...] = ("different", "program")
_COMPARED = ("regressed", "improved", "unchanged", "inconclusive", "changed")

OK, WORSE, NOTHING = 0, 1, 4

# Stands in place of a benchmark's name if a finding is about the whole comparison.
ALL = "all"


@dataclass(frozen=True)
class Verdict:
    """The statistics' verdict on one metric of a benchmark.

    Attributes:
        ratio: estimate of head over base.
        interval: of the ratio, at `confidence`.
        pairs: the number of pairs that the estimate rests on.
        p_value: of the test, if one was made.
        note: what would resolve an inconclusive verdict, or why a changed program counts as regressed.
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
    """The result for one benchmark, or for one of its metrics.

    Attributes:
        benchmark: its workload's id, a plain benchmark's full name, or `ALL`.
        metric: empty if the finding is about the whole benchmark.
        base, head: typical values in the metric's SI unit; in a duet, head's is base's times the verdict's ratio.
        replicates: what the verdict rests on, as in `10 pairs, confirmed`.
        verdict: of the statistics, with ratio and interval.
        note: one sentence: why, or what to do.
        in_test: whether the benchmark's own test was judged by it, so that it does not count twice. A fault has failed
            that test, or is forgiven if the test was expected to fail.
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
        base, head: the names of the two sides, for readers.
        seconds: that the comparison took, if it measured both sides itself.
        notes: on the whole comparison.
    """

    base: str
    head: str
    findings: Sequence[Finding]
    seconds: float | None = None
    notes: Sequence[str] = ()

    @property
    def exit_code(self) -> int:
        """The exit code that the comparison gives to a run whose exit code is 0 so far.

        Returns:
            1 if a benchmark is worse, changed, failed or missing, unless its own test was judged by that; else 4 if
            nothing could be compared, or a benchmark could not; else 0.
        """
        if any(finding.kind in FAILING and not finding.in_test for finding in self.findings):
            return WORSE
        kinds = {finding.kind for finding in self.findings}
        return OK if kinds.intersection(_COMPARED) and "incomparable" not in kinds else NOTHING

    @property
    def counts(self) -> Mapping[Kind, int]:
        """The number of benchmarks by each one's gravest kind of finding, the gravest kind first."""
        judged = (each for each in self.findings if each.kind not in BESIDE and each.benchmark != ALL)
        ordered = sorted(judged, key=lambda finding: -ORDER.index(finding.kind))
        counts = Counter({finding.benchmark: finding.kind for finding in ordered}.values())
        return {kind: counts[kind] for kind in ORDER if kind in counts}

    def reason(self, exit_code: int) -> str:
        """A phrase with the reason for the exit code of a run that made this comparison."""
        if exit_code == OK:
            return "no benchmark fails the run"
        grave = {WORSE: FAILING, NOTHING: ("incomparable",)}.get(exit_code, ())
        counted = [f"{count} {kind}" for kind, count in self.counts.items() if kind in grave]
        shared = (each for each in self.findings if each.benchmark == ALL and each.verdict)
        counted += [f"{each.replicates}: {each.kind}" for each in shared]
        if not counted and exit_code == self.exit_code == NOTHING:
            return "nothing was compared"
        return ", ".join(counted) or f"pytest ended with exit code {exit_code}"
