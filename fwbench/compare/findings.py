"""What a comparison has found, benchmark by benchmark and metric by metric, and the exit code that it deserves."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fwbench.compare.statistics import Verdict

Kind = Literal[
    "regressed", "improved", "unchanged", "inconclusive", "incomparable", "missing", "new", "failed", "program"
]

# Gravest first; what stands in front of a report.
ORDER: tuple[Kind, ...] = (
    "failed",
    "regressed",
    "missing",
    "incomparable",
    "inconclusive",
    "program",
    "improved",
    "new",
    "unchanged",
)
_FAILING = ("failed", "regressed", "missing")
_COMPARED = ("regressed", "improved", "unchanged", "inconclusive")

OK, REGRESSED, NOTHING = 0, 1, 4

# Stands for a benchmark's name where a finding is about the whole comparison.
ALL = "all"


@dataclass(frozen=True)
class Finding:
    """One of them.

    Attributes:
        benchmark: its workload's id, a plain benchmark's full name, or `ALL`.
        metric: empty where the finding is about the whole benchmark.
        base, head: typical values in the metric's SI unit.
        replicates: what the verdict rests on, as in `10 pairs`.
        verdict: of the statistics, with ratio and interval.
        note: one sentence: why, or what to do.
    """

    benchmark: str
    kind: Kind
    metric: str = ""
    base: float | None = None
    head: float | None = None
    replicates: str = ""
    verdict: Verdict | None = None
    note: str = ""


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
    def compared(self) -> bool:
        """Whether something could be compared, and nothing could not."""
        kinds = {finding.kind for finding in self.findings}
        return "incomparable" not in kinds and bool(kinds.intersection(_COMPARED))

    @property
    def exit_code(self) -> int:
        """1 with a regression, a failure or a missing benchmark; 4 where something or all could not be compared."""
        if any(finding.kind in _FAILING for finding in self.findings):
            return REGRESSED
        return OK if self.compared else NOTHING
