"""A job while it is measured: the state that its stages share."""

import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from fwbench.frameworks.contract import Program, Ranks
from fwbench.machine import nvml
from fwbench.machine.facts import Facts
from fwbench.machine.load import OtherLoad, wait_for_quiet
from fwbench.machine.watch import Watch
from fwbench.meters.energy import Counter, counter
from fwbench.meters.growth import Growth
from fwbench.meters.latency import Clock
from fwbench.models import Model
from fwbench.models.weights import Shape
from fwbench.record.fingerprint import Fingerprint
from fwbench.record.lanes import Lane
from fwbench.record.measurement import WAITING, Metric, Pass
from fwbench.record.workload import Workload
from fwbench.suite.profiles import Protocol
from fwbench.worker.process.witness import Witness

# The reason on ranks that share their host's counter and so read none.
ELSEWHERE = "the first rank of the host reads its counter"


@dataclass(eq=False)
class Job:
    """The state that the stages of a job share: the request, the timing and announcing of stages, and the results.

    Args:
        facts: facts about the machine from earlier benchmarks; without any, its ceilings are not measured.
        patience: seconds that it may wait for other load to end before it times anything.
        ranks: the processes that measure together; None: this one alone.
        began: when this process was started, by `clock`.
        keep: whether it may load programs that earlier runs have compiled, and later runs may load its own.
        start: the file with the initial values of the reference's network; None: weights are drawn by rule.
        stays: whether its process takes turns with those of other lanes once it has measured.
        beside: the numbers of processes that have measured the workload in other lanes and wait for turns.
        exact: the workload's results in float64: the `file` that holds them folded and the `lane` that wrote it, or
            the `reason` why there are none. None: no error is asked for.

    Attributes:
        witness: notes the user's files that this process reads; None: they are not noted.
        agreed: whether a failure is known to all ranks.
    """

    workload: Workload
    lane: Lane
    model: Model
    protocol: Protocol
    tell: Callable[[str], None]
    clock: Clock = time.perf_counter
    facts: Facts = field(default_factory=Facts)
    patience: float = 0.0
    ranks: Ranks | None = None
    began: float = 0.0
    keep: bool = False
    start: str | None = None
    exact: Mapping[str, str] | None = None
    stays: bool = False
    beside: Sequence[int] = ()

    def __post_init__(self) -> None:
        self.agreed = self.ranks is None
        self.witness: Witness | None = None
        self.others = functools.partial(OtherLoad, device=self.workload.device)
        self.before = self.others() if self.patience > 0 else None
        self.stages: dict[str, float] = {}
        self.metrics: dict[str, Metric] = {}
        self.samples: list[float] = []
        self.passes: dict[str, Pass] = {}
        self.growth: Growth | None = None
        # The folded output of the build's batch, from before anything is timed; and the number of batches in use.
        self.first_output: Any = None
        self.batches = 1
        self.settings: dict[str, Any] = {}
        self.parity: dict[str, Any] = {}
        self.training: dict[str, Any] = {}
        self.program: Fingerprint | None = None
        self.compilations: dict[str, int] = {}
        self.shapes: Mapping[str, Shape] = {}
        self.gpu = own_gpu(self.ranks)
        # A process may compute on several GPUs.
        on_gpu = self.workload.device == "gpu"
        self.gpus = self.workload.devices if self.ranks is None and on_gpu else 1
        gpus: list[nvml.Gpu | str] = ["the program runs on the CPU"]
        if on_gpu:
            gpus = [nvml.find(number=self.gpu + index) for index in range(self.gpus)]
        self.watches = [Watch(gpu, beside=self.beside) for gpu in gpus]
        # The value of each GPU alone, by metric.
        self.of_devices: dict[str, list[float]] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Announce a stage and time this context."""
        self.tell(name)
        start = time.perf_counter()
        before = self.stages.setdefault(name, 0.0)
        try:
            yield
        finally:
            self.stages[name] = before + time.perf_counter() - start

    @contextmanager
    def building(self) -> Iterator[None]:
        """The stage in which the program is built; what its network reads meanwhile is noted."""
        with self.stage("build"), self.witness.building() if self.witness else nullcontext():
            yield

    def note(self, when: str, *, timed: bool = False) -> None:
        """Note the state of this process's GPUs; `timed`: after something was timed."""
        for watch in self.watches:
            watch.note(when, timed=timed)

    def waited(self) -> bool:
        """Wait for the end of other load that has run since the job began; return whether any has.

        Without patience, wait for nothing and return False.
        """
        if self.before is None:
            return False
        # A rank knows only its own CPUs; if one rank is disturbed, all ranks wait.
        disturbed = not self.before.none
        if self.ranks:
            disturbed = any(self.ranks.gather(disturbed))
        if not disturbed:
            return False
        with self.stage(WAITING):
            wait_for_quiet(self.patience, watch=self.others)
            if self.ranks:
                self.ranks.agree(0.0)
        return True

    def counter(self) -> Counter | str:
        """The energy counter of this process's device; on a CPU one rank reads it for the whole host."""
        if self.ranks and self.ranks.local and self.workload.device == "cpu":
            return ELSEWHERE
        return counter(self.workload.device, number=self.gpu, count=self.gpus)

    def mean(self, value: float) -> float:
        """The mean of a value over all ranks."""
        return sum(values := self.ranks.gather(value)) / len(values) if self.ranks else value

    @contextmanager
    def compiling(self, program: Program, phase: str) -> Iterator[None]:
        """Count compilations in this context; does nothing in a lane that compiles nothing."""
        before = program.compilations()
        yield
        after = program.compilations()
        if before is not None and after is not None:
            self.compilations[phase] = self.compilations.get(phase, 0) + after - before


def own_gpu(ranks: Ranks | None) -> int:
    """This process's GPU by its number among those that the process sees."""
    return ranks.local if ranks and len(nvml.visible(2)) > 1 else 0
