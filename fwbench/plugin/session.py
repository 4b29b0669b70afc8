"""A run of the suite: the selection, the workers that measure it, and the journal that keeps what they find."""

import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from fwbench.machine import Machine
from fwbench.machine.ceilings import Kept
from fwbench.machine.load import wait_for_quiet
from fwbench.models.project import Project
from fwbench.record.journal import Journal
from fwbench.record.measurement import WAITING, Measurement
from fwbench.record.workload import Workload
from fwbench.suite.profiles import Protocol
from fwbench.suite.selection import Selection
from fwbench.worker.client import Workers
from fwbench.worker.pool import Pool
from fwbench.worker.processes import repeated


class Session:
    """Measures one workload after another and remembers every measurement, failed ones too.

    Args:
        selection: the run's axes and protocol.
        machine: this machine.
        storage: folder under which the journal is kept.
        project: whose models are measured.
        conditions: of all measurements, for the journal.
        pool: of accelerators that measure at the same time; None: this machine measures one after another.
    """

    def __init__(
        self,
        selection: Selection,
        machine: Machine,
        storage: Path,
        project: Project,
        conditions: Mapping[str, Any],
        pool: Pool | None = None,
    ) -> None:
        self.selection = selection
        self.machine = machine
        self.measurements: list[Measurement] = []
        self._workers = Workers(
            machine,
            selection.device,
            selection.pythons,
            project,
            fit_batch=selection.fit_batch,
            ceilings=Kept(storage / "ceilings", machine),
        )
        self._workers.patience = selection.patience
        self.journal = Journal(storage / "journal", conditions)
        self._pool = pool
        # Of the measurements that came before they were asked for, those that are in the journal.
        self._written: list[Measurement] = []

    def measure(self, workload: Workload, protocol: Protocol, tell: Callable[[str], None]) -> Measurement:
        """Measure one workload in as many processes as the run asks for."""
        if self._pool:
            return self._pool.take(workload, protocol, tell)
        count = 1 if protocol.programs else self.selection.processes
        return repeated(lambda: self.run(workload, protocol, tell), count, tell)

    def run(self, workload: Workload, protocol: Protocol, tell: Callable[[str], None] = lambda _: None) -> Measurement:
        """Measure one workload in one process; a pool in as many as ever."""
        if self._pool:
            # Not here as well, where an accelerator of the pool may be.
            return self._pool.take(workload, protocol, tell)
        measurement = self._workers.measure(workload, protocol, tell)
        self._workers.patience = max(0.0, self._workers.patience - measurement.stages.get(WAITING, 0.0))
        return measurement

    def ask(self, asked: Iterable[tuple[Workload, Protocol]], check: Callable[[Measurement], Measurement]) -> None:
        """Let a pool begin with what the run will ask for; each measurement is kept as soon as it comes.

        Args:
            check: what becomes of a measurement before it is kept.
        """

        def arrived(measurement: Measurement) -> Measurement:
            checked = check(measurement)
            # What cannot be written is tried again when a test asks for it, which tells.
            with suppress(OSError):
                self.journal.append(checked.to_json())
                self._written.append(checked)
            return checked

        assert self._pool is not None
        for workload, protocol in asked:
            self._pool.submit(workload, protocol, arrived)

    def ask_again(self, asked: Iterable[tuple[Workload, Protocol]]) -> None:
        """Let a pool begin to measure a second time; a machine that measures one after another begins when asked."""
        if self._pool:
            for workload, protocol in asked:
                self._pool.submit(workload, protocol)

    @property
    def patient(self) -> bool:
        """Whether the run may still wait for other load to end."""
        return self._workers.patience > 0

    def becomes_quiet(self) -> bool:
        """Wait, for as long as the run has patience, until others leave the CPUs alone; whether they do."""
        if self._pool:
            # Each of its workers waits where it measures.
            return True
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
        if not any(measurement is one for one in self._written):
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
        if self._pool:
            self._pool.close()
        self.journal.close()
