"""What the plugin asks of a gate, and how what it found becomes the run's exit code."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from fwbench.compare.criteria import Threshold
from fwbench.compare.findings import Outcome
from fwbench.machine import Machine
from fwbench.models.project import Project
from fwbench.record.measurement import Measurement
from fwbench.record.plain import PlainTest
from fwbench.record.workload import Workload
from fwbench.report import outcome_file, verdicts
from fwbench.worker.chain import Measure, Tell
from fwbench.worker.turns.plain import Invocation


@dataclass(frozen=True)
class Regression:
    """What a gate knows of a regression whose cause is searched for.

    Attributes:
        against: base, as `--fwbench-against` names it.
        top: the root of the user's repository, or of the project where there is none.
        head: the revision of head, where base is one too; empty: the interpreter alone differs.
        subject: the workload, or the plain test.
        called: how pytest runs plain tests.
        metric: that became worse.
        end: when the search is over, by `time.monotonic`.
    """

    against: str
    top: Path
    head: str
    project: Project
    python: str
    machine: Machine
    subject: Workload | PlainTest
    called: Invocation
    metric: str
    end: float


class Gate:
    """Sees a run from its collection to its end; what a kind of gate has no need of, it leaves as it is here.

    Args:
        config: of pytest.

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

    def __init__(self, config: pytest.Config) -> None:
        self._summary: Path | None = config.getoption("fwbench_summary")

    def covers(self, workload: Workload) -> bool:
        """Whether it can gate the workload at all; a test of another is deselected."""
        return True

    def expect(self, workloads: Mapping[Workload, Mapping[str, Threshold]]) -> None:
        """The run will measure these; a test's own thresholds stand beside its workload."""

    def expect_plain(self, tests: Mapping[PlainTest, Mapping[str, Threshold]], called: Invocation) -> None:
        """The run will ask for these plain tests, too; a test's own thresholds stand beside it."""

    def judge_plain(self, test: PlainTest, tell: Tell) -> bool:
        """Judge a plain test, by `pytest.fail` or `pytest.skip`; return whether it is to be run in the usual way."""
        return True

    @property
    def against(self) -> Mapping[str, Any] | None:
        """What the run's numbers are compared with, as JSON, where it makes records that are to be kept; else None."""
        return None

    def keep(self, keep: Callable[[Mapping[str, Any]], None]) -> None:
        """Keep each record as soon as it is made."""

    def take(self, record: Any) -> bool:
        """Begin with a record that an earlier part of the run kept; return whether it is another one than those before.

        Raises:
            ValueError: it is not such as it keeps.
        """
        return False

    def deselect(self, workload: Workload) -> None:
        """Somebody left this one out on purpose, so it is not missing."""

    def measuring(self, measure: Measure) -> Measure:
        """The gate's own way of measuring, which may resort to the ordinary one."""
        return measure

    def judge(self, measurement: Measurement, test: str) -> None:
        """A test of this name has its measurement, failed or not; may fail the test by `pytest.fail`."""

    def outcome(self) -> Outcome | None:
        """What it has found by now; None: it was given nothing to compare the run with."""
        return None

    def has_found(self, kind: str) -> bool:
        """Whether a finding is of this kind, as `different` or `inconclusive`."""
        outcome = self.outcome()
        return outcome is not None and any(finding.kind == kind for finding in outcome.findings)

    def status(self, status: int) -> int:
        """The tests are over: make the run's exit status of what its tests make it."""
        outcome = self.outcome()
        if outcome is None or status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            return status
        return outcome.exit_code or status

    def write(self, status: int) -> None:
        """Write the summary of a run with this exit status.

        Raises:
            OSError: it could not be written.
        """
        outcome = self.outcome()
        if self._summary and outcome:
            outcome_file.write(self._summary, outcome, status)

    def lines(self, journal: Path | None) -> list[str]:
        """What it has found, for the end of the terminal's output.

        Args:
            journal: of the run; None: nothing was measured.
        """
        outcome = self.outcome()
        return verdicts.lines(outcome) if outcome else []

    def close(self) -> None:
        """The run is over."""
