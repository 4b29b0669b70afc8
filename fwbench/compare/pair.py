"""A pair of processes, one of base and one of head, and the comparison that a duet makes of a workload's pairs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from fwbench.compare.agreement import Agreement, of_sides
from fwbench.compare.findings import Kind, Verdict
from fwbench.compare.programs import Remark
from fwbench.compare.programs import compare as compare_programs
from fwbench.record.decoding import Decoded
from fwbench.record.fingerprint import Fingerprint
from fwbench.record.measurement import Failure
from fwbench.record.plain import PlainTest
from fwbench.record.workload import Workload

# The things of which a duet compares base and head.
Of = TypeVar("Of", Workload, PlainTest)


@dataclass(frozen=True)
class Fault:
    """The failure that left a side without numbers, of kind `unavailable` if the side cannot run the workload.

    The side is `base` or `head`, or `here` if lanes take turns or the GPU was disturbed too often; its title is for
    readers. `lost`: head cannot run the workload, or has no such model, but base can.
    """

    side: str
    title: str
    failure: Failure
    lost: bool = False


@dataclass(frozen=True)
class Pair(Decoded):
    """The results of the turns of a pair of processes.

    Attributes:
        differences: by metric, logarithm of head over base.
        rounds: by side, the seconds of each stored call.
        values: by side and metric, the typical value in the metric's SI unit.
        described: by side, `settings` and `versions`; in a workload's first pair also the program's fingerprint
            (`program`), what it computes (`outputs`), and the digests of the repository's modules by path (`sources`).
        drift: change of both sides' time from the first to the last block of a placing, as a logarithm.
        seconds: that the pair took, its processes' start included.
        flags: fallback flags of the lane that both sides ran with after crashes; empty: none.
        unfit: batch sizes that did not fit into memory before, on either side.
        held: whether in every try of some turn a process was stopped, or held back by a quota.
        disturbed: other users of the GPU, or what held its clocks down; empty: nothing. A disturbed pair is no
            replicate.
    """

    differences: Mapping[str, float]
    rounds: Mapping[str, Sequence[float]]
    values: Mapping[str, Mapping[str, float]]
    described: Mapping[str, Mapping[str, Any]]
    drift: float
    seconds: float
    flags: str = ""
    unfit: tuple[int, ...] = ()
    held: bool = False
    disturbed: str = ""


Stage = Literal["screening", "confirmation"]


@dataclass(frozen=True)
class Comparison(Generic[Of]):
    """A duet's result for one benchmark.

    Attributes:
        workload: as it was played, with a smaller batch if the one asked for did not fit into memory; or a plain test.
        kind: the gravest of its verdicts, also if something got in the way after a regression; `new`: base cannot build
            it; `missing`: head cannot run it, and base can; `unavailable`: neither can; `incomparable`: something else
            was in the way; `failed`: head failed.
        verdicts: by metric.
        screening, confirmation: the pairs of both stages.
        note: one sentence on the obstacle to a verdict, or on what to know of the verdict.
        fault: of the side that failed, for a kind that is no verdict.
    """

    workload: Of
    kind: Kind | Literal["unavailable"]
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    screening: Sequence[Pair] = ()
    confirmation: Sequence[Pair] = ()
    note: str = ""
    fault: Fault | None = None

    @property
    def described(self) -> Mapping[str, Mapping[str, Any]]:
        """Settings, versions and the program's fingerprint, by side; empty without a pair."""
        return self.pairs[0].described if self.pairs else {}

    @property
    def pairs(self) -> list[Pair]:
        """The pairs of both stages that ran with the last pair's flags and batch: only these are replicates."""
        return alike([*self.screening, *self.confirmation])

    @property
    def remarks(self) -> tuple[Remark, ...]:
        """Remarks on both sides' programs; empty if a side has not recorded its program."""
        return remarks_on(self.workload, self.described)

    @property
    def agreement(self) -> Agreement:
        """The agreement of what base and head compute."""
        return of_sides(self.workload, *(self.described.get(side, {}).get("outputs", {}) for side in ("base", "head")))

    @property
    def samples(self) -> list[float]:
        """The seconds of head's calls in `pairs`."""
        return [seconds for pair in self.pairs for seconds in pair.rounds["head"]]

    @property
    def seconds(self) -> tuple[float, float]:
        """The seconds that screening and confirming it took."""
        return sum(pair.seconds for pair in self.screening), sum(pair.seconds for pair in self.confirmation)


def alike(pairs: Sequence[Pair]) -> list[Pair]:
    """The pairs that ran with the last pair's flags and batch."""
    return [pair for pair in pairs if (pair.flags, pair.unfit) == (pairs[-1].flags, pairs[-1].unfit)]


def remarks_on(workload: Workload | PlainTest, described: Mapping[str, Mapping[str, Any]]) -> tuple[Remark, ...]:
    """Remarks on both sides' programs, as `Pair.described` has them; empty if a side has not recorded its program."""
    base, head = (described.get(side, {}).get("program") for side in ("base", "head"))
    if not base or not head:
        return ()
    return compare_programs(Fingerprint.from_json(base), Fingerprint.from_json(head), workload.device)
