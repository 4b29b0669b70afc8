"""`--fwbench-programs-only`: every benchmark builds, compiles and is fingerprinted; nothing is timed.

The run's journal holds the fingerprints. No file of pytest-benchmark's can: it wants rounds, and there are none. A
later run is held to a journal, or to any record that was timed.
"""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from fwbench.compare.programs import Finding, compare
from fwbench.errors import UserError
from fwbench.gates.contract import Gate
from fwbench.machine import Machine
from fwbench.models.project import Project
from fwbench.record.fingerprint import Fingerprint
from fwbench.record.measurement import Measurement
from fwbench.record.reading import read
from fwbench.record.workload import Workload
from fwbench.suite.selection import Selection

# What these make of a run is made of its rounds.
_TIMING = ("json", "save", "autosave", "compare-fail", "histogram")


class ProgramsOnly(Gate):
    """Holds each program against the baseline's, and the run against the whole baseline.

    Args:
        config: `--benchmark-compare` is taken over from pytest-benchmark, which would look for times.

    Raises:
        pytest.UsageError: the baseline cannot be used, or an option asks for times; one sentence.
    """

    title = "fwbench: programs"
    timed = False
    shows_numbers = True

    def __init__(self, config: pytest.Config, selection: Selection, machine: Machine, project: Project) -> None:
        for option in _TIMING:
            if config.getoption(f"benchmark_{option.replace('-', '_')}"):
                raise pytest.UsageError(
                    f"--benchmark-{option} cannot work with --fwbench-programs-only, which times nothing: "
                    "leave one of them out."
                )
        # Nothing but benchmarks has a program.
        config.option.benchmark_only = True
        self.path = _path(config)
        config.option.benchmark_compare = None
        self._baseline: dict[Workload, Fingerprint] = {}
        if self.path is not None:
            try:
                record = read(self.path)
            except UserError as error:
                raise pytest.UsageError(f"--benchmark-compare: {error}.") from None
            self._baseline = {_key(m.workload): m.program for m in record.measurements if m.program}
        self._found: dict[Workload, tuple[Finding, ...]] = {}
        self._new: list[Workload] = []
        self._failed: set[Workload] = set()
        self._deselected: set[Workload] = set()

    def judge(self, measurement: Measurement, test: str) -> None:
        """Compare with the baseline; a changed program fails the test that called."""
        workload = _key(measurement.workload)
        if measurement.failure and measurement.failure.kind != "unavailable":
            self._failed.add(workload)
        if self.path is None or measurement.program is None:
            return
        base = self._baseline.get(workload)
        if base is None:
            self._new.append(workload)
            return
        findings = self._found[workload] = compare(base, measurement.program, workload.device)
        changed = [f"{workload.id}: {finding.sentence}" for finding in findings if finding.changed]
        if changed:
            pytest.fail("\n".join(changed), pytrace=False)

    def deselect(self, workload: Workload) -> None:
        """Somebody left this one out on purpose, so it is not missing."""
        self._deselected.add(_key(workload))

    @property
    def missing(self) -> list[Workload]:
        """Of the baseline, neither run nor left out on purpose."""
        seen = {*self._found, *self._failed, *self._deselected}
        return [workload for workload in self._baseline if workload not in seen]

    @property
    def compared(self) -> int:
        """Programs that were told on both sides."""
        return sum(findings[0].kind != "untold" for findings in self._found.values())

    def finish(self, status: int) -> int:
        """The run's, from what its tests make it: 4 where there is nothing to compare, 1 where something is missing."""
        if self.path is None or status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            return status
        if not self.compared:
            return pytest.ExitCode.USAGE_ERROR
        return pytest.ExitCode.TESTS_FAILED if self.missing else status

    def lines(self, journal: Path | None) -> list[str]:
        if journal is None:
            return ["nothing was run"]
        if self.path is None:
            return [f"no baseline was given, nothing was compared; this run as one: --benchmark-compare={journal}"]
        if not self.compared:
            return [f"nothing to compare: {self.path} holds none of these programs; make it by the same command"]
        lines = [
            f"{workload.id}: {finding.sentence}"
            for workload, findings in self._found.items()
            for finding in findings
            if finding.kind not in ("same", "untold")
        ]
        same = [findings for findings in self._found.values() if findings[0].kind == "same"]
        if same:
            lines.append(f"{len(same)} of {self.compared}: {same[0][0].sentence}")
        lines += [f"{workload.id}: new, not in the baseline" for workload in self._new]
        lines += [f"{workload.id}: in the baseline, but was not run" for workload in self.missing]
        changed = any(finding.changed for findings in self._found.values() for finding in findings)
        if (changed or self.missing or self._new) and not self._failed:
            lines.append(self._renewal(journal))
        return lines

    def _renewal(self, journal: Path) -> str:
        if self._deselected & self._baseline.keys():
            return "to accept these programs, run all of them and make that run's journal the baseline"
        if self.path is not None and self.path.suffix == ".jsonl":
            return f"to accept these programs: cp {journal} {self.path}"
        return f"to accept these programs, make this run's journal the baseline: --benchmark-compare={journal}"


def _path(config: pytest.Config) -> Path | None:
    given: Any = config.getoption("benchmark_compare")
    if given == []:  # pytest-benchmark's word for nobody having given it
        return None
    if given in (True, "") or not Path(given).exists():
        named = "" if given in (True, "") else f", and there is no {given}"
        raise pytest.UsageError(
            "--fwbench-programs-only takes the baseline by its path, --benchmark-compare=PATH to a record or a journal"
            f"{named}."
        )
    return Path(given)


def _key(workload: Workload) -> Workload:
    """Where this machine keeps the data makes no other program."""
    return dataclasses.replace(workload, data_path=None)
