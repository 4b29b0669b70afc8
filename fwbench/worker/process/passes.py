"""The timed passes of a program: compile, warm up, latency, throughput with energy, and memory."""

from collections.abc import Callable, Sequence

from fwbench.frameworks.contract import CompileTimes, Framework, Program
from fwbench.machine.holes import Watch, stood_still
from fwbench.machine.load import OtherLoad
from fwbench.meters.device import device_time
from fwbench.meters.energy import Counter, Drawn, SummedCounter, drawn, energy
from fwbench.meters.flops import PASSES, model_flops
from fwbench.meters.generation import generation
from fwbench.meters.growth import Growth
from fwbench.meters.heap import noted, settle
from fwbench.meters.latency import Lap, drift, latencies, percentiles
from fwbench.meters.memory import memory, process_device_memories
from fwbench.meters.steady import Start
from fwbench.meters.throughput import Queued, queue_depth, queued
from fwbench.record.measurement import Metric, Pass, unavailable
from fwbench.record.workload import STATEFUL
from fwbench.worker.process.checks import begin, end, fingerprint, sketch, sound
from fwbench.worker.process.facts import limits, probe, rest
from fwbench.worker.process.job import Job
from fwbench.worker.process.kept import Kept

# Calls after the warm-up, where only programs are examined; they show whether steady calls compile anything.
_STEADY_CALLS = 2


def measure_program(job: Job, framework: Framework, program: Program) -> None:
    """Run the passes that the protocol asks for, from compiling to the machine's ceilings."""
    protocol, workload = job.protocol, job.workload
    begun, kept = Start(program, job.clock), Kept(job, framework)
    with job.stage(kept.stage), job.compiling(program, "warm-up"):
        _compile(job, program, begun)
    if not (protocol.programs or protocol.smoke):
        # The probe may reuse the memory of this output (CUDA graphs).
        begin(job, program)
    if not protocol.programs:
        # The probe comes after the compile stage, so that it does not warm up the compiler.
        probe(job, framework)
    with job.stage("warm-up"):
        with job.compiling(program, "warm-up"):
            _warm_up(job, program, begun, 0 if protocol.smoke else protocol.warmup_iterations)
        sound(job, program)
    if protocol.smoke:
        return
    with job.compiling(program, "steady"):
        if protocol.programs:
            for _ in range(_STEADY_CALLS):
                program.call_and_wait()
        else:
            _time(job, program, begun)
            if workload.mode in STATEFUL:
                job.metrics.update(generation(workload, job.model, program, job.metrics))
    if not protocol.programs:
        end(job, program)
        _measure_memory(job, program)
        sketch(job, program)
    fingerprint(job, program)
    kept.settle()
    if protocol.programs:
        return
    if workload.device == "gpu" and workload.devices == 1:
        with job.stage("device time"):
            job.metrics["device_time"] = device_time(program)
    if workload.mode in PASSES:
        job.metrics["model_flops"] = model_flops(workload, job.model, program)
    limits(job, framework)


