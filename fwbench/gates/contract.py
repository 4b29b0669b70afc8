"""What the plugin asks of a gate."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from fwbench.compare.criteria import Threshold
from fwbench.record.measurement import Measurement
from fwbench.record.workload import Workload
from fwbench.suite.profiles import Protocol

Tell = Callable[[str], None]
Measure = Callable[[Workload, Protocol, Tell], Measurement]


class Gate:
    """Sees a run from its collection to its end; what a kind of gate has no need of, it leaves as it is here.

    Attributes:
        title: of what it writes at the end.
        kind: of its thresholds, `duet` or `saved`; None: it has none.
        timed: whether the run has rounds, which pytest-benchmark may show, save and compare.
        shows_numbers: whether what it writes at the end stands for the usual table.
    """

    title: str
    kind: Literal["duet", "saved"] | None = None
    timed = True
    shows_numbers = False

    def covers(self, workload: Workload) -> bool:
        """Whether it can gate the workload at all; a test of another is deselected."""
        return True

    def expect(self, workloads: Mapping[Workload, Mapping[str, Threshold]]) -> None:
        """The run will measure these; a test's own thresholds stand beside its workload."""

    def deselect(self, workload: Workload) -> None:
        """Somebody left this one out on purpose, so it is not missing."""

    def measure(self, workload: Workload, protocol: Protocol, measure: Measure, tell: Tell) -> Measurement:
        """Measure in the gate's own way, telling of its stages; `measure` is the ordinary one."""
        return measure(workload, protocol, tell)

    def judge(self, measurement: Measurement, test: str) -> None:
        """A test of this name has its measurement, failed or not; may fail the test by `pytest.fail`."""

    def finish(self, status: int) -> int:
        """The tests are over: write what was asked for, and tell the run's exit status from what its tests make it."""
        return status

    def lines(self, journal: Path | None) -> list[str]:
        """What it has found, for the end of the terminal's output."""
        return []

    def close(self) -> None:
        """The run is over."""
