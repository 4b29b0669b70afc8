"""The measured side: one job, from a workload to its measurement or failure."""

import gc
import os
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from fwbench import frameworks
from fwbench.frameworks.contract import Framework, Program
from fwbench.lanes import LANES
from fwbench.machine import versions
from fwbench.measurement import Failure, Measurement, Metric, unavailable
from fwbench.meters.energy import counter, energy
from fwbench.meters.latency import Clock, latencies, percentiles
from fwbench.meters.load import OtherLoad
from fwbench.meters.memory import memory
from fwbench.meters.throughput import throughput
from fwbench.models import CATALOG
from fwbench.models.weights import canonical, digest
from fwbench.parity.stamp import stamp
from fwbench.precision import check, operands
from fwbench.profiles import Protocol
from fwbench.workload import Workload

STAGES = ("build", "compile", "probe", "warm-up", "latency", "throughput", "memory", "energy")

# Environment that changes what is measured; whatever of it is set goes onto the record.
_RECORDED_ENVIRONMENT = ("MALLOC_", "OMP_", "KMP_", "MKL_", "NPROC", "XLA_", "LD_PRELOAD")


def run(job: Mapping[str, Any], send: Callable[[Mapping[str, Any]], None]) -> None:
    """Run a job and send what comes of it; never raises for what the measured code does."""
    send({"started": os.getpid()})
    workload = Workload.from_json(job["workload"])
    protocol = Protocol(**job["protocol"])
    measuring = Measuring(workload, protocol, lambda stage: send({"stage": stage}))
    with tempfile.TemporaryDirectory(prefix="fwbench-") as caches:
        # Fresh compiler caches: compile time means a cold one.
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(caches, "inductor")
        os.environ["TRITON_CACHE_DIR"] = os.path.join(caches, "triton")
        measurement = measuring.run()
    send({"measurement": measurement.to_json()})


class Measuring:
    """The protocol's stages in order, each timed and announced."""

    def __init__(
        self,
        workload: Workload,
        protocol: Protocol,
        announce: Callable[[str], None],
        clock: Clock = time.perf_counter,
    ) -> None:
        self.workload = workload
        self.protocol = protocol
        self._announce = announce
        self._clock = clock
        self.stages: dict[str, float] = {}
        self.metrics: dict[str, Metric] = {}
        self.samples: list[float] = []
        self.settings: dict[str, Any] = {}
        self.parity: dict[str, Any] = {}

    def run(self) -> Measurement:
        """Measure; every exception of the measured code becomes a failure of its kind."""
        framework: Framework | None = None
        failure = None
        try:
            framework = frameworks.load(self.workload.framework)
            failure = self._measure(framework)
        except ImportError as error:
            failure = Failure(
                "unavailable", f"{self.workload.framework} cannot be imported ({error}); install it there"
            )
        except Exception as error:
            out_of_memory = framework is not None and framework.is_out_of_memory(error)
            failure = Failure(
                "out_of_memory" if out_of_memory else "error",
                f"{type(error).__name__}: {_first_line(error)}",
                stage=next(reversed(self.stages), None),
                detail=traceback.format_exc(),
            )
        return Measurement(
            workload=self.workload,
            samples=tuple(self.samples) if failure is None else (),
            metrics=self.metrics,
            protocol=self.protocol.to_json(),
            settings=self.settings,
            parity=self.parity,
            stages=self.stages,
            versions=versions(LANES[self.workload.framework].distributions),
            failure=failure,
        )

    def _measure(self, framework: Framework) -> Failure | None:
        with self._stage("build"):
            reason = framework.unavailable(self.workload)
            if reason:
                return Failure("unavailable", reason)
            model = CATALOG[self.workload.model]
            weights = canonical(self.workload.weights, model, framework.weight_shapes(model), self.workload.seed)
            program = framework.build(self.workload, weights)
            self.parity["weights"] = digest(weights)
            self.parity["proof"] = stamp(model.name)
            # A copy on the host would count as the program's memory.
            del weights
        self.settings = {**program.settings, **_environment()}
        gc.collect()
        if self.protocol.disable_gc:
            gc.disable()
        with program.session():
            self._measure_program(framework, program)
        return None

    def _measure_program(self, framework: Framework, program: Program) -> None:
        protocol, workload = self.protocol, self.workload
        with self._stage("compile"):
            self._compile(program)
        with self._stage("probe"):
            # After the compile stage, so that it warms no compiler up.
            given = operands()
            self.parity["probe"] = check(workload.precision, given, framework.probe(workload, given))
        with self._stage("warm-up"):
            if not protocol.smoke:
                self._warm_up(program)
            if not np.isfinite(program.output()).all():
                raise ArithmeticError("the output holds infinities or NaN, so its time would mean nothing")
        if protocol.smoke:
            return
        load = OtherLoad()
        with self._stage("latency"):
            self.samples = latencies(program, protocol, self._clock)
        self.metrics.update(percentiles(self.samples))
        with self._stage("throughput"):
            typical = sorted(self.samples)[len(self.samples) // 2]
            self.metrics["throughput"] = throughput(
                program, workload.batch_size, typical, protocol.throughput_time, self._clock
            )
        self.metrics["other_load"] = load.read()
        with self._stage("memory"):
            self.metrics.update(memory(program, workload.device))
        with self._stage("energy"):
            meter = counter(workload.device)
            self.metrics.update(energy(program, meter, workload.batch_size, protocol.energy_time, self._clock))

    def _compile(self, program: Program) -> None:
        times = program.compile()
        start = self._clock()
        program.step()
        program.wait()
        first_call = self._clock() - start
        for name, value in (("trace_time", times.trace), ("compile_time", times.compile)):
            if value is None:
                reason = times.reason or "the framework does not state it apart"
                self.metrics[name] = unavailable("s", "lower", "cold caches, fresh process", reason)
            else:
                self.metrics[name] = Metric(value, "s", "lower", "cold caches, fresh process")
        self.metrics["first_call_time"] = Metric(first_call, "s", "lower", "first call after compiling")

    def _warm_up(self, program: Program) -> None:
        until = self._clock() + self.protocol.warmup_time
        for call in range(self.protocol.warmup_iterations):
            program.step()
            program.wait()
            if call and self.protocol.warmup_time and self._clock() >= until:
                break

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        self._announce(name)
        start = time.perf_counter()
        self.stages[name] = 0.0
        try:
            yield
        finally:
            self.stages[name] = time.perf_counter() - start


def _environment() -> dict[str, Any]:
    settings: dict[str, Any] = {
        name: value for name, value in sorted(os.environ.items()) if name.startswith(_RECORDED_ENVIRONMENT)
    }
    if hasattr(os, "sched_getaffinity"):
        settings["cpus"] = sorted(os.sched_getaffinity(0))
    return settings


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0][:300] or "no message"
