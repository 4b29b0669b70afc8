"""The interface of gates to the plugin, and the way from a gate's findings to the run's exit code."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn

import pytest

from fwbench.compare.criteria import Threshold
from fwbench.compare.findings import Outcome
from fwbench.compare.pair import Pair, Stage
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
    """A regression as the search for its cause gets it from a gate.

    Attributes:
        against: base, as `--fwbench-against` names it.
        top: the root of the user's repository, or of the project if there is none.
        head: the revision of head, if base is a revision too; empty: only the interpreter differs.
        subject: the workload, or the plain test.
        called: how pytest runs plain tests.
        metric: that became worse.
        end: the time at which the search must end, by `time.monotonic`.
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


def fail(sentence: str) -> NoReturn:
    """Fail the test that runs now."""
    pytest.fail(sentence, pytrace=False)


class Gate:
    """Sees a run from its collection to its end. Every method has a default, by which a gate judges nothing.

    Making a gate raises a pytest.UsageError or UserError if its options, or the side to compare with, cannot be used.

    Attributes:
        title: of its text at the end of the run; empty: it judges nothing.
        kind: of its thresholds, `duet` or `saved`; None: it has none.
        timed: whether the run has rounds, which pytest-benchmark may show, save and compare.
        shows_numbers: whether its text at the end replaces the usual table.
    """

    title = ""
    kind: Literal["duet", "saved"] | None = None
    timed = True
    shows_numbers = False

    def __init__(self, config: pytest.Config) -> None:
        self._summary: Path | None = config.getoption("fwbench_summary")
        self._deselected: set[Workload] = set()

    def covers(self, workload: Workload) -> bool:
        """True if the gate can judge the workload; a test of any other workload is deselected."""
        return True

    def expect(self, workloads: Mapping[Workload, Mapping[str, Threshold]]) -> None:
        """Take the workloads that the run will measure, each with its test's own thresholds."""

    def expect_plain(self, tests: Mapping[PlainTest, Mapping[str, Threshold]], called: Invocation) -> None:
        """Take the plain tests that the run will ask for, each with its own thresholds."""

    def judge_plain(self, test: PlainTest, tell: Tell) -> bool:
        """Judge a plain test, by `pytest.fail` or `pytest.skip`; return True if it is to be run in the usual way."""
        return True

    @property
    def against(self) -> Mapping[str, Any] | None:
        """The side that the run is compared with, as JSON, if the gate makes records to be kept; else None."""
        return None

    def keep(self, keep: Callable[[Mapping[str, Any]], None]) -> None:
        """Take the function that keeps each record as soon as it is made."""

    def take(self, stage: Stage, subject: Workload | PlainTest, pair: Pair) -> bool:
        """Take a pair that an earlier part of the run kept; return True if it was not taken before."""
        return False

    def deselect(self, workload: Workload) -> None:
        """Note that somebody left this workload out on purpose, so that it is not missing."""
        self._deselected.add(workload.anywhere)

    def measuring(self, measure: Measure) -> Measure:
        """The gate's own way of measuring, which may fall back on the ordinary one."""
        return measure

    def judge(self, measurement: Measurement, test: str) -> None:
        """Take the measurement of a test of this name, failed or not; may fail the test by `pytest.fail`."""

    def outcome(self) -> Outcome | None:
        """The findings so far; None if the gate was given nothing to compare the run with."""
        return None

    def status(self, status: int) -> int:
        """The run's exit status once the tests are over, from the `status` that the tests alone give it."""
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
        """The findings as lines for the end of the terminal's output.

        Args:
            journal: of the run; None: nothing was measured.
        """
        outcome = self.outcome()
        return verdicts.lines(outcome) if outcome else []

    def close(self) -> None:
        """Release the gate's resources, as the run is over."""
