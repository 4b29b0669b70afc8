"""The measured side: one job, from a workload to its measurement or failure."""

import dataclasses
import os
import socket
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fwbench.errors import Absent
from fwbench.extensions import addition, resolve
from fwbench.frameworks.contract import Framework, LostError, Program, Ranks
from fwbench.frameworks.training import HORIZON
from fwbench.machine import nvml
from fwbench.machine.disturbances import slowed
from fwbench.machine.facts import Facts
from fwbench.machine.oom import ROOM
from fwbench.meters.imported import also_imported, with_others
from fwbench.models import CATALOG, Model
from fwbench.models.project import complete, provable
from fwbench.models.store import stamp
from fwbench.record.lanes import TOOLS, Lane, candidate, recorded
from fwbench.record.measurement import ALSO_IMPORTED, BEFORE, Failure, Measurement, Rank
from fwbench.record.workload import FORWARD, Workload
from fwbench.suite.profiles import Protocol
from fwbench.worker import texts
from fwbench.worker.process import faults
from fwbench.worker.process.building import DisagreementError, build, join, versions_of
from fwbench.worker.process.checks import aim
from fwbench.worker.process.job import Job
from fwbench.worker.process.passes import measure_program
from fwbench.worker.process.player import Measured, Receive, Send, take_turns
from fwbench.worker.process.witness import Witness, changed, in_force
from fwbench.worker.process.writing import write


def prepare(lane: Lane) -> None:
    """Read what every job of a lane needs: versions, imports of the suite's own networks, and modules.

    The server calls this once, and its workers inherit the result.
    """
    versions_of(lane)
    # The suite's models have one network in a framework, whichever network of a user's the lane runs.
    name = lane.name.partition(":")[0]
    for model in CATALOG.values():
        stamp(complete(model, name), lane.framework, None)


def run(lane: Lane, job: Mapping[str, Any], send: Send, receive: Receive) -> None:
    """Run a lane's job, send its result, and take turns if it stays; never raises, whatever the measured code does."""
    send({"started": os.getpid()})
    if (written := write(lane, job)) is not None:
        send({"measurement": written.to_json()})
        return
    measurement, measuring = measure(lane, job, lambda stage: send({"stage": stage}))
    held = None if measurement.failure else measuring.measured
    send({"measurement": measurement.to_json(), "stays": held is not None})
    if held and (turns := receive()) is not None and "turns" in turns:
        framework, program, witness = held
        take_turns(lambda: Measured(program, turns), lane, framework, turns, witness, send, receive)


def measure(
    lane: Lane, job: Mapping[str, Any], tell: Callable[[str], None], ranks: Ranks | None = None, began: float = 0.0
) -> tuple[Measurement, "Measuring"]:
    """Run a lane's job in this process; return the measurement, and the job, which knows whether all ranks `agreed`.

    If another rank is gone, this raises a LostError.
    """
    workload = Workload.from_json(job["workload"])
    protocol = Protocol(**job["protocol"])
    # The user's modules lie in their own project.
    sys.path[:0] = job["path"]
    model = Model.from_json(job["model"])
    measuring = Measuring(
        workload,
        lane,
        model,
        protocol,
        tell,
        facts=Facts(job.get("facts"), workload.id),
        patience=job["patience"],
        ranks=ranks,
        began=began,
        keep=job.get("keep", False) and ranks is None,
        start=job.get("start"),
        exact=job.get("exact"),
        stays=job.get("stays", False),
        beside=job.get("beside", ()),
    )
    try:
        # A compiler's helper may still write to this folder, which then cannot be removed; the measurement is done.
        temporary = tempfile.TemporaryDirectory(prefix="fwbench-", ignore_cleanup_errors=True)
    except OSError as error:
        sentence = f"temporary files cannot be written ({error.strerror}): free space, or name a folder by TMPDIR"
        return Measurement(workload, failure=Failure("error", sentence)), measuring
    with temporary as folder:
        # Empty compiler caches, as compile time means a cold compiler. The server may have provided them.
        if not job.get("caches"):
            os.environ.update(lane.cached(Path(folder)))
        apart = (tempfile.gettempdir(), *(os.environ.get(name, "") for name in lane.cached(Path())))
        if asked := job.get("facts"):
            apart = (*apart, asked["folder"])
        with Witness(job["root"], apart) as measuring.witness:
            measurement = measuring.run()
    # Looked up here, as the proof must be of the sources and versions that this process sees.
    proof = _proof(model, lane, job)
    if python := job.get("python"):
        proof["python"] = python
    measurement = dataclasses.replace(
        measurement, parity={**measurement.parity, "proof": proof}, settings={**measurement.settings, **job["user"]}
    )
    return measurement, measuring


def _proof(model: Model, lane: Lane, job: Mapping[str, Any]) -> dict[str, Any]:
    """The record's entry on the proof of the lane's network."""
    named = Model.from_json({**model.to_json(), "name": job.get("proved_as", model.name)})
    further = named.name != model.name
    program = candidate(lane)
    candidates, does = [program], ""
    if lane.derived:
        does = f"runs the network in {lane.derived}"
    elif program not in ("", lane.framework):
        workload = Workload.from_json(job["workload"])
        # Another backend compiles for a GPU, and other calls of a list of sizes run other programs.
        if further or workload.mode not in FORWARD or workload.device != "cpu" or len(workload.each) > 1:
            does = f"makes a program that no proof runs (those of {program} are of inference on a CPU, at fixed sizes)"
    elif not program:
        does = "makes a program that no proof runs"
    # A further network in the reference's framework is the reference of proofs of its own.
    elif further and lane.framework == named.reference and not (candidates := provable(named)):
        does = f"runs a further network in {lane.framework}, beside none in another framework"
    if does:
        shown = "its rows state their error" if lane.quantised else "each run checks it"
        reason = f"the lane {lane.name} {does}: {shown}"
        return {"framework": lane.framework, "state": "derived", "reason": reason}
    stamps = [stamp(named, each, Path(job["proofs"])) for each in candidates]
    return {**min(stamps, key=lambda each: each["state"] == "proved"), "framework": lane.framework}


