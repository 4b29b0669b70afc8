"""`--fwbench-gate`: the run against a record that was made earlier."""

import dataclasses
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fwbench.compare import evidence
from fwbench.compare.criteria import Threshold
from fwbench.compare.differences import Difference, in_words, mismatches
from fwbench.compare.findings import Outcome
from fwbench.compare.saved import compare
from fwbench.gates.contract import Gate
from fwbench.gates.options import ALLOW_MISMATCH, baseline, storage, thresholds
from fwbench.machine import Machine
from fwbench.models.project import Project
from fwbench.record.lanes import LANES
from fwbench.record.measurement import Measurement
from fwbench.record.reading import series
from fwbench.record.storage import Record
from fwbench.record.workload import Workload
from fwbench.suite.selection import Selection


class SavedGate(Gate):
    """Compares at the end of the run, as the suite's benchmarks are judged together."""

    title = "fwbench: gate"
    kind = "saved"

    def __init__(self, config: pytest.Config, selection: Selection, machine: Machine, project: Project) -> None:
        super().__init__(config)
        self._thresholds = thresholds(config, "saved")
        self._allow_mismatch = config.getoption("fwbench_gate") == ALLOW_MISMATCH
        self._machine = machine
        record = baseline(config)
        if record is None:
            raise pytest.UsageError(
                "--fwbench-gate needs a baseline: --benchmark-compare=PATH, or its number, as in "
                "--benchmark-compare=0001."
            )
        self._base = record
        if not self._allow_mismatch:
            self._refuse(selection)
        self._earlier, self._notes = self._series(storage(config))
        self._own: dict[str, Mapping[str, Threshold]] = {}
        self._measurements: dict[Workload, Measurement] = {}
        self._names: dict[Workload, str] = {}
        self._compared: Outcome | None = None

    def _series(self, folder: Path | None) -> tuple[list[Record], list[str]]:
        """The saved runs with whose best level this run is also compared, and notes on them.

        If the baseline is kept outside the storage, somebody has chosen it: earlier runs do not count.
        """
        if folder is None:
            return [], []
        records, notes = series(folder)
        if self._base.path.resolve() not in [record.path.resolve() for record in records]:
            records = [record for record in records if record.made > self._base.made]
        return records, notes

    def _refuse(self, selection: Selection) -> None:
        profile = selection.protocol.profile
        reasons = [*mismatches(self._base.machine, self._machine)]
        if self._base.profile and self._base.profile != profile:
            reasons.append(Difference("profile", self._base.profile, profile))
        if reasons:
            raise pytest.UsageError(
                f"{self._base.path} is not comparable: {in_words(reasons)}. Renew the baseline, or add "
                f"--fwbench-gate={ALLOW_MISMATCH}."
            )

    def covers(self, workload: Workload) -> bool:
        """True except for the harness's own benchmarks, whose nanoseconds depend on the machine alone."""
        return not LANES[workload.lane].internal

    def expect(self, workloads: Mapping[Workload, Mapping[str, Threshold]]) -> None:
        self._own = {workload.id: own for workload, own in workloads.items()}

    def judge(self, measurement: Measurement, test: str) -> None:
        # A repeated measurement takes the place of the first.
        self._measurements[measurement.workload] = measurement
        self._names[measurement.workload] = test

    def outcome(self) -> Outcome:
        if self._compared is None:
            head = Record(
                path=Path("this run"),
                made=datetime.now(UTC),
                machine=self._machine,
                measurements=tuple(self._measurements.values()),
                names=self._names,
            )
            compared = compare(
                self._base,
                head,
                self._thresholds,
                own=self._own,
                left_out=frozenset(workload.id for workload in self._deselected),
                allow_mismatch=self._allow_mismatch,
                state=evidence.state(self._machine),
                earlier=self._earlier,
            )
            # A test knows only of its own failure, as the suite is judged together.
            findings = [dataclasses.replace(finding, in_test=finding.kind == "failed") for finding in compared.findings]
            self._compared = dataclasses.replace(compared, findings=findings, notes=[*compared.notes, *self._notes])
        return self._compared
