"""A run of the suite: the chain that yields its measurements, and the journal that keeps them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fwbench.errors import UserError
from fwbench.gates import Gate
from fwbench.machine import Machine
from fwbench.machine.facts import provide
from fwbench.models.project import Project
from fwbench.models.weights import Shape
from fwbench.plugin.pooling import Pool
from fwbench.record.journal import ROUND, Journal
from fwbench.record.measurement import WAITING, Failure, Measurement
from fwbench.record.rounds import PlayedRound, with_rounds
from fwbench.record.workload import Workload
from fwbench.suite.profiles import Protocol
from fwbench.suite.selection import Selection
from fwbench.worker.chain import Measure, Tell, same_texts, several, twice
from fwbench.worker.client.scratch import Scratch
from fwbench.worker.client.server import Server
from fwbench.worker.client.workers import Workers
from fwbench.worker.texts import Texts

RESUME = "--fwbench-resume"

# Workloads and their protocols, by test.
Asked = Mapping[str, tuple[Workload, Protocol]]


@dataclass(frozen=True)
class Resumed:
    """What a run takes from a journal in place of measuring it.

    Attributes:
        lines: for the terminal: the journal, the number of records taken, and the reasons against the rest.
        taken: measurements, by test.
        rounds: those of lanes whose measurements are all taken.
        pairs: records of a duet.
        left: the number of measurements that are not taken, by reason.
    """

    lines: Sequence[str] = ()
    taken: Mapping[str, Measurement] = field(default_factory=dict)
    rounds: Sequence[PlayedRound] = ()
    pairs: Sequence[Mapping[str, Any]] = ()
    left: Mapping[str, int] = field(default_factory=dict)


def shortest(path: Path) -> str:
    """The shortest path from the current folder."""
    resolved, here = path.resolve(), Path.cwd()
    return str(resolved.relative_to(here)) if resolved.is_relative_to(here) else str(path)


def unkept(error: OSError) -> str:
    """The sentence of a run that ends because its journal cannot be written, with the next step."""
    return (
        f"{error.filename} cannot be written ({error.strerror}): free space, and --fwbench-resume goes on from there; "
        "or name another folder by --benchmark-storage=DIR"
    )


class Session:
    """Measures one workload after another and remembers every measurement, failed ones too.

    Args:
        storage: folder under which the journal is kept.
        conditions: of all measurements, for the journal.
        gate: may measure in its own way.
        pool: of accelerators that measure at the same time; None: this machine measures one after another.
        resumed: the measurements, rounds and pairs that are taken from an earlier run's journal.

    Attributes:
        rounds: the rounds that lanes have played so far.
        has_time: returns whether a disturbed workload may be measured a second time.
        stays: returns whether a workload's process stays for a round with those of the other lanes.
        caches: a folder for compilers' outputs, in a run whose lanes take turns later; else None.
        unkept: the reason why the last measurement is not in the journal, with the next step; empty if it is.

    Raises:
        OSError: the resumed records cannot be written into this run's journal.
    """

    def __init__(
        self,
        selection: Selection,
        machine: Machine,
        storage: Path,
        project: Project,
        conditions: Mapping[str, Any],
        gate: Gate,
        pool: Pool | None = None,
        resumed: Resumed | None = None,
    ) -> None:
        self.selection = selection
        self.machine = machine
        self._measurements: dict[str, Measurement] = {}  # the last one of each test
        resumed = resumed or Resumed()
        self.rounds = list(resumed.rounds)
        self.has_time: Callable[[], bool] = lambda: True
        self.stays: Callable[[Workload], bool] = lambda workload: False
        self.unkept = ""
        facts = storage / "facts"
        self.caches = Scratch() if selection.minutes and gate.kind != "duet" else None
        # Not with several processes of a workload: on a GPU, each is to draw its compilers' choices anew.
        keep = self.caches is not None and selection.processes == 1
        if keep and self.caches and selection.device == "gpu":
            # An earlier part of the run may have compiled the programs that take turns.
            provide(facts, self.caches.path)
        compiled = self.caches.path if self.caches else None
        kept = {"facts": facts, "compiled": compiled, "keep": keep}
        self._workers = Workers.selected(selection, machine, project, **kept, stays=lambda each: self.stays(each))
        self._pool = pool
        self.journal = Journal(storage / "journal", conditions)
        self._taken = dict(resumed.taken)
        # Measurements already in the journal; a pool's are, before a test asks for them.
        self._written = list(self._taken.values())
        if self._written or resumed.pairs:
            # At once, so that this run can be resumed whenever it ends.
            records = [measurement.to_json() for measurement in self._written]
            self.journal.begin([*records, *({ROUND: each.to_json()} for each in self.rounds), *resumed.pairs])
        self._texts = Texts(project.root)
        once: Measure = self.run if pool else several(self.run, selection.processes)
        if not pool:
            once = twice(once, self._may_again)
        self._chain = gate.measuring(once)

    @property
    def measurements(self) -> list[Measurement]:
        """The measurements of all tests so far, with the turns that their lanes have taken."""
        return with_rounds(self._measurements.values(), self.rounds)

    def run(self, workload: Workload, protocol: Protocol, tell: Tell = lambda _: None) -> Measurement:
        """Measure a workload without remembering it: in one process, or as often as usual in a pool."""
        # If there is a pool, only there, as this machine may belong to it.
        measure = self._pool.take if self._pool else self._workers.measure
        return same_texts(self._texts, measure(workload, protocol, tell))

    def measure(self, test: str, workload: Workload, protocol: Protocol, tell: Tell) -> Measurement:
        """Measure a workload as a test asks for it and journal the measurement; `unkept` says if that failed.

        If the test is run again, the new measurement takes the place of the earlier one.

        Raises:
            UserError: every other workload would fail too, and the user must act.
        """
        if taken := self._taken.pop(test, None):
            tell("taken from the journal")
        measurement = taken or self._chain(workload, protocol, tell)
        if before := self._measurements.get(test):
            measurement = measurement.beside(before, rerun=True)
        self._measurements[test] = measurement
        return self._write(measurement)

    def shapes(self, workload: Workload, protocol: Protocol) -> Mapping[str, Shape] | Failure:
        """The shapes of the weights of a workload's network by canonical name, or the failure to build it."""
        return self._workers.shapes(workload, protocol)

    def staying(self, workload: Workload) -> dict[str, Server]:
        """The servers whose processes have measured a workload and stay, by lane; its own `lane` is empty."""
        return self._workers.staying(workload)

    def expect(self, asked: Iterable[tuple[Workload, Protocol]]) -> None:
        """Let a pool measure all of these as soon as it can, and store each measurement when it arrives."""
        if self._pool:

            def arrived(measurement: Measurement) -> Measurement:
                return self._write(same_texts(self._texts, measurement))

            for workload, protocol in asked:
                self._pool.submit(workload, protocol, arrived)

    def keep(self, played: PlayedRound) -> None:
        """Remember a round, and journal it, as `note` does."""
        self.rounds.append(played)
        self.note({ROUND: played.to_json()})

    def note(self, record: Mapping[str, Any]) -> None:
        """Journal a record that is no measurement.

        Raises:
            UserError: the journal cannot be written.
        """
        try:
            self.journal.append(record)
        except OSError as error:
            raise UserError(unkept(error)) from None

    def _may_again(self, tell: Tell) -> bool:
        """True if there is time and no other load, after a wait for its end while the run's patience lasts."""
        if not self._workers.patient or not self.has_time():
            return False
        tell(WAITING)
        if quiet := self._workers.become_quiet():
            return quiet
        tell("disturbed, and other load goes on")
        return False

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
