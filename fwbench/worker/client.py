"""pytest's side of the process boundary: starts a server per lane, gives it jobs and survives their faults."""

import contextlib
import dataclasses
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from fwbench.machine import Machine, nvml
from fwbench.machine.ceilings import Kept, Kind, kind
from fwbench.machine.load import wait_for_quiet
from fwbench.models import CATALOG
from fwbench.models.project import Project, complete
from fwbench.record.lanes import LANES, Lane
from fwbench.record.measurement import CEILING, FALLBACK, WAITING, Failure, Measurement
from fwbench.record.reading import PROOFS
from fwbench.record.workload import Workload
from fwbench.suite.profiles import Protocol
from fwbench.worker.channel import Channel, GarbledError, Stacks, crashed
from fwbench.worker.launching import Launched, measurement_of
from fwbench.worker.memory import advised, unfitting, watched
from fwbench.worker.ranks import COORDINATOR, DEADLINE, JOB, KEY, free_port
from fwbench.worker.scratch import Scratch

# The folder of this fwbench.
PACKAGE = Path(__file__).resolve().parents[1]
_START = PACKAGE / "worker" / "start.py"
_SERVER = PACKAGE / "worker" / "__main__.py"
_LAUNCH = PACKAGE / "worker" / "launch.py"
RANK = PACKAGE / "worker" / "rank.py"

# Seconds of silence after which a starting server has failed: importing a framework from a cold disk takes long.
START_DEADLINE = 180.0

# Seconds for a worker to free its memory and end: after its record has arrived, and after it was killed.
END_DEADLINE = 30.0
KILL_DEADLINE = 10.0

# glibc's defaults map and unmap large blocks at every call. That costs thousands of page faults and a third of the
# time, and is the largest source of differences between processes. None is set if the user has set any.
_STABLE_ALLOCATOR = {
    # By default each thread has an arena of its own, which holds no block of 64 MiB; XLA computes on such a thread.
    "MALLOC_ARENA_MAX": "1",
    # MALLOC_MMAP_THRESHOLD_ will not do: glibc before 2.35 refuses more than 32 MiB and then maps all above 128 KiB.
    "MALLOC_MMAP_MAX_": "0",
    # More than any machine has: the heap returns nothing. The memory pass trims it itself.
    "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
}

# The stages before a lane's compiler gets its first program; None stands for a process that has begun no stage.
_UNCOMPILED = (None, "join", "data", "build")

# A lane's fallback flags: the environment variables, and what to add to each.
Flags = tuple[tuple[str, str], ...]


