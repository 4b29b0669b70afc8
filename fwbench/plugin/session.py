"""A run of the suite: the selection, the workers that measure it, and the journal that keeps what they find."""

import dataclasses
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from fwbench.compare.criteria import values
from fwbench.machine import Machine
from fwbench.models.project import Project
from fwbench.record.journal import Journal
from fwbench.record.measurement import Measurement, Metric
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
    """

    def __init__(self, selection: Selection, machine: Machine, storage: Path, project: Project) -> None:
        self.selection = selection
        self.machine = machine
        self.measurements: list[Measurement] = []
        self._workers = Workers(machine, selection.device, selection.pythons, project)
        self.journal = Journal(
            storage / "journal", {"profile": selection.protocol.profile, "machine": machine.to_json()}
        )

    def measure(self, workload: Workload, protocol: Protocol, tell: Callable[[str], None]) -> Measurement:
        """Measure one workload in as many processes as the run asks for."""
        found = []
        for number in range(1 if protocol.programs else self.selection.processes):
            if number:
                tell(f"process {number + 1}")
            found.append(self.run(workload, protocol, tell))
            if found[-1].failure:
                return found[-1]
        return pooled(found)

    def run(self, workload: Workload, protocol: Protocol, tell: Callable[[str], None] = lambda _: None) -> Measurement:
        """Measure one workload in one process."""
        return self._workers.measure(workload, protocol, tell)

    def python(self, framework: str) -> str:
        """The interpreter of a framework's workers."""
        return self.selection.pythons.get(framework, sys.executable)

    def keep(self, measurement: Measurement) -> None:
        """Remember a measurement, and put it into the journal."""
        self.measurements.append(measurement)
        self.journal.append(measurement.to_json())

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
        metrics={name: _median([one.metrics[name] for one in found if name in one.metrics]) for name in names},
        processes=tuple(map(values, found)),
        accelerator=tuple(moment for one in found for moment in one.accelerator),
    )


def _median(metrics: Sequence[Metric]) -> Metric:
    # One process may have rounds enough for a percentile, and the next one not.
    known = [(metric, metric.value) for metric in metrics if metric.value is not None]
    if not known:
        return metrics[0]
    first, _ = known[0]
    source = f"{first.source}; median of {len(known)} processes"
    return dataclasses.replace(first, value=statistics.median(value for _, value in known), source=source)
