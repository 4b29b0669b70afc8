"""`--fwbench-programs-only`: every benchmark builds, compiles and is fingerprinted; nothing is timed.

`--fwbench-programs-only=h100` compiles for a GPU that need not be here: then nothing is run either.

The run's journal holds the fingerprints. pytest-benchmark's files cannot, as they need rounds, and there are none. A
later run is compared with a journal, or with any record that was timed.
"""

from collections import Counter
from pathlib import Path
from typing import Any

from fwbench.compare.findings import ALL, Finding, Outcome
from fwbench.compare.programs import changes, compare, facts
from fwbench.errors import UserError
from fwbench.gates.contract import Gate, fail
from fwbench.gates.options import baseline
from fwbench.machine import Machine
from fwbench.models.project import Project
from fwbench.record.fingerprint import Fingerprint
from fwbench.record.measurement import Measurement, fitting
from fwbench.record.workload import Workload
from fwbench.report import verdicts
from fwbench.suite.selection import Selection


class ProgramsOnly(Gate):
    """Compares each program with the baseline's, and the run with the whole baseline.

    `--benchmark-compare` is taken over from pytest-benchmark, which would look for times.
    """

    title = "fwbench: programs"
    timed = False
    shows_numbers = True

    def __init__(self, config: Any, selection: Selection, machine: Machine, project: Project) -> None:
        super().__init__(config)
        # Only benchmarks have a program.
        config.option.benchmark_only = True
        record = baseline(config)
        config.option.benchmark_compare = None
        self.path = record.path if record else None
        self._damaged = record.damaged if record else ()
        self._baseline: dict[Workload, Fingerprint] = {}
        self._twice: set[Workload] = set()
        for m in record.measurements if record else ():
            if m.program and self._baseline.setdefault(m.workload.anywhere, m.program) != m.program:
                self._twice.add(m.workload.anywhere)
        if record is None and self._summary:
            raise UserError(
                "--fwbench-summary tells what a gate has found, and --fwbench-programs-only compares with nothing: add "
                "--benchmark-compare=PATH."
            )
        self._findings: dict[Workload, Finding | None] = {}
        self._unavailable: dict[Workload, str] = {}

    def judge(self, measurement: Measurement, test: str) -> None:
        """Compare with the baseline; a changed program fails the test that asked for it."""
        workload, failure = measurement.workload.anywhere, measurement.failure
        if failure and failure.kind == "unavailable":
            self._unavailable[workload] = failure.message
            return
        if measurement.unfit:
            self._unavailable[measurement.asked.anywhere] = fitting(measurement.unfit)
        if self.path is None:
            return
        finding = self._findings[workload] = self._compare(workload, measurement)
        if finding and not failure and finding.in_test:
            fail(f"{finding.benchmark}: {finding.note}")

    def _compare(self, workload: Workload, measurement: Measurement) -> Finding | None:
        """The finding on a workload that was measured; None if neither side has a program, or base's is damaged."""
        if measurement.failure:
            return Finding(workload.id, "failed", note=measurement.failure.message, in_test=True)
        base, head = self._baseline.get(workload), measurement.program
        if workload in self._twice:
            return Finding(workload.id, "incomparable", note="the baseline holds it twice, with different programs")
        if base is None and workload.id in {damaged.name for damaged in self._damaged}:
            return None
        if base is None:
            return Finding(workload.id, "new", note="not in the baseline")
        assert head is not None
        remarks = compare(base, head, workload.device)
        changed = changes(remarks)
        if head.digest is None:
            return Finding(workload.id, "missing", note=changed, in_test=True) if changed else None
        if base.digest is None:
            return Finding(workload.id, "new", note=remarks[0].sentence)
        if changed:
            return Finding(workload.id, "changed", note=changed, in_test=True)
        return Finding(workload.id, "unchanged", note=facts(remarks))

    def outcome(self) -> Outcome | None:
        if self.path is None:
            return None
        findings = [finding for finding in self._findings.values() if finding]
        if not any(finding.kind in ("failed", "changed", "unchanged") for finding in findings):
            return Outcome(str(self.path), "this run", [Finding(ALL, "incomparable", note=self._nothing_shared())])
        for workload in self._baseline:
            if workload not in self._findings and workload not in self._deselected:
                why = self._unavailable.get(workload)
                state = f"not available here: {why}" if why else "not run"
                findings.append(Finding(workload.id, "missing", note=f"in the baseline, {state}"))
        deselected = {workload.id for workload in self._deselected}
        findings += [
            Finding(damaged.name, "incomparable", note=f"the baseline holds it, but damaged: {damaged.fault}")
            for damaged in self._damaged
            if damaged.name not in deselected
        ]
        return Outcome(str(self.path), "this run", findings)

    def _nothing_shared(self) -> str:
        """The reason why the run and the baseline have no program in common."""
        here = {workload.target for workload in (*self._findings, *self._unavailable)}
        there = {workload.target for workload in self._baseline}
        if here and there and not here & there:
            names = [
                ", ".join(sorted(target or "the device at hand" for target in targets)) for targets in (there, here)
            ]
            return f"the baseline's programs are for {names[0]}, and these for {names[1]}: make it by the same command"
        return "the baseline holds none of these programs: make it by the same command"

    def lines(self, journal: Path | None) -> list[str]:
        outcome = self.outcome()
        if journal is None:
            return ["nothing was run"]
        if outcome is None:
            reasons = Counter(self._unavailable.values())
            return [
                *(f"{count} not available here: {reason}" for reason, count in reasons.items()),
                f"no baseline was given, nothing was compared; this run as one: --benchmark-compare={journal}",
            ]
        kinds = {finding.kind for finding in outcome.findings}
        renewable = kinds & {"changed", "missing", "new"} and "failed" not in kinds
        return [*verdicts.lines(outcome), *([self._renewal(journal)] if renewable else [])]

    def _renewal(self, journal: Path) -> str:
        if self._deselected & self._baseline.keys():
            return "to accept these programs, run all of them and make that run's journal the baseline"
        if self.path is not None and self.path.suffix == ".jsonl":
            return f"to accept these programs: cp {journal} {self.path}"
        return f"to accept these programs, make this run's journal the baseline: --benchmark-compare={journal}"
