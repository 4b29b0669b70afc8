"""A run of the suite: the chain that yields its measurements, and the journal that keeps them."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fwbench.engines.pool import Pool
from fwbench.gates import Gate
from fwbench.machine import Machine
from fwbench.machine.ceilings import Kept
from fwbench.models.project import Project
from fwbench.record.journal import Journal
from fwbench.record.measurement import Measurement
from fwbench.record.workload import Workload
from fwbench.suite.profiles import Protocol
from fwbench.suite.selection import Selection
from fwbench.worker.chain import EqualWeights, Measure, Tell, resumed, same_texts, several, then
from fwbench.worker.client.scratch import Scratch
from fwbench.worker.client.workers import Workers
from fwbench.worker.texts import Texts


def unkept(error: OSError) -> str:
    """Why a run ends because of its journal, and what to do about it."""
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
        gate: measures in its own way; None: the run measures in the usual way.
        pool: of accelerators that measure at the same time; None: this machine measures one after another.
        taken: measurements from an earlier run's journal, by workload.

    Attributes:
        caches: a folder for what compilers make, in a run whose lanes take turns later; else None.
        unkept: why the last measurement is not in the journal, and what to do; empty if it is.

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
        # On a GPU compilers choose kernels by timing them.
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
        # Measurements already in the journal; a pool's are, before a test asks for them.
        self._written: list[Measurement] = []
        taken = taken or {}
        if taken:
            # At once, so that this run can be resumed whenever it ends.
            self._written = [measurement for measurements in taken.values() for measurement in measurements]
            self.journal.begin(measurement.to_json() for measurement in self._written)
            for measurement in self._written:
                self._workers.told(measurement)
        self._texts = Texts(project.root)
        self._check = EqualWeights()
        self._again: Measure = self.run if pool else several(self.run, selection.processes)
        ordinary = gate.measuring(self._again) if gate else self._again
        self._chain = then(resumed(ordinary, taken), self._check)

    def run(self, workload: Workload, protocol: Protocol, tell: Tell = lambda _: None) -> Measurement:
        """Measure a workload without remembering it: in one process, or as often as usual in a pool."""
        # With a pool only there, as this machine may belong to the pool.
        measure = self._pool.take if self._pool else self._workers.measure
        return same_texts(self._texts, measure(workload, protocol, tell))

    def measure(
        self, workload: Workload, protocol: Protocol, tell: Tell, before: Measurement | None = None
    ) -> Measurement:
        """Measure a workload as the run asks for it and journal the measurement; `unkept` says if that failed.

        Args:
            before: of the same test, which is run again; the new measurement takes its place.

        Raises:
            UserError: every other workload would fail too, and the user must act.
        """
        measurement = self._chain(workload, protocol, tell)
        if before is None:
            self.measurements.append(measurement)
            return self._write(measurement)
        measurement = measurement.beside(before, rerun=True)
        self.replace(before, measurement)
        return measurement

    def expect(self, asked: Iterable[tuple[Workload, Protocol]]) -> None:
        """Let a pool measure all of these as soon as it can, and store each measurement when it arrives."""
        if self._pool:

            def arrived(measurement: Measurement) -> Measurement:
                return self._write(self._check(same_texts(self._texts, measurement)))

            for workload, protocol in asked:
                self._pool.submit(workload, protocol, arrived)

    def expect_again(self, asked: Iterable[tuple[Workload, Protocol]]) -> None:
        """Let a pool begin second measurements; without a pool they begin when they are asked for."""
        if self._pool:
            for workload, protocol in asked:
                self._pool.submit(workload, protocol)

    def measure_again(self, workload: Workload, protocol: Protocol, tell: Tell) -> Measurement:
        """Measure a workload a second time; the caller decides which of the two measurements is remembered."""
        return self._check(self._again(workload, protocol, tell))

    @property
    def patient(self) -> bool:
        """Whether the run may still wait until other load ends."""
        return self._workers.patient

    def become_quiet(self) -> bool:
        """Wait, while the run's patience lasts, until others leave the CPUs alone; return whether they do."""
        # A pool's workers wait where they measure.
        return self._pool is not None or self._workers.become_quiet()

    def replace(self, first: Measurement, again: Measurement) -> None:
        """Remember a measurement in place of an earlier one."""
        self.measurements[self.measurements.index(first)] = again
        self._write(again)

    def close(self) -> None:
        """End the workers and close the journal.

        Raises:
            OSError: the journal was lost, and could not be written again.
        """
        self._workers.close()
        if self.caches:
            self.caches.close()
        if self._pool:
            self._pool.close()
        self.journal.close()

    def _write(self, measurement: Measurement) -> Measurement:
        """Write a measurement to the journal, unless it is there."""
        if not any(measurement is written for written in self._written):
            try:
                self.journal.append(measurement.to_json())
                self._written.append(measurement)
                self.unkept = ""
            except OSError as error:
                # This measurement can still be shown and saved.
                self.unkept = unkept(error)
        return measurement