class Measuring(Job):
    """Runs the protocol's stages in order; its arguments are those of `Job`.

    Attributes:
        measured: of a job that stays, what it needs to take turns; else None.
    """

    measured: tuple[Framework, Program, Witness] | None = None

    def run(self) -> Measurement:
        """Measure; every exception of the measured code becomes a failure of its kind."""
        failure: Failure | None
        if isinstance(framework := faults.load(self.lane), Failure):
            failure = framework
        else:
            before = frozenset(sys.modules)
            failure = self._attempt(framework)
            if others := also_imported(self.lane, before, sys.modules):
                self.settings = {**self.settings, ALSO_IMPORTED: others}
                self.metrics = with_others(self.metrics, others)
            if failure is None and self.witness and (edited := self.witness.edited()):
                failure = texts.edited(edited)
        measurement = Measurement(
            workload=self.workload,
            samples=tuple(self.samples) if failure is None else (),
            metrics=self.metrics,
            protocol=self.protocol.to_json(),
            settings=self.settings,
            parity=self.parity,
            training=self.training,
            sources=self.witness.sources() if self.witness else {},
            program=self.program,
            accelerator=tuple(moment for watch in self.watches for moment in watch.moments),
            passes=tuple(self.passes.values()),
            ranks=self._devices() if failure is None else (),
            stages=self.stages,
            versions=versions_of(self.lane),
            failure=failure,
        )
        if failure is None:
            self.facts.store(quiet=measurement.value("other_load") is not None and not slowed(measurement))
        return measurement

    def _attempt(self, framework: Framework) -> Failure | None:
        try:
            return self._measure(framework)
        except LostError:
            # A lost rank has reported the reason, or its launcher will.
            raise
        except BaseException as error:
            self.agreed = self.agreed or isinstance(error, DisagreementError)
            return faults.failure(error, framework, stage=next(reversed(self.stages), None))

    def _measure(self, framework: Framework) -> Failure | None:
        # JAX opens the device when asked whether it can run, PyTorch's ranks when they join.
        self.note(BEFORE)
        if self.ranks:
            with self.stage("join"):
                join(self, framework, self.ranks)
        if self.workload.mode != "fit":
            return self._with(framework, None)
        if not (path := addition("fit")):
            return Failure("unavailable", "mode fit needs fwbench's extension `epochs`, which is not here")
        # The data comes first: its libraries set variables of the environment, which is no network's doing.
        with resolve(path)(self) as measure:
            return self._with(framework, measure)

    def _with(self, framework: Framework, measure: Callable[[Framework], Failure | None] | None) -> Failure | None:
        """
        Args:
            measure: builds and measures the program; None: it is done here.
        """
        workload = self.workload
        before = in_force(recorded([self.lane]), framework, workload, building=True)
        with self.building():
            # Opens the device, and may build the network once.
            reason = framework.refusal(workload, self.model)
            if self.ranks:
                # All ranks must meet here, or the others would wait for ever.
                reason = next(filter(None, self.ranks.gather(reason)), None)
                self.agreed = bool(reason)
            if reason:
                return Failure("unavailable", reason)
            if measure is None:
                program = build(self, framework, HORIZON)
        if measure is not None:
            failure = measure(framework)
        elif workload.target:
            failure = aim(self, program, workload.target)
        else:
            failure = None
            with program.session():
                measure_program(self, framework, program)
            if self.stays and self.witness and self._may_stay():
                self.measured = framework, program, self.witness
        after = in_force(recorded([self.lane]), framework, workload)
        # The compiler sets the variables in TOOLS, and not the network's code.
        after = {name: value for name, value in after.items() if name not in TOOLS or name in before}
        self.settings |= changed(before, after, self.settings.get("caution", ""))
        return failure

    def _may_stay(self) -> bool:
        """True if this process may wait for turns while other lanes are measured.

        On a GPU its program must not have been compiled here, as rounds load theirs; and the driver must say that the
        process holds little of the memory.
        """
        if self.workload.device == "cpu":
            return True
        compiled = "load" not in self.stages and self.metrics["compile_time"].value is not None
        gpu = nvml.find(number=self.gpu)
        held = None if isinstance(gpu, Absent) else gpu.process_memory(os.getpid())
        return not compiled and not isinstance(gpu, Absent) and held is not None and held <= ROOM * gpu.memory

    def _devices(self) -> tuple[Rank, ...]:
        """Each GPU of a process that computes on several, with its metrics."""
        if self.gpus == 1:
            return ()
        host, cpus = socket.gethostname(), tuple(self.settings.get("cpus", ()))
        names = [gpu.name for gpu in nvml.visible(self.gpus)]
        return tuple(
            Rank(index, host, name, cpus, {metric: values[index] for metric, values in self.of_devices.items()})
            for index, name in enumerate(names)
        )
