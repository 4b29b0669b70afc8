"""A run of the suite: the chain that yields its measurements, and the journal that keeps them."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fwbench.gates import Gate
from fwbench.machine import Machine
from fwbench.machine.ceilings import Kept
from fwbench.models.project import Project
from fwbench.record.journal import Journal
from fwbench.record.measurement import Measurement
from fwbench.record.workload import Workload
from fwbench.suite.profiles import Protocol
from fwbench.suite.selection import Selection
from fwbench.worker.chain import EqualWeights, Measure, Tell, resumed, several, then
from fwbench.worker.client import Workers
from fwbench.worker.pool import Pool
from fwbench.worker.scratch import Scratch


def unkept(error: OSError) -> str:
    """Why a run ends for its journal's sake, and what to do."""
    return (
        f"{error.filename} cannot be written ({error.strerror}): free space, and --fwbench-resume goes on from there; "
        "or name another folder by --benchmark-storage=DIR"
    )


class Session:
    """Measures one workload after another and remembers every measurement, failed ones too.

    Args:
        selection: the run's axes and protocol.
        machine: this machine.
        storage: folder under which the journal is kept.
        project: whose models are measured.
        conditions: of all measurements, for the journal.
        gate: measures in its own way; None: in the ordinary one.
        pool: of accelerators that measure at the same time; None: this machine measures one after another.
        taken: measurements of an earlier run's journal, by what they measure.

    Attributes:
        caches: a folder for what compilers make, in a run whose lanes take turns later; else None.
        unkept: why the last measurement is not in the journal, and what to do; empty: it is.

    Raises:
        OSError: what was taken cannot be written into this run's journal.
    """

    def __init__(
        self,
        selection: Selection,
        machine: Machine,
        storage: Path,
        project: Project,
        conditions: Mapping[str, Any],
        gate: Gate | None = None,
        pool: Pool | None = None,
        taken: Mapping[tuple[Workload, Protocol], list[Measurement]] | None = None,
    ) -> None:
        self.selection = selection
        self.machine = machine
        self.measurements: list[Measurement] = []
        self.unkept = ""
        self.caches = Scratch() if selection.minutes and (gate is None or gate.kind != "duet") else None
        # On a GPU compilers choose by measuring.
        shared = self.caches.path if self.caches and selection.device == "cpu" else None
        self._workers = Workers(
            machine,
            selection.device,
            selection.pythons,
            project,
            fit_batch=selection.fit_batch,
            patience=selection.patience,
            ceilings=Kept(storage / "ceilings", machine),
            compiled=shared,
        )
        self._pool = pool
        self.journal = Journal(storage / "journal", conditions)
        # Those that are in the journal, which a pool's are before a test asks for them.
        self._written: list[Measurement] = []
        taken = taken or {}
        if taken:
            self._begin([measurement for measurements in taken.values() for measurement in measurements])
        self._check = EqualWeights()
        self._again: Measure = self.run if pool else several(self.run, selection.processes)
        ordinary = gate.measuring(self._again) if gate else self._again
        self._chain = then(resumed(ordinary, taken), self._check, self._write)

    def _begin(self, taken: list[Measurement]) -> None:
        """Begin the journal with what another one holds, so that this run can be resumed whenever it ends."""
        self.journal.begin(measurement.to_json() for measurement in taken)
        self._written += taken
        for measurement in taken:
            self._workers.told(measurement)

    def run(self, workload: Workload, protocol: Protocol, tell: Tell = lambda _: None) -> Measurement:
        """Measure a workload in one process, or as often as ever in a pool; nobody remembers it."""
        # Not here as well as in a pool, one of whose accelerators may be here.
        measure = self._pool.take if self._pool else self._workers.measure
        return measure(workload, protocol, tell)

    def measure(self, workload: Workload, protocol: Protocol, tell: Tell) -> Measurement:
        """Measure a workload as the run asks for it; the measurement is in the journal, unless `unkept` says why not.

        Raises:
            UserError: so it would be for all other workloads, and the user must do something about it.
        """
        measurement = self._chain(workload, protocol, tell)
        self.measurements.append(measurement)
        return measurement

    def expect(self, asked: Iterable[tuple[Workload, Protocol]]) -> None:
        """Let a pool measure all of these as soon as it can, and keep each measurement as soon as it comes."""
        if self._pool:
            for workload, protocol in asked:
                self._pool.submit(workload, protocol, lambda measurement: self._write(self._check(measurement)))

    def expect_again(self, asked: Iterable[tuple[Workload, Protocol]]) -> None:
        """Let a pool begin to measure a second time; a machine that measures one after another begins when asked."""
        if self._pool:
            for workload, protocol in asked:
                self._pool.submit(workload, protocol)

    def measure_again(self, workload: Workload, protocol: Protocol, tell: Tell) -> Measurement:
        """Measure a workload a second time; whoever asks decides which measurement is to be remembered."""
        return self._check(self._again(workload, protocol, tell))

    @property
    def patient(self) -> bool:
        """Whether the run may still wait for other load to end."""
        return self._workers.patient

    def become_quiet(self) -> bool:
        """Wait, for as long as the run has patience, until others leave the CPUs alone; whether they do."""
        # Each of a pool's workers waits where it measures.
        return self._pool is not None or self._workers.become_quiet()

    def replace(self, first: Measurement, again: Measurement) -> None:
        """Remember a measurement in the place of one that it holds."""
        self.measurements[self.measurements.index(first)] = again
        self._write(again)

    def close(self) -> None:
        """End the workers and close the journal."""
        self._workers.close()
        if self.caches:
            self.caches.close()
        if self._pool:
            self._pool.close()
        self.journal.close()

    def _write(self, measurement: Measurement) -> Measurement:
        """Put a measurement into the journal, unless it is there."""
        if not any(measurement is written for written in self._written):
            try:
                self.journal.append(measurement.to_json())
                self._written.append(measurement)
                self.unkept = ""
            except OSError as error:
                # What was measured is shown and saved yet.
                self.unkept = unkept(error)
        return measurement