class Workers:
    """The servers of a run: one for each lane and number of devices, started when first needed.

    Lanes share no server, as what one lane preloads must not count as another lane's memory.

    Args:
        machine: gives the CPUs and the thread count, the same for every lane.
        device: `cpu` or `gpu`.
        pythons: interpreter of a framework's workers; default: this one.
        project: whose models are measured.
        fit_batch: whether a batch that does not fit into memory is halved until it does.
        patience: seconds that measurements may wait in all for other load to end.
        ceilings: those that earlier runs found on this machine; this run adds its own. None: none are kept.
        compiled: a folder that collects what compilers make, for processes that run the same programs later; each
            measurement still compiles for itself. None: nothing is collected.
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
        ceilings: Kept | None = None,
        compiled: Path | None = None,
    ) -> None:
        self._machine = machine
        self._project = project
        self._device = device
        self._pythons = pythons
        self._fit_batch = fit_batch
        self._servers: dict[str, Server] = {}
        self._compiled = compiled
        self._patience = patience
        # Kinds whose ceilings are on a record of this run; the ceilings that earlier runs have kept.
        self._told: set[Kind] = set()
        self._ceilings = ceilings
        # Kinds for which earlier runs kept no ceilings that still hold, so that this run measures them.
        self._unknown: set[Kind] = set()
        # The fallback flags that each lane's interpreter knows; those that a workload needed, with the reason.
        self._ladders: dict[str, list[Flags]] = {}
        self._needed: dict[Workload, tuple[Flags, str]] = {}
        # The batch sizes of each workload that did not fit into memory.
        self._unfit: dict[Workload, tuple[int, ...]] = {}
        # Files with models' initial values, by a workload with only the fields that these values depend on.
        self._starts: dict[Workload, str | None] = {}
        self._scratch: Scratch | None = None

    def measure(self, workload: Workload, protocol: Protocol, tell: Callable[[str], None]) -> Measurement:
        """Measure in a fresh process. Whatever goes wrong in it is a failure of this workload alone.

        Where a lane crashes or its compiler fails on a GPU, it is run again with ever more of its fallback flags until
        it no longer does: the record then says in `after_crash` how the first attempt failed and what was changed.
        Where memory runs out and the batch may be halved, a smaller workload than was asked for is measured;
        `unfit` names the batches that did not fit.

        A workload's later processes begin with the flags and batch that an earlier process needed: others would make no
        replicates. Other workloads begin without flags: these slow programs, and a crash says nothing about the next.
        """
        unfit = self._unfit.get(workload, ())
        while True:
            tried = workload.fitted(unfit)
            found = self._attempt(tried, protocol, tell)
            self._patience = max(0.0, self._patience - found.stages.get(WAITING, 0.0))
            if found.failure is None or found.failure.kind != "out_of_memory":
                return dataclasses.replace(found, unfit=unfit)
            if not self._fit_batch:
                return dataclasses.replace(found, failure=advised(found.failure, tried))
            unfit = (*unfit, tried.batch_size)
            smaller = tried.halved()
            if smaller is None:
                failure = unfitting(found.failure, unfit)
                return dataclasses.replace(found, workload=workload, unfit=unfit, failure=failure)
            self._unfit[workload] = unfit
            tell(f"out of memory, again with batch {smaller.batch_size}")

    @property
    def patient(self) -> bool:
        """Whether measurements may still wait until other load ends."""
        return self._patience > 0

    def become_quiet(self) -> bool:
        """Wait, while patience lasts, until other processes leave the CPUs alone; return whether they do."""
        begun = time.monotonic()
        quiet = wait_for_quiet(self._patience)
        self._patience = max(0.0, self._patience - (time.monotonic() - begun))
        return quiet

    def _attempt(self, workload: Workload, protocol: Protocol, tell: Callable[[str], None]) -> Measurement:
        """Measure a workload without changing its batch, with as many fallback flags as it needs."""
        lane, job = LANES[workload.lane], self.job(workload, protocol)
        job["start"] = self._start(workload, job)
        needed, why = self._needed.get(workload, ((), ""))
        first: Measurement | None = None
        if not needed:
            first = self._plainly(lane, job, workload, tell)
            if self._device != "gpu" or first.failure is None or not _crashed(first.failure):
                return first
            why = first.failure.message
        found, rungs = first, [flags for flags in self._ladder(lane) if len(flags) >= len(needed)]
        for flags in rungs:
            tell(f"again with {stated(flags)}")
            variables = added(self._variables(lane, workload.devices), flags)
            server = Server(self._python(lane), lane, self._machine.cpus, variables)
            with contextlib.closing(server):
                found = watched(functools.partial(server.measure, job, workload, tell))
            if found.failure is None or not _crashed(found.failure):
                self._needed[workload] = flags, why
                return dataclasses.replace(
                    found,
                    settings={**found.settings, FALLBACK: stated(flags)},
                    after_crash=f"{why}, so {again(flags)}",
                )
        found = first or found
        assert found is not None
        assert found.failure is not None
        if not rungs:
            return found
        sentence = f"{found.failure.message}; with {stated(rungs[-1])}, too"
        return dataclasses.replace(found, failure=dataclasses.replace(found.failure, message=sentence))

    def _plainly(self, lane: Lane, job: dict[str, Any], workload: Workload, tell: Callable[[str], None]) -> Measurement:
        """Measure a workload in its lane's server, or in one process per device."""
        begun = time.monotonic()
        self._settle()
        waited = time.monotonic() - begun
        if lane.in_ranks(workload.devices, self._device):
            return self._together(lane, job, workload, tell)
        server = self._server(lane, workload.devices)
        found = watched(functools.partial(server.measure, job, workload, tell, waited))
        found = self._with_ceilings(found)
        self.told(found)
        return found

    def _settle(self) -> None:
        """Wait until the last job's worker has ended, whichever server started it."""
        for running in self._servers.values():
            running.settle()

    def _server(self, lane: Lane, devices: int = 1) -> "Server":
        """The lane's server for workloads over so many devices."""
        name = lane.name if devices == 1 else f"{lane.name} over {devices} devices"
        server = self._servers.get(name)
        if server is None or not server.alive:
            variables = self._variables(lane, devices)
            server = Server(self._python(lane), lane, self._machine.cpus, variables, self._compiled)
            self._servers[name] = server
        return server

    def _start(self, workload: Workload, job: Mapping[str, Any]) -> str | None:
        """The file with the initial values of a user's network, from which every lane starts; None if there is none.

        The reference writes the file; if it cannot, the first other framework of the model that can. Not under Slurm:
        there the ranks of a workload run on several hosts, which may not share a folder.
        """
        model = self._project.models[workload.model]
        if not model.networks or model.name in CATALOG or workload.weights != "drawn" or allocated(os.environ):
            return None
        start = Workload(model.reference, workload.model, seed=workload.seed, axes=workload.axes)
        if start not in self._starts:
            self._scratch = self._scratch or Scratch()
            file = str(self._scratch.path / f"initial-{len(self._starts)}.npz")
            candidates = (
                next((lane for lane in LANES.values() if lane.framework == framework), None)
                for framework in dict.fromkeys((model.reference, *model.networks))
            )
            written = (self._wrote(lane, start, {**job, "save": file}) for lane in candidates if lane)
            self._starts[start] = file if any(written) else None
        return self._starts[start]

    def _wrote(self, lane: Lane, start: Workload, job: Mapping[str, Any]) -> bool:
        """Let a lane write its network's initial values; return whether it did."""
        workload = dataclasses.replace(start, lane=lane.name)
        own = {**job, "workload": workload.to_json()}
        # A worker that hangs while it ends would keep this job waiting until its deadline.
        self._settle()
        return self._server(lane).measure(own, workload, lambda stage: None).failure is None

    def _together(
        self, lane: Lane, job: dict[str, Any], workload: Workload, tell: Callable[[str], None]
    ) -> Measurement:
        """Measure a workload in one process per device; the lane's launcher, or srun, starts them."""
        python, size = self._python(lane), workload.devices
        slurm = allocated(os.environ)
        config = {
            "launcher": "srun" if slurm else lane.launcher,
            "command": command(python, RANK),
            "size": size,
            "cpus": () if slurm else self._machine.cpus,
        }
        job = {**job, "machine": False, "lane": lane.to_json(), "joining": DEADLINE, "threads": slurm}
        variables = {KEY: uuid.uuid4().hex, **self._variables(lane, size), JOB: json.dumps(job)}
        if COORDINATOR not in variables and not slurm:
            # gloo would look up this host's name and then listen on all network interfaces.
            nearby = {"GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else {}
            variables = {**nearby, **variables, COORDINATOR: f"127.0.0.1:{free_port()}"}
        try:
            launched = Launched(command(python, _LAUNCH, json.dumps(config)), variables)
        except OSError as error:
            failure = Failure("crashed", f"the ranks cannot be started with {python} ({error})")
            return Measurement(workload, failure=failure)
        limit = job["protocol"]["deadline"] + job["patience"]
        return watched(functools.partial(launched.measure, workload, limit, tell))

    def _ladder(self, lane: Lane) -> list[Flags]:
        """Combinations of a lane's fallback flags; whether its framework knows them is tried once in a run."""
        if lane.name not in self._ladders:
            self._ladders[lane.name] = list(milder(lane, self._python(lane), self._variables(lane)))
        return self._ladders[lane.name]

    def told(self, measurement: Measurement) -> None:
        """Note that a kind's ceilings are measured, if this measurement has them; no later one repeats that."""
        if CEILING in measurement.stages:
            self._told.add(kind(measurement.workload))

    def _with_ceilings(self, found: Measurement) -> Measurement:
        """Give a kind's first measurement the ceilings of earlier runs, or keep those that it has measured."""
        if self._ceilings is None or "throughput" not in found.metrics or kind(found.workload) in self._told:
            return found
        if CEILING in found.stages:
            self._ceilings.keep(found)
            return found
        if not (known := self._ceilings.of(found)):
            self._unknown.add(kind(found.workload))
            return found
        self._told.add(kind(found.workload))
        return dataclasses.replace(found, metrics={**found.metrics, **known})

    def _tells(self, workload: Workload) -> bool:
        """Whether this measurement must find the ceilings, as neither this run nor an earlier one has them."""
        if kind(workload) in self._told:
            return False
        return self._ceilings is None or kind(workload) in self._unknown or not self._ceilings.has(workload)

    def job(self, workload: Workload, protocol: Protocol) -> dict[str, Any]:
        """The message that tells a worker about a workload, as JSON primitives."""
        return {
            "workload": workload.to_json(),
            "model": complete(self._project.models[workload.model]).to_json(),
            "path": [str(folder) for folder in self._project.path],
            "proofs": str(self._project.root / PROOFS),
            # The proof must run under the interpreter whose versions are measured.
            "python": self._pythons.get(LANES[workload.lane].framework),
            "protocol": protocol.to_json(),
            "machine": self._tells(workload),
            # Nobody compares the lane that prices the harness, so it need not wait.
            "patience": 0.0 if LANES[workload.lane].internal else self._patience,
            # As the user set it: the worker's own variable names only the GPU that is measured.
            "user": {name: os.environ[name] for name in ("CUDA_VISIBLE_DEVICES",) if name in os.environ},
        }

    def _python(self, lane: Lane) -> str:
        return self._pythons.get(lane.framework, sys.executable)

    def _variables(self, lane: Lane, devices: int = 1) -> dict[str, str]:
        return environment(os.environ, self._machine.threads, self._device, lane, devices)

    def close(self) -> None:
        """End every server, even if Ctrl-C interrupts the end of one of them."""
        with ExitStack() as stack:
            if self._scratch:
                stack.callback(self._scratch.close)
            for server in self._servers.values():
                stack.callback(server.close)


class Server:
    """A fork server, which takes one job after another.

    Args:
        compiled: a folder that collects what each job's compilers make; None: the job removes it.

    Raises:
        OSError: the interpreter cannot be started.
    """

    def __init__(
        self,
        python: str,
        lane: Lane,
        cpus: tuple[int, ...],
        environment: Mapping[str, str],
        compiled: Path | None = None,
    ) -> None:
        self._scratch = Scratch()
        folder = str(self._scratch.path)
        self._compiled = compiled
        # Outside of the jobs' own folder, as the server empties that when a job ends, perhaps before this is collected.
        self._caches = Scratch() if compiled else None
        if self._caches:
            environment = {**environment, **lane.sharing, **lane.cached(self._caches.path / "compiled")}
        config = json.dumps(configuration(lane, cpus, folder))
        try:
            self._channel = Channel(command(python, _SERVER, config), {**environment, "TMPDIR": folder})
        except OSError:
            self._remove()
            raise
        self._python = python
        self._ready = False
        # The last job's worker, and whether it still runs although its record has arrived.
        self._worker = 0
        self._ending = False

    @property
    def alive(self) -> bool:
        """Whether the server can take another job."""
        return self._channel.alive

    def measure(
        self, job: Mapping[str, Any], workload: Workload, tell: Callable[[str], None], waited: float = 0.0
    ) -> Measurement:
        """Run a workload's job until its record arrives; kill it at the protocol's deadline.

        Args:
            waited: seconds that this job has waited for the previous job's worker to end; they count as overhead.
        """
        try:
            if not self._ready:
                failure = self._unready()
                if failure:
                    self.close()
                    return Measurement(workload, failure=failure)
                self._ready = True
            measurement = self._converse({**job, "caches": self._caches is not None}, workload, tell, waited)
            if self._caches and self._compiled:
                made = self._caches.path / "compiled"
                if measurement.failure is None:
                    _move(made, self._compiled)
                # The next job's compilers must find empty caches.
                shutil.rmtree(made, ignore_errors=True)
            return measurement
        except BaseException:
            # Ctrl-C or a bug of fwbench: the worker must not go on by itself.
            self.close()
            raise

    def _unready(self) -> Failure | None:
        """Wait until the server can take a job; return the reason if it cannot."""
        try:
            message = self._channel.receive(time.monotonic() + START_DEADLINE)
        except TimeoutError:
            said, stacks = self._channel.said(), self._channel.stacks()
            sentence = f"no worker could be started with {self._python} within {START_DEADLINE:g} s"
            return Failure("timed_out", f"{sentence}; it was killed{stacks.where}", detail=_detail(said, stacks))
        except GarbledError:
            message = None
        if message is not None and "ready" in message:
            return None
        return Failure("crashed", f"no worker could be started with {self._python}", detail=self._channel.said())

    def settle(self) -> None:
        """Wait until the last job's worker, which ends while pytest goes on, has freed its memory."""
        if self._ending and not self._exited(END_DEADLINE):
            # The worker does not end. Its record has arrived, so killing it loses nothing.
            self._kill()
            if not self._exited(KILL_DEADLINE):
                self.close()
        if not self._channel.alive:
            self.close()

    def _exited(self, patience: float) -> bool:
        """Whether the worker, or the server with it, ends within so many seconds."""
        deadline = time.monotonic() + patience
        with suppress(TimeoutError, GarbledError):
            while (message := self._channel.receive(deadline)) is not None and "exited" not in message:
                pass
            if message is None:
                self._channel.wait()
            self._ending = False
        return not self._ending

    def _converse(
        self, job: Mapping[str, Any], workload: Workload, tell: Callable[[str], None], waited: float
    ) -> Measurement:
        limit = job["protocol"]["deadline"] + job["patience"]
        stderr_start = self._channel.position()
        asked = time.monotonic()
        deadline = asked + limit
        self._channel.send(job)
        self._worker = 0
        started: float | None = None
        stage: str | None = None
        # The reason for which the worker was killed.
        failure: Failure | None = None
        exit_code: int | None = None
        while exit_code is None:
            try:
                message = self._channel.receive(deadline)
                if message is not None and "measurement" in message and not failure:
                    measurement = measurement_of(message["measurement"])
                    self._ending = True
                    return dataclasses.replace(
                        measurement,
                        overhead_s=waited + time.monotonic() - asked - sum(measurement.stages.values()),
                        start_s=None if started is None else started - asked,
                    )
            except TimeoutError:
                if failure:
                    # The server has not reported the worker's death either.
                    self.close()
                    break
                failure = self._late(limit, stage, stderr_start)
                self._kill()
                deadline = time.monotonic() + KILL_DEADLINE
                continue
            except GarbledError as error:
                if not failure:
                    said = f"what the worker sent is no message: {error}; it was killed"
                    failure = Failure("crashed", said, stage, self._channel.said(stderr_start))
                    self._kill()
                    deadline = time.monotonic() + KILL_DEADLINE
                continue
            if message is None:
                exit_code = self._channel.wait()
            elif "started" in message:
                self._worker, started = message["started"], time.monotonic()
            elif "stage" in message:
                stage = message["stage"]
                tell(message["stage"])
            elif "exited" in message:
                exit_code = message["exited"]
        # If the worker died within a message, its exit says more than the torn message.
        died = exit_code not in (None, 0, -signal.SIGKILL) and not (failure and failure.kind == "timed_out")
        if failure is None or died:
            assert exit_code is not None
            failure = crashed(exit_code, stage, self._channel.said(stderr_start))
        if not self._channel.alive:
            # A killed server could not end what its worker had started.
            self.close()
        return Measurement(workload, failure=failure)

    def _late(self, limit: float, stage: str | None, start: int) -> Failure:
        """Describe a worker that has not answered in time."""
        said, stacks = self._channel.said(start), self._channel.stacks()
        during = f"during {stage}" if stage else "before its first stage"
        sentence = f"no result within the deadline of {limit:g} s; the worker was killed {during}{stacks.where}"
        return Failure("timed_out", sentence, stage, _detail(said, stacks))

    def _kill(self) -> None:
        """Kill the worker and its helpers, or the server if no worker is known yet."""
        if not self._worker:
            self._channel.kill()
            return
        with suppress(ProcessLookupError):
            os.killpg(self._worker, signal.SIGKILL)

    def close(self) -> None:
        """End the server and, by closing its pipe, the job that may still run; a second call does nothing."""
        try:
            # Before it is ready, a server has no job to end, and does not read its pipe.
            if self._ready:
                self._channel.close()
            else:
                self._channel.close(patience=0.0)
        finally:
            self._ending = False
            self._remove()

    def _remove(self) -> None:
        self._scratch.close()
        if self._caches:
            self._caches.close()


def _move(made: Path, into: Path) -> None:
    """Move all files of a folder to the same places in another folder."""
    for path in [path for path in made.rglob("*") if path.is_file()]:
        target = into / path.relative_to(made)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(path, target)


def _detail(said: str, stacks: Stacks) -> str:
    return "\n".join(filter(None, (said.strip(), stacks.text)))


def _crashed(failure: Failure) -> bool:
    """Whether the compiler failed or the process died; XLA dies if autotuning meets an illegal address.

    Compiler flags cannot help a process that died before it compiled anything.
    """
    return failure.compiler or (failure.kind == "crashed" and failure.stage not in _UNCOMPILED)


def milder(lane: Lane, python: str, variables: Mapping[str, str]) -> Iterator[Flags]:
    """Combinations of a lane's fallback flags, each longer than the last, without flags unknown to its framework.

    Args:
        variables: of the lane's processes.
    """
    taken: Flags = ()
    for flag in lane.fallback:
        if _known(lane, python, added(variables, (flag,))):
            taken = (*taken, flag)
            yield taken


def added(variables: Mapping[str, str], flags: Flags) -> dict[str, str]:
    """Environment variables with fallback flags added."""
    found = dict(variables)
    for name, value in flags:
        found[name] = f"{found.get(name, '')} {value}".strip()
    return found


def stated(flags: Flags) -> str:
    """Fallback flags as a shell would set them, `NAME=value value`."""
    return " ".join(f"{name}={value}" for name, value in added({}, flags).items())


def again(flags: Flags) -> str:
    """Half a sentence about a second attempt."""
    return f"it was run again with {stated(flags)}"


def _known(lane: Lane, python: str, variables: Mapping[str, str]) -> bool:
    try:
        done = subprocess.run(
            [python, "-P", "-c", lane.trial], env=dict(variables), capture_output=True, timeout=START_DEADLINE
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def command(python: str, script: Path, *arguments: str, package: Path = PACKAGE) -> list[str]:
    """The command that runs a script under an interpreter, with this `fwbench` and that interpreter's packages."""
    return [python, "-P", str(_START), str(package), str(script), *arguments]


def configuration(lane: Lane, cpus: Sequence[int], scratch: str) -> dict[str, Any]:
    """The configuration that starts a lane's server: imports, CPUs, and its folder for temporary files."""
    return {
        "lane": lane.to_json(),
        "cpus": cpus,
        # Forking a process that has loaded frameworks is safe only on Linux: elsewhere each job gets a new server.
        "fork": sys.platform == "linux",
        "scratch": scratch,
    }


def environment(
    base: Mapping[str, str], threads: int, device: str, lane: Lane, devices: int | None = 1
) -> dict[str, str]:
    """The environment of a lane's worker: one thread count for every library, a stable allocator, the lane's own.

    Args:
        threads: shared by all of a workload's processes.
        devices: of this host that the workload uses; None: a launcher has shown this process its own.
    """
    variables = dict(base)
    if not any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in base):
        variables |= _STABLE_ALLOCATOR
    if devices and lane.in_ranks(devices, device):
        threads = max(1, threads // devices)
    variables |= {
        "OMP_NUM_THREADS": str(threads),
        # NumPy only prepares batches; its thread pool would be threads in a process that forks.
        "OPENBLAS_NUM_THREADS": "1",
    }
    if device == "gpu" and devices and (gpus := nvml.visible(devices)):
        # CUDA and NVML number GPUs differently, and a framework may open every GPU that it sees.
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(gpu.uuid for gpu in gpus)
    return variables | lane.variables(threads, device)


def allocated(environment: Mapping[str, str]) -> bool:
    """Whether Slurm has given this process several nodes, over which srun spreads the ranks."""
    nodes = environment.get("SLURM_JOB_NUM_NODES", "1")
    return "SLURM_JOB_ID" in environment and nodes.isdecimal() and int(nodes) > 1
