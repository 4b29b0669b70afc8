"""The measured side: one job, from a workload to its measurement or failure."""

import dataclasses
import gc
import hashlib
import os
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from fwbench import frameworks
from fwbench.data import Data, open_data
from fwbench.data import digest as batches_digest
from fwbench.frameworks.contract import CompileTimes, Framework, Program, Ranks, Trainer
from fwbench.frameworks.faults import first_line, memory_asked
from fwbench.frameworks.precision import check, operands
from fwbench.frameworks.training import HORIZON
from fwbench.machine import nvml, versions
from fwbench.machine.load import OtherLoad, wait_for_quiet
from fwbench.machine.watch import Watch
from fwbench.meters.ceilings import ceilings
from fwbench.meters.energy import Counter, SummedCounter, counter, energy, period
from fwbench.meters.epochs import Epochs, fitting
from fwbench.meters.flops import PASSES, model_flops
from fwbench.meters.heap import noted, settle
from fwbench.meters.imported import also_imported, with_others
from fwbench.meters.latency import Clock, drift, latencies, percentiles
from fwbench.meters.memory import memory, process_device_memories
from fwbench.meters.sketching import of_inference, of_training
from fwbench.meters.steady import Start
from fwbench.meters.throughput import queue_depth, throughput
from fwbench.models import CATALOG, Model, ModelError
from fwbench.models.importing import described
from fwbench.models.weights import Shape, Weights, canonical, digest
from fwbench.parity.sources import sources
from fwbench.parity.store import stamp
from fwbench.record.fingerprint import Fingerprint
from fwbench.record.lanes import RECORDED, Lane
from fwbench.record.measurement import (
    ALSO_IMPORTED,
    BEFORE,
    CEILING,
    WAITING,
    Failure,
    Measurement,
    Metric,
    Rank,
    unavailable,
)
from fwbench.record.workload import HARNESS_MODES, Workload
from fwbench.suite.profiles import Protocol
from fwbench.worker.initial import save
from fwbench.worker.memory import told as memory_told
from fwbench.worker.ranks import LostError
from fwbench.worker.together import ELSEWHERE

# The stages of inference and of single training steps; `fit` has stages of its own after the probe.
STAGES = ("build", "compile", "probe", "warm-up", "latency", "throughput", "memory", "energy", "check", "program")

# Calls after the warm-up that show whether they compile anything, when only programs are examined.
_STEADY_CALLS = 2

# Training batches whose digest is recorded, which proves that two lanes saw the same data.
_DIGESTED = 2


def prepare(lane: Lane) -> None:
    """Read what every job of a lane needs: versions, imports of the suite's own networks, and modules.

    The server calls this once, and its workers inherit the result.
    """
    # NumPy imports a package at its first percentile, which takes 20 ms.
    np.percentile((0.0, 1.0), 50)
    _versions(lane)
    for model in CATALOG.values():
        stamp(model, lane.framework, None)


def run(lane: Lane, job: Mapping[str, Any], send: Callable[[Mapping[str, Any]], None]) -> None:
    """Run a lane's job and send its result; never raises, whatever the measured code does."""
    send({"started": os.getpid()})
    if "save" in job:
        measurement = save(lane, job)
    else:
        measurement, _ = measure(lane, job, lambda stage: send({"stage": stage}))
    send({"measurement": measurement.to_json()})


