"""The servers of a run, by which each workload is measured in a fresh process of its lane."""

import dataclasses
import itertools
import json
import math
import os
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from fwbench.extensions import addition, resolve
from fwbench.machine import Machine, nvml
from fwbench.machine import facts as machine_facts
from fwbench.machine.host import cpus_near
from fwbench.machine.load import OtherLoad, wait_for_quiet
from fwbench.machine.oom import ROOM, host_memory
from fwbench.models import CATALOG
from fwbench.models.project import Project, complete, proved_as
from fwbench.record.lanes import LANES, Lane, networks
from fwbench.record.measurement import FALLBACK, WAITING, Failure, Measurement
from fwbench.record.storage import PROOFS
from fwbench.record.workload import FORWARD, LOWER, STATEFUL, Workload
from fwbench.suite.profiles import Protocol
from fwbench.suite.selection import Selection
from fwbench.worker.chain import compiled_by
from fwbench.worker.client.ladder import Flags, Ladder, added, compilers_fault, milder, stated
from fwbench.worker.client.scratch import Scratch
from fwbench.worker.client.server import Server
from fwbench.worker.client.starting import allocated, environment


class Workers:
    """The servers of a run: one for each lane and number of devices, started when first needed.

    Lanes share no server, as what one lane preloads must not count as another lane's memory.

    Args:
        machine: gives the CPUs and the thread count, the same for every lane.
        pythons: interpreter of a framework's workers; default: this one.
        fit_batch: whether a batch that does not fit into memory is halved until it does.
        patience: seconds that measurements may wait in all for other load to end.
        facts: the folder of facts about machines from earlier runs, to which this run adds; None: this run's facts end
            with it.
        compiled: a folder that collects compilers' outputs, for processes that run the same programs later; each
            measurement still compiles for itself. None: nothing is collected.
        keep: whether programs for a GPU are kept for later processes, which load them; else each process compiles, and
            so draws its own kernels where compilers choose them by timing.
        lowers: whether a workload in fp32 is measured in a lower precision or with quantised weights, too. All then
            state their errors against float64.
        stays: whether a workload's process stays for a round with those of the other lanes.
    """

    def __init__(
        self,
        machine: Machine,
        device: str,
        pythons: Mapping[str, str],
        project: Project,
        *,
        fit_batch: bool = False,
        patience: float = 0.0,
        facts: Path | None = None,
        compiled: Path | None = None,
        keep: bool = False,
        lowers: Callable[[Workload], bool] = lambda workload: False,
        stays: Callable[[Workload], bool] = lambda workload: False,
    ) -> None:
        self._machine = machine
        self._project = project
        self._device = device
        self._pythons = pythons
        self._ladder = Ladder(self._rungs, fit_batch=fit_batch)
        self._servers: dict[str, Server] = {}
        self._compiled, self._keep = compiled, keep
        self._patience = patience
        self._facts = facts
        self._run = uuid.uuid4().hex
        # Files that other measurements read (`_written`), by their kind and a workload with only the fields that count.
        self._files: dict[tuple[str, Workload], dict[str, str]] = {}
        self._lowers, self._stays = lowers, stays
        self._scratch: Scratch | None = None

    @classmethod
    def selected(cls, selection: Selection, machine: Machine, project: Project, **kept: Any) -> "Workers":
        """The servers of a run with these options; `kept` are those of `facts`, `compiled` and `keep` that it has."""
        return cls(
            machine,
            selection.device,
            selection.pythons,
            project,
            fit_batch=selection.fit_batch,
            patience=selection.patience,
            lowers=selection.lowers,
            **kept,
        )

    def measure(self, workload: Workload, protocol: Protocol, tell: Callable[[str], None]) -> Measurement:
        """Measure in a fresh process. Whatever goes wrong in it is a failure of this workload alone.

        If a lane crashes or its compiler fails on a GPU, it runs again with ever more of its fallback flags until
        neither happens. The record then says in `after_crash` how the first attempt failed and what was changed.
        If memory runs out and the batch may be halved, a smaller workload than was asked for is measured; `unfit`
        names the batches that did not fit. A workload's later processes begin with these flags and this batch.
        """
        while True:
            unfit = self._ladder.unfit(workload)
            measurement = self._attempt(workload.fitted(unfit), protocol, tell)
            self._patience = max(0.0, self._patience - measurement.stages.get(WAITING, 0.0))
            failure = measurement.failure
            if failure is None or failure.kind != "out_of_memory":
                return dataclasses.replace(measurement, unfit=unfit)
            if not self._ladder.shrink(workload, failure):
                failure, unfit = self._ladder.advised(workload, failure), self._ladder.tried(workload)
                return dataclasses.replace(measurement, workload=workload, unfit=unfit, failure=failure)
            smaller = workload.fitted(self._ladder.unfit(workload)).batch_size
            tell(f"out of memory, again with batch {smaller}")

    def shapes(self, workload: Workload, protocol: Protocol) -> dict[str, tuple[int, ...]] | Failure:
        """The shapes of the weights of a workload's network by canonical name, or the failure to build it."""
        file = self._temporary("shapes.json")
        job = {**self.job(workload, protocol), "shapes": str(file), "patience": 0.0}
        if failure := self._write(workload, job):
            return failure
        return {name: tuple(shape) for name, shape in json.loads(file.read_text(encoding="utf-8")).items()}

    @property
    def patient(self) -> bool:
        """True if measurements may still wait until other load ends."""
        return self._patience > 0

    def become_quiet(self) -> bool:
        """Wait, while patience lasts, until other processes leave the CPUs alone; return whether they do."""
        begun = time.monotonic()
        quiet = wait_for_quiet(self._patience, watch=lambda: OtherLoad(device=self._device))
        self._patience = max(0.0, self._patience - (time.monotonic() - begun))
        return quiet

    def _attempt(self, workload: Workload, protocol: Protocol, tell: Callable[[str], None]) -> Measurement:
        """Measure a workload without changing its batch, with as many fallback flags as it needs."""
        job = self.job(workload, protocol)
        job["start"] = self._start(workload, job)
        if self._states_errors(workload, protocol):
            job["exact"] = self._exact(workload, job, tell)
        first: tuple[Measurement, Failure] | None = None
        while True:
            flags, why = self._ladder.flags(workload)
            if flags:
                tell(f"again with {stated(flags)}")
            measurement = self._once(workload, job, tell)
            if flags:
                settings = {**measurement.settings, FALLBACK: stated(flags)}
                measurement = dataclasses.replace(measurement, settings=settings, after_crash=why)
            failure = measurement.failure
            if self._device != "gpu" or failure is None or not compilers_fault(failure):
                return measurement
            first = first or (measurement, failure)
            if not self._ladder.climb(workload, failure):
                break
        measurement, failure = first
        sentence = f"{failure.message}; with {stated(flags)}, too" if flags else failure.message
        return dataclasses.replace(measurement, failure=dataclasses.replace(failure, message=sentence))

    def _once(self, workload: Workload, job: dict[str, Any], tell: Callable[[str], None]) -> Measurement:
        """Measure a workload in its lane's server, or in one process per device, whatever it comes to."""
        begun = time.monotonic()
        self._settle(workload)
        waited = time.monotonic() - begun
        if LANES[workload.lane].in_ranks(workload.devices, self._device):
            measurement = self._together(workload, job, tell)
        else:
            measure = self._loaded if self._loads(workload, job["protocol"]) else self._served
            measurement = measure(workload, job, tell)
        overhead = measurement.overhead_s
        return measurement if overhead is None else dataclasses.replace(measurement, overhead_s=overhead + waited)

    def _loads(self, workload: Workload, protocol: Mapping[str, Any]) -> bool:
        """True if one process compiles a workload's program for the process that measures it."""
        once = workload.mode == "fit" or workload.devices > 1 or protocol["smoke"] or protocol["programs"]
        return self._device == "cpu" and bool(LANES[workload.lane].sharing) and not once

    def _loaded(self, workload: Workload, job: dict[str, Any], tell: Callable[[str], None]) -> Measurement:
        """Measure a program that another process has compiled, with the compile time of that one.

        A compiler leaves a heap behind in which all threads of XLA's programs look for blocks, and calls take up to a
        tenth longer. Processes that take turns load their programs, too (docs/evidence/heap.md).
        """
        compiling = {**job, "protocol": {**job["protocol"], "smoke": True}, "patience": 0.0, "stays": False}
        made = self._served(workload, compiling, tell, keeps=True)
        if made.failure:
            return made
        self._settle(workload)
        return compiled_by(made, self._served(workload, job, tell))

    def staying(self, workload: Workload) -> dict[str, Server]:
        """The servers whose processes have measured a workload and stay, by lane; its own `lane` is empty."""
        return {lane: server for lane, server in self._servers.items() if server.staying == workload}

    def _settle(self, workload: Workload | None = None) -> None:
        """Wait until the last job's worker has ended, whichever server started it.

        Those of other lanes that stay for a round of this workload go on.
        """
        staying = self.staying(workload.of_all).keys() - {workload.lane} if workload else ()
        for name, running in self._servers.items():
            if name not in staying:
                running.settle()

    def _server(self, workload: Workload) -> Server:
        """The server of a workload's lane for so many devices, with the fallback flags that the workload needs."""
        lane, flags = LANES[workload.lane], self._ladder.flags(workload)[0]
        over = f"over {workload.devices} devices" if workload.devices > 1 else ""
        name = " ".join(filter(None, (lane.name, over, stated(flags))))
        server = self._servers.get(name)
        if server is None or not server.alive:
            # Programs that are compiled with such flags are for no other process.
            compiled = None if flags else self._compiled
            if compiled is None and lane.sharing and self._device == "cpu":
                compiled = self._temporary("compiled")
            server = Server(self._python(lane), lane, self._machine.cpus, self._variables(workload), compiled)
            self._servers[name] = server
        return server

    def _served(
        self, workload: Workload, job: dict[str, Any], tell: Callable[[str], None], *, keeps: bool = False
    ) -> Measurement:
        """Measure a workload in its lane's server; `keeps`: the next job loads what this one compiles."""
        lane = LANES[workload.lane]
        try:
            server = self._server(workload)
        except OSError as error:
            sentence = f"no worker could be started with {self._python(lane)}: {error.strerror}"
            return Measurement(workload, failure=Failure("crashed", sentence))
        measurement = server.measure(job, workload, tell, keeps=keeps)
        if server.staying and (measurement.value("host_peak_memory") or math.inf) > ROOM * host_memory():
            server.settle()
        return measurement

    def _start(self, workload: Workload, job: Mapping[str, Any]) -> str | None:
        """The file with the initial values of a user's network, from which every lane starts; None if there is none.

        Under Slurm there is none, as the ranks of a workload run on several hosts, which may not share a folder.
        """
        model = self._project.models[workload.model]
        if not model.networks or model.name in CATALOG or workload.weights != "drawn" or allocated(os.environ):
            return None
        # A network of a model with a state is built for one step more.
        mode = workload.mode if workload.mode in STATEFUL else "inference"
        start = Workload("", workload.model, mode, seed=workload.seed, axes=workload.axes)
        return self._written("save", start, job).get("file")

    def _states_errors(self, workload: Workload, protocol: Protocol) -> bool:
        """True if a measurement states its errors against float64.

        One in a lower precision than fp32 does, and one in fp32 if the run has it in a lower precision or with
        quantised weights, too. Epochs of training do not, as their errors add up; nor do workloads over several
        devices, as none has the whole result.
        """
        if protocol.smoke or protocol.programs or workload.devices > 1 or workload.mode not in (*FORWARD, "train_step"):
            return False
        return workload.precision in LOWER or (workload.precision == "fp32" and self._lowers(workload))

    def _exact(self, workload: Workload, job: Mapping[str, Any], tell: Callable[[str], None]) -> dict[str, str]:
        """The results of a workload in float64 (`Job.exact`), computed once for all lanes and precisions."""
        asked = dataclasses.replace(workload, lane="", precision="fp64")
        if ("write_exact", asked) not in self._files:
            tell("float64")
        made = self._written("write_exact", asked, job)
        return {"reason": f"nothing computes it in float64 ({made['reason']})"} if "reason" in made else made

    def _written(self, kind: str, asked: Workload, job: Mapping[str, Any]) -> dict[str, str]:
        """The `file` of this kind, written once by the first lane that can, and that `lane`; or the `reason` for none.

        The workload has no lane.
        """
        if (kind, asked) not in self._files:
            file, reasons = str(self._temporary(f"{kind}-{len(self._files)}.npz")), []
            for writing in self._writers(asked):
                if (failure := self._write(writing, {**job, kind: file})) is None:
                    self._files[kind, asked] = {"file": file, "lane": writing.lane}
                    break
                reasons.append(f"{writing.lane}: {failure.message}")
            else:
                self._files[kind, asked] = {"reason": "; ".join(reasons) or "the model has no network"}
        return self._files[kind, asked]

    def _writers(self, asked: Workload) -> Iterator[Workload]:
        """A workload in each lane to ask for a file: in the first of each framework, the reference's before all others.

        A lane that rounds its weights is never asked.
        """
        known, exact = self._project.models[asked.model], [lane for lane in LANES.values() if not lane.quantised]
        for framework in dict.fromkeys((known.reference, *known.networks, *networks(asked.model))):
            for lane in itertools.islice((lane for lane in exact if lane.framework == framework), 1):
                yield dataclasses.replace(asked, lane=lane.name)

    def _write(self, workload: Workload, job: Mapping[str, Any]) -> Failure | None:
        """Let a workload's lane write a file that other measurements read; return the failure if it did not."""
        model = complete(self._project.models[workload.model], workload.lane)
        own = {**job, "workload": workload.to_json(), "model": model.to_json()}
        # A worker that hangs while it ends would keep this job waiting until its deadline.
        self._settle()
        return self._served(workload, own, lambda stage: None).failure

    def _together(self, workload: Workload, job: dict[str, Any], tell: Callable[[str], None]) -> Measurement:
        """Measure a workload in one process per device."""
        if not (together := addition("ranks")):
            sentence = "a process per device is measured by the extension `cluster`, which is not here"
            return Measurement(workload, failure=Failure("unavailable", sentence))
        lane = LANES[workload.lane]
        where = self._python(lane), self._variables(workload), self._cpus(workload.devices)
        measurement: Measurement = resolve(together).launch(workload, job, *where, tell)
        return measurement

    def _cpus(self, devices: int) -> tuple[int, ...]:
        """The CPUs of ranks: on several GPUs those near any of them."""
        return cpus_near(nvml.visible(devices)) if self._device == "gpu" else self._machine.cpus

    def job(self, workload: Workload, protocol: Protocol) -> dict[str, Any]:
        """The message that tells a worker about a workload, as JSON primitives."""
        return {
            "workload": workload.to_json(),
            "model": complete(self._project.models[workload.model], workload.lane).to_json(),
            "path": [str(folder) for folder in self._project.path],
            "root": str(self._project.root),
            "proofs": str(self._project.root / PROOFS),
            # The proof must run under the interpreter whose versions are measured.
            "python": self._pythons.get(LANES[workload.lane].framework),
            "proved_as": proved_as(self._project.models[workload.model], workload.lane).name,
            "protocol": protocol.to_json(),
            "facts": machine_facts.asked(self._facts or self._temporary("facts"), self._run, self._machine),
            # On a CPU compiling takes a small part of a run.
            "keep": self._keep and self._device == "gpu",
            # The lane that measures the harness's own cost is compared with no other, so it need not wait.
            "patience": 0.0 if LANES[workload.lane].internal else self._patience,
            "stays": self._stays(workload),
            "beside": [server.worker for server in self.staying(workload.of_all).values()],
            # As the user set it: the worker's own variable names only the GPU that is measured.
            "user": {name: os.environ[name] for name in ("CUDA_VISIBLE_DEVICES",) if name in os.environ},
        }

    def _rungs(self, lane: Lane) -> Iterator[Flags]:
        return milder(lane, self._python(lane), environment(os.environ, self._machine.threads, self._device, lane))

    def _temporary(self, name: str) -> Path:
        self._scratch = self._scratch or Scratch()
        return self._scratch.path / name

    def _python(self, lane: Lane) -> str:
        return self._pythons.get(lane.framework, sys.executable)

    def _variables(self, workload: Workload) -> dict[str, str]:
        lane, flags = LANES[workload.lane], self._ladder.flags(workload)[0]
        return added(environment(os.environ, self._machine.threads, self._device, lane, workload.devices), flags)

    def close(self) -> None:
        """End every server, even if Ctrl-C interrupts the end of one of them."""
        with ExitStack() as stack:
            if self._scratch:
                stack.callback(self._scratch.close)
            for server in self._servers.values():
                stack.callback(server.close)
