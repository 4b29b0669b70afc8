"""A run of the suite: the selection, the workers that measure it, and the journal that keeps what they find."""

from collections.abc import Callable
from pathlib import Path

from fwbench.machine import Machine
from fwbench.measurement import Measurement
from fwbench.profiles import Protocol
from fwbench.selection import Selection
from fwbench.worker.client import Workers
from fwbench.worker.journal import Journal
from fwbench.workload import Workload


class Session:
    """Measures one workload after another and remembers every measurement, failed ones too.

    Args:
        selection: the run's axes and protocol.
        machine: this machine.
        storage: folder under which the journal is kept.
    """

    def __init__(self, selection: Selection, machine: Machine, storage: Path) -> None:
        self.selection = selection
        self.machine = machine
        self.measurements: list[Measurement] = []
        self._workers = Workers(machine, selection.device, selection.pythons, selection.lanes)
        self.journal = Journal(
            storage / "journal", {"profile": selection.protocol.profile, "machine": machine.to_json()}
        )

    def measure(self, workload: Workload, protocol: Protocol, on_stage: Callable[[str], None]) -> Measurement:
        """Measure one workload and put it into the journal, whatever came of it."""
        measurement = self.run(workload, protocol, on_stage)
        self.measurements.append(measurement)
        self.journal.append(measurement.to_json())
        return measurement

    def run(
        self, workload: Workload, protocol: Protocol, on_stage: Callable[[str], None] = lambda _: None
    ) -> Measurement:
        """Measure one workload and keep nothing of it."""
        return self._workers.measure(workload, protocol, on_stage)

    def close(self) -> None:
        """End the workers and close the journal."""
        self._workers.close()
        self.journal.close()