def measure(
    lane: Lane, job: Mapping[str, Any], tell: Callable[[str], None], ranks: Ranks | None = None, began: float = 0.0
) -> tuple[Measurement, bool]:
    """Run a lane's job in this process.

    Args:
        ranks, began: as `Measuring` has them.

    Returns:
        The measurement, and whether all ranks know of its failure.

    Raises:
        LostError: another rank is gone.
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
        machine=job["machine"],
        patience=job["patience"],
        ranks=ranks,
        began=began,
        start=job.get("start"),
    )
    # A compiler's helper may still write there, so that the folder cannot be removed; the measurement is done by then.
    with tempfile.TemporaryDirectory(prefix="fwbench-", ignore_cleanup_errors=True) as folder:
        # Empty compiler caches, as compile time means a cold compiler. The server may have provided them.
        if not job.get("caches"):
            os.environ.update(lane.cached(Path(folder)))
        measurement = measuring.run()
    # Looked up here, as the proof must be of the sources and versions that this process sees.
    proof = stamp(model, lane.framework, Path(job["proofs"]))
    if python := job.get("python"):
        proof["python"] = python
    measurement = dataclasses.replace(
        measurement, parity={**measurement.parity, "proof": proof}, settings={**measurement.settings, **job["user"]}
    )
    return measurement, measuring.agreed


class Measuring:
    """Runs the protocol's stages in order, times each and announces it.

    Args:
        machine: whether to measure also what tells of the machine rather than of the workload: once for each lane.
        patience: seconds that it may wait for other load to end before it times anything.
        ranks: the processes that measure together; None: this one alone.
        began: when this process was started, by `clock`.
        start: the file with the initial values of the reference's network; None: weights are drawn by rule.

    Attributes:
        agreed: whether a failure is known to all ranks.
    """

    def __init__(
        self,
        workload: Workload,
        lane: Lane,
        model: Model,
        protocol: Protocol,
        tell: Callable[[str], None],
        clock: Clock = time.perf_counter,
        machine: bool = False,
        patience: float = 0.0,
        ranks: Ranks | None = None,
        began: float = 0.0,
        start: str | None = None,
    ) -> None:
        self._start = start
        self.workload = workload
        self.lane = lane
        self._ranks = ranks
        self._began = began
        self.agreed = ranks is None
        self.model = model
        self.protocol = protocol
        self._tell = tell
        self._clock = clock
        self._machine = machine
        self._patience = patience
        self._before = OtherLoad() if patience > 0 else None
        self.stages: dict[str, float] = {}
        self.metrics: dict[str, Metric] = {}
        self.samples: list[float] = []
        self.settings: dict[str, Any] = {}
        self.parity: dict[str, Any] = {}
        self.training: dict[str, Any] = {}
        self.program: Fingerprint | None = None
        self._compilations: dict[str, int] = {}
        self._shapes: Mapping[str, Shape] = {}
        self._gpu = own_gpu(ranks)
        # A process may compute on several GPUs.
        self._gpus = workload.devices if ranks is None and workload.device == "gpu" else 1
        self._watches = [
            Watch(nvml.find(number=self._gpu + index) if workload.device == "gpu" else "the program runs on the CPU")
            for index in range(self._gpus)
        ]
        # The value of each GPU alone, by metric.
        self._of_devices: dict[str, list[float]] = {}

    def run(self) -> Measurement:
        """Measure; every exception of the measured code becomes a failure of its kind."""
        try:
            framework = frameworks.load(self.lane.adapter)
        except ImportError as error:
            failure: Failure | None = Failure(
                "unavailable", f"{self.lane.name} cannot be imported ({error}); install it there"
            )
        except Exception as error:
            sentence = f"the adapter of {self.lane.name} cannot be loaded: {described(error)}"
            failure = Failure("error", sentence, detail=traceback.format_exc())
        else:
            before = frozenset(sys.modules)
            failure = self._attempt(framework)
            if others := also_imported(self.lane, before, sys.modules):
                self.settings = {**self.settings, ALSO_IMPORTED: others}
                self.metrics = with_others(self.metrics, others)
        return Measurement(
            workload=self.workload,
            samples=tuple(self.samples) if failure is None else (),
            metrics=self.metrics,
            protocol=self.protocol.to_json(),
            settings=self.settings,
            parity=self.parity,
            training=self.training,
            program=self.program,
            accelerator=tuple(moment for watch in self._watches for moment in watch.moments),
            ranks=self._devices() if failure is None else (),
            stages=self.stages,
            versions=_versions(self.lane),
            failure=failure,
        )

    def _attempt(self, framework: Framework) -> Failure | None:
        try:
            return self._measure(framework)
        except (ModelError, _ToldError) as error:
            # The user's own mistake, in one sentence.
            self.agreed = self.agreed or isinstance(error, _DisagreementError)
            return Failure("error", str(error), stage=next(reversed(self.stages), None))
        except LostError:
            # A lost rank has reported the reason, or its launcher will.
            raise
        except Exception as error:
            lacking, said = framework.is_out_of_memory(error), framework.said(error)
            return Failure(
                "out_of_memory" if lacking else "error",
                memory_told(said, memory_asked(error)) if lacking else said,
                stage=next(reversed(self.stages), None),
                detail=traceback.format_exc(),
                compiler=framework.is_compilers_fault(error),
            )

    def _measure(self, framework: Framework) -> Failure | None:
        workload = self.workload
        # JAX opens the device when asked whether it can run, PyTorch's ranks when they join.
        self._note(BEFORE)
        if self._ranks:
            with self._stage("join"):
                self._join(framework, self._ranks)
        with self._stage("build"):
            # Opens the device, and may build the network once.
            reason = framework.unavailable(workload, self.model)
            if self._ranks:
                # All ranks must meet here, or the others would wait for ever.
                reason = next(filter(None, self._ranks.gather(reason)), None)
                self.agreed = bool(reason)
            if reason:
                return Failure("unavailable", reason)
            if workload.mode != "fit":
                program = self._build(framework, HORIZON)
        if workload.mode == "fit":
            return self._measure_epochs(framework)
        if workload.target:
            return self._aim(program, workload.target)
        with program.session():
            self._measure_program(framework, program)
        return None

    def _join(self, framework: Framework, ranks: Ranks) -> None:
        """Join the other ranks, and see that they have the same software and sources.

        Raises:
            _DisagreementError: they have not.
        """
        paths = [self.model.networks.get(self.lane.framework, "")]
        if isinstance(self.model.loss, dict):
            paths.append(self.model.loss.get(self.lane.framework, ""))
        own = sources(path for path in paths if ":" in path).files
        facts = {
            "Python": ".".join(map(str, sys.version_info[:3])),
            **_versions(self.lane),
            "fwbench's sources": _sources(),
            **{f"the source of {module}": digest for module, digest in own.items()},
        }
        self._same(facts)
        self._apart(ranks)
        try:
            framework.join(ranks)
        except OSError as error:
            raise _ToldError(str(error)) from error
        # In all ranks, before anything waits for a device's first use.
        ranks.agree(0.0)
        self.metrics["join_time"] = Metric(
            self._clock() - self._began, "from the start of the process, imports of the framework included"
        )

    def _apart(self, ranks: Ranks) -> None:
        """See that no two ranks have the same GPU.

        Raises:
            _DisagreementError: two have the same; the sentence says which.
        """
        gpu = nvml.find(number=self._gpu) if self.workload.device == "gpu" else None
        owners: dict[str, int] = {}
        for rank, uuid in enumerate(ranks.gather(gpu.uuid if isinstance(gpu, nvml.Gpu) else None)):
            if uuid is not None and owners.setdefault(uuid, rank) != rank:
                raise _DisagreementError(
                    f"ranks {owners[uuid]} and {rank} have the same GPU ({uuid}), so there are fewer devices than the "
                    f"{ranks.size} that were asked for: ask for fewer, or let the launcher give each rank its own"
                )

    def _same(self, facts: Mapping[str, Any]) -> None:
        """See that all ranks have the same value of each fact.

        Raises:
            _DisagreementError: one has others than the first; the sentence says which.
        """
        if self._ranks is None:
            return
        first, *others = self._ranks.gather(facts)
        for rank, other in enumerate(others, 1):
            for name in sorted(first.keys() | other.keys()):
                mine, its = (of.get(name, "none") for of in (first, other))
                if mine != its:
                    raise _DisagreementError(
                        f"the ranks do not agree: {name} is {its} in rank {rank}, and {mine} in rank 0; start all "
                        "ranks from one environment and one checkout"
                    )

    def _measure_epochs(self, framework: Framework) -> Failure | None:
        workload = self.workload
        with self._stage("data"):
            data = open_data(workload.data, self.model, path=workload.data_path, seed=workload.seed)
        with data:
            with self._stage("data"):
                self.training["batches"] = batches_digest(islice(data.batches("train", workload.batch_size), _DIGESTED))
            steps = data.sizes["train"] // workload.batch_size
            with self._stage("build"):
                program = self._build(framework, steps * workload.epochs)
            assert isinstance(program, Trainer)
            if workload.target:
                return self._aim(program, workload.target)
            with program.session():
                if self.protocol.programs:
                    self._measure_program(framework, program)
                else:
                    self._fit(framework, program, data)
        return None

    def _aim(self, program: Program, target: str) -> Failure | None:
        """Fingerprint the program for a GPU that is not here."""
        with self._stage("compile"):
            found = program.fingerprint_for(target)
        if isinstance(found, str):
            return Failure("unavailable", found)
        self.program = found
        return None

    def _build(self, framework: Framework, horizon: int) -> Program:
        model, workload = self.model, self.workload
        self._shapes = framework.weight_shapes(model, model.sizes(workload.axes))
        weights = self._weights()
        self.parity["weights"] = digest(weights)
        self._same({"the digest of the weights": self.parity["weights"]})
        program = framework.build(workload, model, weights, horizon)
        # A copy on the host would count as the program's memory.
        del weights
        self.settings = {**program.settings, **_environment(self.lane)}
        gc.collect()
        if self.protocol.disable_gc:
            gc.disable()
        return program

    def _weights(self) -> Weights:
        """The weights that every lane starts from."""
        return canonical(self.workload.weights, self.model, self._shapes, self.workload.seed, self._start)

    def _fit(self, framework: Framework, program: Trainer, data: Data) -> None:
        workload = self.workload
        with self._stage("probe"):
            given = operands()
            self.parity["probe"] = check(workload.precision, given, framework.probe(workload, given))
        if self.protocol.smoke:
            with self._stage("training"):
                program.compile()
                _one_step(program)
            return
        meter = self._counter()
        with self._stage("energy"):
            moves = self.metrics["energy_period"] = period(meter, self._clock)
        epochs = Epochs(program, data, workload.batch_size, self._clock, None if isinstance(meter, str) else meter)
        self._waited()
        self._note("before training")
        load = OtherLoad()
        with self._stage("training"):
            self.metrics.update(
                memory(
                    program,
                    workload.device,
                    lambda: self._train(program, epochs),
                    number=self._gpu,
                    count=self._gpus,
                )
            )
        self.metrics["other_load"] = load.read()
        self._note("after training")
        with self._stage("test"):
            tested = epochs.test()
        training = epochs.training
        self.samples = [epoch.seconds for epoch in training.epochs]
        self.metrics.update(fitting(training.epochs, tested, meter, moves))
        self.training |= dataclasses.asdict(training)
        self._sketch(program, lambda: program.feed(*next(iter(data.batches("train", workload.batch_size)))))
        self._fingerprint(program)

    def _train(self, program: Trainer, epochs: Epochs) -> None:
        for number in range(self.workload.epochs):
            self._tell(f"training, epoch {number + 1}")
            with self._compiling(program, "steady" if number else "warm-up"):
                if number == 0:
                    epochs.run(lambda: self._record_compilation(program.compile()))
                else:
                    epochs.run()

    def _measure_program(self, framework: Framework, program: Program) -> None:
        protocol, workload = self.protocol, self.workload
        begun = Start(program, self._clock)
        with self._stage("compile"), self._compiling(program, "warm-up"):
            self._compile(begun)
        if not protocol.programs:
            with self._stage("probe"):
                # After the compile stage, so that it does not warm up the compiler.
                given = operands()
                self.parity["probe"] = check(workload.precision, given, framework.probe(workload, given))
        with self._stage("warm-up"):
            with self._compiling(program, "warm-up"):
                self._warm_up(program, begun, 0 if protocol.smoke else protocol.warmup_iterations)
            if not np.isfinite(program.output()).all():
                raise ArithmeticError("the output holds infinities or NaN, so its time would mean nothing")
        if protocol.smoke:
            return
        with self._compiling(program, "steady"):
            if protocol.programs:
                for _ in range(_STEADY_CALLS):
                    _one_step(program)
            else:
                self._time(program, begun)
        if not protocol.programs:
            self._sketch(program)
        self._fingerprint(program)
        if protocol.programs:
            return
        if workload.mode in PASSES:
            self.metrics["model_flops"] = model_flops(workload, self.model, program)
        if self._machine:
            with self._stage(CEILING):
                self.metrics.update(ceilings(framework, workload, self._clock))

    def _time(self, program: Program, begun: Start) -> None:
        protocol, workload = self.protocol, self.workload
        if self._waited():
            self._warm_up(program, begun, protocol.warmup_iterations)
        self._note("before the latency pass")
        load = OtherLoad()
        passes: list[list[float]] = []
        with self._stage("latency"):
            settle(program, lambda: passes.append(latencies(program, protocol, self._clock)), self._clock)
        self.samples = passes[-1]
        for name, metric in percentiles(self.samples).items():
            self.metrics[name] = noted(metric, len(passes))
        self.metrics["latency_drift"] = drift(self.samples)
        self.metrics["time_to_steady"] = begun.time_to_steady(passes)
        self._note("after the latency pass")
        typical = sorted(self.samples)[len(self.samples) // 2]
        depth = int(program.agree(queue_depth(typical, protocol.throughput_time)))
        load.lap()
        with self._stage("throughput"):
            made = settle(program, lambda: self._throughput(program, depth), self._clock)
            self.metrics["throughput"] = noted(self.metrics["throughput"], made)
        self.metrics["other_load"] = load.read()
        self._note("after the throughput pass")
        with self._stage("memory"):
            self.metrics.update(
                memory(program, workload.device, lambda: _one_step(program), number=self._gpu, count=self._gpus)
            )
        with self._stage("energy"):
            meter = self._counter()
            self.metrics.update(energy(program, meter, workload.batch_size, depth, protocol.energy_time, self._clock))
            self._of_each(program, meter)
        self._note("after the energy window")
        if workload.devices > 1:
            with self._stage("communication"):
                self.metrics["communication_time"] = program.communication()

    def _throughput(self, program: Program, depth: int) -> None:
        window = self.protocol.throughput_time
        self.metrics["throughput"] = throughput(program, self.workload.batch_size, depth, window, self._clock)

    def _counter(self) -> Counter | str:
        """The energy counter of this process's device; on a CPU one rank reads it for the whole host."""
        if self._ranks and self._ranks.local and self.workload.device == "cpu":
            return ELSEWHERE
        return counter(self.workload.device, number=self._gpu, count=self._gpus)

    def _note(self, when: str) -> None:
        for watch in self._watches:
            watch.note(when)

    def _devices(self) -> tuple[Rank, ...]:
        """Each GPU of a process that computes on several, with its metrics."""
        if self._gpus == 1:
            return ()
        host, cpus = socket.gethostname(), tuple(self.settings.get("cpus", ()))
        names = [gpu.name for gpu in nvml.visible(self._gpus)]
        return tuple(
            Rank(index, host, name, cpus, {metric: found[index] for metric, found in self._of_devices.items()})
            for index, name in enumerate(names)
        )

    def _of_each(self, program: Program, meter: Counter | str) -> None:
        """Keep a metric's value for each of several GPUs."""
        if self._gpus == 1:
            return
        found = {
            "device_peak_memory": [metric.value for metric in program.peak_memories()],
            "process_device_memory": [metric.value for metric in process_device_memories("gpu", self._gpu, self._gpus)],
        }
        energy = self.metrics["energy_per_sample"].value
        if isinstance(meter, SummedCounter) and energy is not None:
            found["energy_per_sample"] = [energy * share for share in meter.shares]
        # Only metrics that are known for every GPU.
        self._of_devices = {
            name: known
            for name, values in found.items()
            if len(known := [value for value in values if value is not None]) == self._gpus
        }

    def _waited(self) -> bool:
        """Wait until other load ends if there was some since the job began; return whether there was."""
        if self._before is None:
            return False
        # A rank knows only its own CPUs: if one of them is disturbed, all ranks wait.
        disturbed = not self._before.none
        if self._ranks:
            disturbed = any(self._ranks.gather(disturbed))
        if not disturbed:
            return False
        with self._stage(WAITING):
            wait_for_quiet(self._patience)
            if self._ranks:
                self._ranks.agree(0.0)
        return True

    def _sketch(self, program: Program, feed: Callable[[], None] = lambda: None) -> None:
        """Sketch what the program computes. A failure here must not lose what has been timed.

        Args:
            feed: gives the program the batch with which every lane begins, if it does not hold that already.
        """
        if self.workload.mode in HARNESS_MODES or self.lane.internal:
            return
        with self._stage("check"):
            precision = self.workload.precision
            sketches: dict[str, Any]
            try:
                feed()
                if self.workload.mode == "inference":
                    sketches = of_inference(program, precision)
                else:
                    sketches = of_training(program, self._weights(), precision, self._mean)
            except NotImplementedError:
                sketches = {"reason": f"the lane {self.lane.name} cannot start its training steps again"}
            except Exception as error:
                sketches = {
                    "reason": f"reading back what it computes failed: {type(error).__name__}: {first_line(error)}"
                }
            self.parity["check"] = sketches

    def _mean(self, value: float) -> float:
        """The mean of a value over all ranks."""
        return sum(values := self._ranks.gather(value)) / len(values) if self._ranks else value

    def _fingerprint(self, program: Program) -> None:
        """Fingerprint the program last, which disturbs nothing; a failure must not lose what has been timed."""
        with self._stage("program"):
            if self.workload.devices > 1:
                self.settings |= program.settings
                self.program = Fingerprint.untold("programs over several devices are not described")
                return
            try:
                found = program.fingerprint()
            except Exception as error:
                if self.protocol.programs:
                    raise
                found = Fingerprint.untold(f"{type(error).__name__}: {first_line(error)}")
            # Some settings are known only now.
            self.settings |= program.settings
            if "warm-up" in self._compilations:
                found = found.counted(self._compilations["warm-up"], self._compilations.get("steady"))
            self.program = found

    @contextmanager
    def _compiling(self, program: Program, phase: str) -> Iterator[None]:
        """Count compilations in this context; does nothing in a lane that compiles nothing."""
        before = program.compilations()
        yield
        after = program.compilations()
        if before is not None and after is not None:
            self._compilations[phase] = self._compilations.get(phase, 0) + after - before

    def _compile(self, begun: Start) -> None:
        self._record_compilation(begun.compile())
        if not self.protocol.smoke:
            self.metrics["first_call_time"] = Metric(begun.call(), "first call after compiling")

    def _record_compilation(self, times: CompileTimes) -> None:
        for name, value in (("trace_time", times.trace), ("compile_time", times.compile)):
            if value is None:
                reason = times.reason or "the framework does not state it apart"
                self.metrics[name] = unavailable("cold caches, fresh process", reason)
            else:
                self.metrics[name] = Metric(value, "cold caches, fresh process")

    def _warm_up(self, program: Program, begun: Start, calls: int) -> None:
        start = self._clock()
        until = start + self.protocol.warmup_time
        # At least one call: the first call's result may lie in memory that the probe has reused (CUDA graphs).
        for call in range(max(1, calls)):
            begun.call()
            if call and self.protocol.warmup_time and program.agree(self._clock() >= until):
                break
        while calls and program.agree(self._clock() < start + self.protocol.least_warmup_time):
            begun.call()

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        self._tell(name)
        start = time.perf_counter()
        before = self.stages.setdefault(name, 0.0)
        try:
            yield
        finally:
            self.stages[name] = before + time.perf_counter() - start


