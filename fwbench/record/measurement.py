"""The result of a workload: samples and metrics, or a failure and its kind."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from fwbench.record.decoding import Amount, Decoded, Name, Positive, Whole
from fwbench.record.fingerprint import Fingerprint
from fwbench.record.machine import AcceleratorState, Node
from fwbench.record.metrics import METRICS
from fwbench.record.workload import Workload
from fwbench.text import listed

FailureKind = Literal["unavailable", "out_of_memory", "crashed", "timed_out", "error"]


@dataclass(frozen=True)
class Metric:
    """One number of a measurement, or the reason why there is none; absence is never zero.

    A measurement holds it under its name, for which `METRICS` has the unit and the direction that is better.

    Attributes:
        value: in the unit of `METRICS`, or None if the machine has nothing to read it from.
        source: the origin of the number, so that a reader can weigh it.
        reason: why `value` is None.
        at_most: whether the true number may be lower, so that it must not be ranked among others.
        library: for a ceiling, the library that computed, and on which processor; empty in older records.
        operation: for a ceiling, the operation that it computed; empty in older records.
    """

    value: float | None
    source: str
    reason: str | None = None
    at_most: bool = False
    library: str = ""
    operation: str = ""

    def __post_init__(self) -> None:
        if (self.value is None) != (self.reason is not None):
            raise ValueError("a metric has either a value or a reason for having none")

    def to_json(self, name: str) -> dict[str, Any]:
        """The metric as JSON primitives, with its unit and direction, so that a file explains itself.

        Raises:
            ValueError: `METRICS` does not list the name.
        """
        if name not in METRICS:
            raise ValueError(f"metric {name!r} is not in METRICS: state its unit and direction there")
        known = METRICS[name]
        return {
            "value": self.value,
            "unit": known.unit,
            "direction": known.direction,
            "source": self.source,
            "reason": self.reason,
            **{name: value for name in ("at_most", "library", "operation") if (value := getattr(self, name))},
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Metric":
        """The inverse of `to_json`; its name says unit and direction."""
        return cls(**{name: value for name, value in data.items() if name not in ("unit", "direction")})


def fitting(unfit: Sequence[int]) -> str:
    """Half a sentence on a batch that was halved until it fitted into memory."""
    return f"batch {unfit[0]} was asked for, and {listed(map(str, unfit))} did not fit into memory"


def unavailable(source: str, reason: str) -> Metric:
    """A metric without a value, for this reason."""
    return Metric(None, source, reason)


# The fields of a measurement that are stored once another one has replaced it.
_OF_ATTEMPTS = ("samples", "metrics", "processes", "accelerator", "passes", "stages", "failure")

# The stage before anything is timed, if other processes use the CPUs.
WAITING = "waiting for quiet"
# The stage after all others, in which a lane's first benchmark of a precision measures the machine's ceilings.
CEILING = "ceilings"
# The stages that a worker reports.
STAGES = (
    *("join", "data", "build", "compile", "load", "probe", "training", "test", "warm-up", WAITING, "latency"),
    *("throughput", "memory", "energy", "communication", "check", "program", "device time", CEILING),
)
# The time to load a program, as a share of the time to compile it, if it was not measured; on a GPU by the rounds of an
# H200, whose calls before turns it includes.
_LOADING = {"cpu": 0.25, "gpu": 0.16}
# The setting that states the fallback flags that a lane ran with after a crash, as a shell would set them.
FALLBACK = "fallback_flags"
# The setting that lists the settings changed by the network's own code; `fwbench.worker.process.witness`, which imports
# nothing of fwbench, repeats the name.
CHANGED = "changed"
# The setting that lists the other lanes' frameworks that the process has imported besides its own.
ALSO_IMPORTED = "also_imported"
# The setting that names the jit of a library whose work at each call is not part of the measured call.
LEFT_OUT = "call_leaves_out"
# The setting that names the format of a lane's weights (`fwbench.record.lanes.Lane.quantised`).
QUANTISED = "quantised"

# The metric of peak memory on each device: a CPU has no allocator of its own.
PEAK_MEMORY = {"gpu": "device_peak_memory", "cpu": "host_peak_memory"}

# The first moment: this process has not yet used the accelerator.
BEFORE = "before the build"


@dataclass(frozen=True)
class Moment(Decoded):
    """The accelerator's state at one moment of a measurement.

    Attributes:
        when: in words: `BEFORE`, then before or after a timed stretch.
        state: of the accelerator; `processes` are those of others.
        held: for each reason that the driver counts (`AcceleratorState.throttle_reasons`), the share of the time since
            the moment before in which it held the clocks down; 0 if nothing was timed then.
    """

    when: str
    state: AcceleratorState
    held: Mapping[Name, Amount] = field(default_factory=dict)


@dataclass(frozen=True)
class Pass(Decoded):
    """The times of a pass, and the interruptions of the process meanwhile (`fwbench.machine.holes.Watch`).

    Attributes:
        name: the stage of the pass.
        seconds, cpu: seconds of all its calls, and CPU seconds of all threads.
        gap: seconds for which calls took longer than usual while the process neither computed nor waited for a CPU.
        throttled: seconds for which a quota of the control group held it back, summed over CPUs.
        suspended: seconds for which the machine slept, which `seconds` leaves out.
        switches: number of times that a thread was made to leave its CPU.
        waited: seconds for which threads waited for a CPU, summed over threads; None if the kernel does not report it.
    """

    name: Name
    seconds: Amount
    cpu: Amount
    gap: Amount = 0.0
    throttled: Amount = 0.0
    suspended: Amount = 0.0
    switches: Amount = 0.0
    waited: Amount | None = None


# The sentence that every report shows beside numbers of several devices that are parts of one CPU.
NO_SCALING = "on a CPU several devices prove that the lanes compute the same and tell nothing of scaling"


@dataclass(frozen=True)
class Rank(Decoded):
    """One of several devices that a step was spread over, with the numbers of it alone.

    Attributes:
        rank: its number, from 0.
        host: its name.
        device: name of the GPU or the CPU that computed.
        cpus: logical CPUs that its process was pinned to.
        metrics: by the names of `METRICS`, those that can differ between devices; throughput is of its own samples.
        settings: those that differ from the first rank's.
    """

    rank: int
    host: Name
    device: Name
    cpus: tuple[int, ...] = ()
    metrics: Mapping[Name, float] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Failure(Decoded):
    """The reason why a workload has no numbers.

    Attributes:
        kind: `unavailable` (cannot run here), `out_of_memory`, `crashed` (the process died), `timed_out`, or
            `error` (an exception).
        message: one sentence.
        stage: the protocol's stage in which it happened, if one had begun.
        detail: the exception's traceback or the end of the worker's standard error.
        compiler: whether the framework's compiler, or what it made, raised the exception.
        signal: number of the signal that killed the process, if it is known.
    """

    kind: FailureKind
    message: str
    stage: str | None = None
    detail: str = ""
    compiler: bool = False
    signal: int | None = None

    def __str__(self) -> str:
        where = f" during {self.stage}" if self.stage else ""
        text = f"{self.kind}{where}: {self.message}"
        return f"{text}\n{self.detail}" if self.detail else text


@dataclass(frozen=True)
class Measurement(Decoded):
    """The record of one workload.

    Attributes:
        samples: latency of each synchronised call, in mode `fit` of each epoch; seconds, in the order of measuring.
            With several ranks, each is the slowest rank's.
        metrics: by name.
        protocol: the amounts it was measured with.
        settings: how the lane ran it (layout, compile mode, threads, ...). `caution` among them is a sentence that
            every report shows; `changed` lists the settings that the network's own code has changed, whose
            values are those after the last call.
        sources: SHA-256 of each of the user's files as the process read it, by path in the project: the imported
            modules, and the files that the network read while it was built.
        parity: the evidence that the number may be compared: digest of the weights, proof of the model, and findings of
            the precision probe.
        training: of mode `fit`: `epochs`, one record each (`fwbench.ext.epochs.loop.Epoch`), the curves `losses` and
            `accuracies` with one number a step, and `batches`, a digest of the first ones.
        processes: if several processes measured the workload one after another: for each, the values that a gate
            decides over, by `fwbench.compare.criteria`'s names. `samples` and `metrics` are then of all processes
            together.
        turns: the turns of its lane in each round, with the round's `begun` and `pace`. `fwbench.record.rounds` adds
            them. They are not stored with the measurement, as it ends before they begin.
        duet: of a duet with another revision or environment: `base`, `verdicts` and `pairs`.
        ranks: of a workload over several devices, each device in order; `metrics` are then of all together.
        program: the fingerprint of the program; None if the run did not come so far.
        accelerator: states of the accelerator meanwhile, in order, those of several processes one after another; empty
            on a CPU.
        passes: the passes whose numbers count, those of several processes one after another.
        stages: seconds spent in each stage of the protocol.
        overhead_s: seconds between the request and the record that no stage accounts for.
        start_s: the part of `overhead_s` until the worker's process ran.
        versions: of the distributions in the worker's interpreter, including the libraries that they bring; and a
            module's own version if that says more, as `torch.__version__`, which names its CUDA.
        attempts: other measurements of the workload in the same run, which were disturbed more, or whose test was run
            again (`rerun`): of each `samples`, `metrics`, `processes`, `accelerator`, `passes`, `stages` and `failure`,
            as in a record.
        after_crash: on a lane with fallback flags, the outcome of the attempt before this one, and the change after it;
            the setting `fallback_flags` states the flags alone.
        unfit: batch sizes that did not fit into memory, beginning with the one that was asked for; `workload` has the
            one that did. After a failure for lack of memory, all that were tried.
        node: the node of a pool of accelerators that measured it; None: pytest's own machine did.
        failure: set when the workload failed; then samples and metrics may be empty.
    """

    workload: Workload
    samples: tuple[float, ...] = ()
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    protocol: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    parity: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    sources: Mapping[Name, Name] = field(default_factory=dict)
    processes: tuple[Mapping[Name, Positive], ...] = ()
    turns: tuple[Mapping[str, Any], ...] = ()
    duet: Mapping[str, Any] = field(default_factory=dict)
    ranks: tuple[Rank, ...] = ()
    program: Fingerprint | None = None
    accelerator: tuple[Moment, ...] = ()
    passes: tuple[Pass, ...] = ()
    stages: Mapping[Name, Amount] = field(default_factory=dict)
    overhead_s: float | None = None
    start_s: float | None = None
    versions: Mapping[Name, Name] = field(default_factory=dict)
    attempts: tuple[Mapping[str, Any], ...] = ()
    after_crash: str | None = None
    unfit: tuple[Whole, ...] = ()
    node: Node | None = None
    failure: Failure | None = None

    @property
    def asked(self) -> Workload:
        """The workload that was asked for: it differs from `workload` if its batch did not fit into memory."""
        return dataclasses.replace(self.workload, batch_size=self.unfit[0]) if self.unfit else self.workload

    @property
    def fallback(self) -> str:
        """The fallback flags that it ran with after a crash; empty: none."""
        return str(self.settings.get(FALLBACK, ""))

    @property
    def quantised(self) -> str:
        """The format that its lane rounds weights to; empty: it keeps them."""
        return str(self.settings.get(QUANTISED, ""))

    def value(self, metric: str) -> float | None:
        """The metric's value, or None when it is absent."""
        known = self.metrics.get(metric)
        return known.value if known else None

    @property
    def compiling(self) -> float | None:
        """Seconds of tracing and compiling together; None where compiling was not measured."""
        return compiling(self.value("trace_time"), self.value("compile_time"))

    @property
    def loading(self) -> float:
        """Seconds that a process needs to load the compiled program; estimated if they were not measured."""
        return self.stages.get("load", _LOADING[self.workload.device] * self.stages.get("compile", 0.0))

    def beside(self, other: "Measurement", rerun: bool = False) -> "Measurement":
        """This measurement, with another one of the same workload as an attempt that was disturbed more.

        Args:
            rerun: whether it is an attempt because the test was run again instead.
        """
        record = other.to_json()
        attempt = {**{name: record[name] for name in _OF_ATTEMPTS}, **({"rerun": True} if rerun else {})}
        return dataclasses.replace(self, attempts=(*other.attempts, *self.attempts, attempt))

    def to_json(self) -> dict[str, Any]:
        """The record as JSON primitives."""
        # `asdict` would copy ten thousand samples one by one.
        record = dataclasses.asdict(dataclasses.replace(self, samples=(), turns=()))
        del record["turns"]
        return record | {
            "samples": self.samples,
            "workload": self.workload.to_json(),
            "metrics": {name: metric.to_json(name) for name, metric in self.metrics.items()},
        }


def compiling(trace: float | None, compiled: float | None) -> float | None:
    """Seconds of tracing and compiling together; None where compiling was not measured."""
    return compiled if trace is None or compiled is None else trace + compiled
