"""The storage folder of runs, and the records that `fwbench.record.reading` reads from its files."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from fwbench.record.machine import Machine
from fwbench.record.measurement import Measurement
from fwbench.record.rounds import PlayedRound
from fwbench.record.workload import Workload

STORAGE = Path(".benchmarks")

# The file in which `fwbench selftest` keeps this machine's suites, which are no runs.
SELFTEST = STORAGE / "selftest.jsonl"

# The folder in which `fwbench prove` keeps the proofs of the project's models, which are no runs either.
PROOFS = STORAGE / "proofs"

# The folder in which a repository may keep the records that its gates compare with; none of them counts as the newest
# run.
BASELINES = STORAGE / "baselines"

# The most damaged benchmarks of a file that are listed one by one.
_NAMED = 10


@dataclass(frozen=True)
class Plain:
    """A benchmark that fwbench did not measure: somebody's function under pytest-benchmark.

    Attributes:
        samples: seconds of each round; empty if the file was saved without them.
        stats: pytest-benchmark's statistics (`median`, `mean`, `stddev`, `rounds`, ...), times in seconds; for asv's
            results the median, and the benchmark's `version`.
    """

    fullname: str
    group: str | None
    samples: tuple[float, ...]
    stats: Mapping[str, Any]


@dataclass(frozen=True)
class Damaged:
    """A damaged benchmark, which is left out.

    Attributes:
        name: its workload's id or its test's full name, if one can be read, else its place in the file.
        fault: its place in the file, and the error.
        plain: whether it is certain that fwbench did not measure it.
    """

    name: str
    fault: str
    plain: bool = False


@dataclass(frozen=True)
class Record:
    """The results of one run, as its file holds them.

    Attributes:
        made: when the record was saved, in UTC; for a journal, when the run began.
        commit: `id`, `branch`, `dirty`, ... of the tree that was measured; empty in a journal.
        machine: the fingerprint; None in a file that fwbench's plugin had no part in.
        machine_info: all that pytest-benchmark knows of the machine; empty in a journal.
        profile: the profile of the measurements; None if there are none.
        measurements: in the order of measuring, failures included, with the turns that their lanes took.
        rounds: the rounds in which lanes took turns.
        names: full names of the tests, by the workload that they measured; empty for a journal.
        plain: benchmarks without a workload, by full name.
        damaged: the benchmarks that are left out, in the file's order.
        against: what a duet compares with, from the header of its journal; None: the record is no duet's journal.
        notes: further phrases that a reader must know about the file itself.
    """

    path: Path
    made: datetime
    commit: Mapping[str, Any] = field(default_factory=dict)
    machine: Machine | None = None
    machine_info: Mapping[str, Any] = field(default_factory=dict)
    profile: str | None = None
    measurements: tuple[Measurement, ...] = ()
    rounds: tuple[PlayedRound, ...] = ()
    names: Mapping[Workload, str] = field(default_factory=dict)
    plain: Mapping[str, Plain] = field(default_factory=dict)
    damaged: tuple[Damaged, ...] = ()
    against: object = None
    notes: tuple[str, ...] = ()

    @property
    def is_duet(self) -> bool:
        """True if the run compares two revisions instead of lanes."""
        return self.against is not None or any(m.duet for m in self.measurements)

    @property
    def node(self) -> str:
        """The machine's name, as pytest-benchmark has it; empty if the record has none."""
        name = self.machine_info.get("node")
        return name if isinstance(name, str) else ""

    @property
    def told(self) -> list[str]:
        """Phrases on what a reader must know about the file, left-out benchmarks included."""
        faults = [f"{damaged.name} is left out ({damaged.fault})" for damaged in self.damaged[:_NAMED]]
        more = len(self.damaged) - len(faults)
        return [*self.notes, *faults, *([f"{more} more benchmarks are damaged and left out"] if more else [])]