class _ToldError(Exception):
    """An error whose sentence needs no traceback."""


class _DisagreementError(_ToldError):
    """The ranks are not copies of each other; the sentence says what differs."""


def own_gpu(ranks: Ranks | None) -> int:
    """This process's GPU by its number among those that the process sees."""
    return ranks.local if ranks and len(nvml.visible(2)) > 1 else 0


def _sources() -> str:
    """Digest of this fwbench's source files."""
    package = Path(__file__).resolve().parents[1]
    found = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        found.update(path.relative_to(package).as_posix().encode())
        found.update(path.read_bytes())
    return found.hexdigest()[:16]


def _one_step(program: Program) -> None:
    program.step()
    program.wait()


def _versions(lane: Lane) -> dict[str, str]:
    """Versions of the lane's distributions and libraries; a loaded module's own version if that says more."""
    found = versions((*lane.distributions, *lane.libraries))
    for name in lane.distributions:
        own = getattr(sys.modules.get(name), "__version__", None)
        if isinstance(own, str) and own != found.get(name):
            found[f"{name}.__version__"] = own
    return found


def _environment(lane: Lane) -> dict[str, Any]:
    """The variables that are set and change what is measured; compilers always find empty caches."""
    recorded = (*RECORDED, *lane.recorded, *(variable for variable, _ in lane.fallback))
    settings: dict[str, Any] = {
        name: value
        for name, value in sorted(os.environ.items())
        if name.startswith(recorded) and name not in {*lane.caches, *lane.sharing}
    }
    if hasattr(os, "sched_getaffinity"):
        settings["cpus"] = sorted(os.sched_getaffinity(0))
    return settings