def _time(job: Job, program: Program, begun: Start) -> None:
    protocol = job.protocol
    if job.waited():
        _warm_up(job, program, begun, protocol.warmup_iterations)
    job.note("before the latency pass")
    load = OtherLoad()
    watched = _Watched(job, program)
    passes: list[list[float]] = []
    with job.stage("latency"):
        said = settle(
            program,
            lambda: watched.stood(
                "latency", lambda lap: passes.append(latencies(program, protocol, job.clock, lap)), usual=True
            ),
            job.clock,
        )
    job.samples = passes[-1]
    for name, metric in percentiles(job.samples).items():
        job.metrics[name] = noted(metric, said)
    job.metrics["latency_drift"] = drift(job.samples)
    job.metrics["time_to_steady"] = begun.time_to_steady(passes)
    job.note("after the latency pass", timed=True)
    typical = sorted(job.samples)[len(job.samples) // 2]
    depth = int(program.agree(queue_depth(typical, protocol.throughput_time)))
    load.lap()
    loaded = _load(job, program, watched, depth)
    job.metrics["memory_growth"] = watched.growth.read()
    job.metrics["other_load"] = load.read()
    job.note("after the throughput pass", timed=True)
    with job.stage("energy"):
        _energy(job, *loaded)
    job.note("after the energy window")


def _load(job: Job, program: Program, watched: "_Watched", depth: int) -> tuple[Counter | str, Queued, Drawn | None]:
    """Measure throughput and read the energy counter around it: both are of one operating point."""
    protocol, meter = job.protocol, job.counter()
    # With several ranks, the first one ends the pass for all.
    window = protocol.throughput_time if isinstance(meter, str) else max(protocol.throughput_time, protocol.energy_time)
    queues: list[Queued] = []
    reads: list[Drawn | None] = []

    def measure(lap: Lap) -> None:
        def spend() -> None:
            queues.append(queued(program, depth, window, job.clock, lap))

        reads.append(drawn(meter, spend, job.clock, devices=job.workload.devices))

    with job.stage("throughput"):
        said = settle(program, lambda: watched.stood("throughput", measure), job.clock)
    job.metrics["throughput"] = noted(queues[-1].throughput(job.workload.samples), said)
    return meter, queues[-1], reads[-1]


def _energy(job: Job, meter: Counter | str, queue: Queued, load: Drawn | None) -> None:
    """Compute the energy from the counter's readings under load and its readings of the device without calls."""
    shares = meter.shares if isinstance(meter, SummedCounter) else []
    resting = rest(job, meter, load)
    per_sample = queue.seconds / (queue.calls * job.workload.samples)
    job.metrics.update(energy(meter, load, resting, per_sample, queue.seconds, queue.told))
    energy_of_all = job.metrics["energy_per_sample"].value
    if shares and energy_of_all is not None:
        _of_each(job, "energy_per_sample", [energy_of_all * share for share in shares])


class _Watched:
    """Watches passes, and the memory of the program meanwhile."""

    def __init__(self, job: Job, program: Program) -> None:
        self._job = job
        self._usual: tuple[float, float] | None = None
        self.growth = job.growth = Growth(lambda: program.memory_in_use().value, job.clock)

    def stood(self, name: str, measure: Callable[[Lap], object], *, usual: bool = False) -> bool:
        """Make a pass, note what happened in it, and return whether the process stood still.

        With `usual`, the usual length of a call is taken from this pass.
        """
        watch = Watch(None if usual else self._usual, self._job.clock)

        def lap(calls: int) -> None:
            watch.lap(calls)
            self.growth.lap(calls)

        measure(lap)
        if usual:
            self._usual = watch.usual()
        told = watch.read()
        if told["seconds"]:
            self._job.passes[name] = Pass(name, **told)
        return stood_still(told)


def _measure_memory(job: Job, program: Program) -> None:
    """Measure the memory of one step, and the communication in one.

    This comes before the check: some allocators cannot reset their peak, and it would include the check.
    """
    workload = job.workload
    with job.stage("memory"):
        job.metrics.update(memory(program, workload.device, program.call_and_wait, number=job.gpu, count=job.gpus))
        if job.gpus > 1:
            counted = process_device_memories("gpu", job.gpu, job.gpus)
            _of_each(job, "device_peak_memory", [metric.value for metric in program.peak_memories()])
            _of_each(job, "process_device_memory", [metric.value for metric in counted])
    if workload.devices > 1:
        with job.stage("communication"):
            job.metrics["communication_time"] = program.communication()


def _of_each(job: Job, name: str, values: Sequence[float | None]) -> None:
    """Keep a metric of each of several GPUs, if it is known for all of them."""
    known = [value for value in values if value is not None]
    if len(known) == job.gpus:
        job.of_devices[name] = known


def _compile(job: Job, program: Program, begun: Start) -> None:
    record_compilation(job, begun.compile())
    if size := program.exported_size():
        job.metrics["exported_size"] = size
    if not job.protocol.smoke:
        job.metrics["first_call_time"] = Metric(begun.call(), "first call after compiling")


def record_compilation(job: Job, times: CompileTimes) -> None:
    """Note the seconds of tracing and compiling, or the reason why they are not known."""
    for name, value in (("trace_time", times.trace), ("compile_time", times.compile)):
        source, reason = "cold caches, fresh process", times.reason or "the framework does not state it apart"
        job.metrics[name] = unavailable(source, reason) if value is None else Metric(value, source)


def _warm_up(job: Job, program: Program, begun: Start, calls: int) -> None:
    start = job.clock()
    until = start + job.protocol.warmup_time
    # At least one call: the first call's result may lie in memory that the probe has reused (CUDA graphs).
    for call in range(max(1, calls)):
        begun.call()
        if call and job.protocol.warmup_time and program.agree(job.clock() >= until):
            break
    while calls and program.agree(job.clock() < start + job.protocol.least_warmup_time):
        begun.call()
