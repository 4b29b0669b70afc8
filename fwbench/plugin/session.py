"""A run of the suite: the selection, the workers that measure it, and the journal that keeps what they find."""

import dataclasses
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fwbench.compare.criteria import values
from fwbench.machine import Machine
from fwbench.machine.ceilings import Kept
from fwbench.machine.load import wait_for_quiet
from fwbench.models.project import Project
from fwbench.record.journal import Journal
from fwbench.record.measurement import WAITING, Measurement, Metric
from fwbench.record.workload import Workload
from fwbench.suite.profiles import Protocol
from fwbench.suite.selection import Selection
from fwbench.worker.client import Workers


class Session:
    """Measures one workload after another and remembers every measurement, failed ones too.

    Args:
        selection: the run's axes and protocol.
        machine: this machine.
        storage: folder under which the journal is kept.
        project: whose models are measured.
        conditions: of all measurements, for the journal.
    """

    def __init__(
        self, selection: Selection, machine: Machine, storage: Path, project: Project, conditions: Mapping[str, Any]
    ) -> None:
        self.selection = selection
        self.machine = machine
        self.measurements: list[Measurement] = []
        self._workers = Workers(
            machine,
            selection.device,
            selection.pythons,
            project,
            fallback=selection.fallback,
            fit_batch=selection.fit_batch,
            ceilings=Kept(storage / "ceilings", machine),
        )
        self._workers.patience = selection.patience
        self._workers.coordinator = selection.coordinator
        self.journal = Journal(storage / "journal", conditions)

    def measure(self, workload: Workload, protocol: Protocol, tell: Callable[[str], None]) -> Measurement:
        """Measure one workload in as many processes as the run asks for."""
        found: list[Measurement] = []
        while len(found) < (1 if protocol.programs else self.selection.processes):
            if found:
                tell(f"process {len(found) + 1}")
            one = self.run(workload, protocol, tell)
            if one.failure:
                return one
            if found and (one.workload, one.fallback) != (found[0].workload, found[0].fallback):
                # With a smaller batch or fallback flags, as all processes of it will be from now on.
                found = []
            found.append(one)
        return pooled(found)

    def run(self, workload: Workload, protocol: Protocol, tell: Callable[[str], None] = lambda _: None) -> Measurement:
        """Measure one workload in one process."""
        measurement = self._workers.measure(workload, protocol, tell)
        self._workers.patience = max(0.0, self._workers.patience - measurement.stages.get(WAITING, 0.0))
        return measurement

    @property
    def patient(self) -> bool:
        """Whether the run may still wait for other load to end."""
        return self._workers.patience > 0

    def becomes_quiet(self) -> bool:
        """Wait, for as long as the run has patience, until others leave the CPUs alone; whether they do."""
        begun = time.monotonic()
        quiet = wait_for_quiet(self._workers.patience)
        self._workers.patience = max(0.0, self._workers.patience - (time.monotonic() - begun))
        return quiet

    def python(self, framework: str) -> str:
        """The interpreter of a framework's workers."""
        return self.selection.pythons.get(framework, sys.executable)

    def resume(self, taken: Iterable[Measurement]) -> None:
        """Begin the journal with what another one holds, so that this run can be resumed whenever it ends.

        Raises:
            OSError: the journal cannot be written.
        """
        found = list(taken)
        self.journal.begin(measurement.to_json() for measurement in found)
        for measurement in found:
            self._workers.told(measurement)

    def keep(self, measurement: Measurement) -> None:
        """Remember a measurement, and put it into the journal.

        Raises:
            OSError: it could not be put there; it is remembered.
        """
        self.measurements.append(measurement)
        self.journal.append(measurement.to_json())

    def replace(self, first: Measurement, again: Measurement) -> None:
        """Remember a second measurement of a workload in the place of the first one, which it holds.

        Raises:
            OSError: it could not be put into the journal.
        """
        self.measurements[self.measurements.index(first)] = again
        self.journal.append(again.to_json())

    def close(self) -> None:
        """End the workers and close the journal."""
        self._workers.close()
        self.journal.close()


def pooled(found: Sequence[Measurement]) -> Measurement:
    """One measurement of those of several processes: all samples, the median of each metric, and each one's values."""
    first = found[0]
    if len(found) == 1:
        return first
    names = dict.fromkeys(name for one in found for name in one.metrics)
    return dataclasses.replace(
        first,
        samples=tuple(sample for one in found for sample in one.samples),
        metrics={
            name: (_worst if name in _DISTURBING else _median)([m.metrics[name] for m in found if name in m.metrics])
            for name in names
        },
        processes=tuple(map(values, found)),
        accelerator=tuple(moment for one in found for moment in one.accelerator),
    )


# What tells that a process was disturbed: one of them is enough for the numbers of all.
_DISTURBING = ("other_load", "latency_drift")


def _worst(metrics: Sequence[Metric]) -> Metric:
    return max(metrics, key=lambda metric: abs(metric.value or 0.0))


def _median(metrics: Sequence[Metric]) -> Metric:
    # One process may have rounds enough for a percentile, and the next one not.
    known = [(metric, metric.value) for metric in metrics if metric.value is not None]
    if not known:
        return metrics[0]
    first, _ = known[0]
    source = f"{first.source}; median of {len(known)} processes"
    return dataclasses.replace(first, value=statistics.median(value for _, value in known), source=source)
