"""`fwbench doctor --check`: runs and judges all that can be wrong on this machine, within five minutes."""

import contextlib
import dataclasses
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice, pairwise

from fwbench.commands.doctor.findings import Finding
from fwbench.commands.doctor.looks import lacking, other_load, public_lanes
from fwbench.compare import duet
from fwbench.compare.criteria import thresholds
from fwbench.errors import Absent, UserError
from fwbench.ext.trials import judging
from fwbench.machine import Machine
from fwbench.machine.load import OtherLoad
from fwbench.meters.energy import Counter, counter, moves
from fwbench.models import CATALOG
from fwbench.models.importing import described
from fwbench.models.project import Project, complete
from fwbench.record.lanes import Lane
from fwbench.record.measurement import Measurement
from fwbench.record.quantiles import quantile
from fwbench.record.workload import PRECISIONS, Workload
from fwbench.suite.profiles import PROFILES
from fwbench.worker.client.starting import PACKAGE
from fwbench.worker.client.workers import Workers
from fwbench.worker.turns.pairs import Pairs
from fwbench.worker.turns.sides import sides

# Seconds after which no further part is begun, and no measurement goes on.
_LIMIT = 300.0

# The suite's smallest model: it has the shortest latency, and shows the machine rather than itself.
_MODEL = "mlp"
# Enough for a median, and for a GPU to leave its idle clocks; energy is not measured, its counter is watched.
_TIMED = dataclasses.replace(
    PROFILES["quick"], profile="check", warmup_time=0.5, max_time=0.5, throughput_time=0.1, energy_time=0.0
)

# Seconds for which the energy counter is polled. NVML's moves every 20 to 100 ms.
_POLLED = 3.0
# Steps of the clock that are looked at.
_STEPS = 1000


@dataclass(frozen=True)
class Check:
    """A check, and its seconds on two idle cores; 0: it judges the measurements of other checks."""

    title: str
    seconds: float
    run: Callable[[], Iterable[Finding]]


def check(here: Machine, tell: Callable[[str], None]) -> tuple[list[Finding], list[Measurement]]:
    """Run all checks that can run here; return the findings, and the measurements behind them."""
    until = time.monotonic() + _LIMIT
    with contextlib.closing(Session(here, until)) as session:
        return play(session.checks(), tell, until), session.measured


def play(
    checks: Sequence[Check], tell: Callable[[str], None], until: float, now: Callable[[], float] = time.monotonic
) -> list[Finding]:
    """Run checks one after another; those that take time, only if they begin before `until`.

    An exception in a check becomes a finding, and the other checks are run.
    """
    tell(f"{_span(checks)} on two idle cores, {_LIMIT / 60:.0f} minutes at most")
    findings: list[Finding] = []
    for number, each in enumerate(checks):
        try:
            if each.seconds and now() >= until:
                raise UserError(f"not run: {_LIMIT / 60:.0f} minutes had passed")
            if each.seconds:
                tell(f"{each.title}, {_span(checks[number:])} to go")
            findings.extend(each.run())
        except Exception as error:
            step = "correct that and check again; without it this part of the machine is unknown, and cannot be trusted"
            found = str(error) if isinstance(error, UserError) else described(error)
            findings.append(Finding(each.title, found, step, bad=True))
    return findings


class Session:
    """The workers of the checks, and their measurements so far; the workers end with the session."""

    def __init__(self, here: Machine, until: float) -> None:
        self._machine, self._until = here, until
        self._project = Project(PACKAGE.parent, ())
        self._workers = Workers(here, here.device, {}, self._project)
        # Median latencies in seconds, by lane, of the lanes that can be measured.
        self._latencies: dict[str, float] = {}
        self.measured: list[Measurement] = []
        self._begun, self._load = time.monotonic(), OtherLoad()

    def close(self) -> None:
        """End the workers."""
        self._workers.close()

    def checks(self) -> list[Check]:
        """The checks in their order: idle power is read before anything has run, other load when all has."""
        lanes, meter = installed(), counter(self._machine.device)
        compared = [lane for lane in lanes if "ci" in lane.profiles]
        # If there is no counter, the look has reported the reason.
        energy = [] if isinstance(meter, Absent) else [Check("energy", _POLLED, partial(self._energy, meter))]
        return [
            *energy,
            *(Check(lane.name, 15.0, partial(self._lane, lane)) for lane in lanes),
            Check("lanes", 0.0, self._measurable),
            Check("matrix products", 0.0, lambda: judging.matrix_products(self.measured)),
            Check("ceilings", 0.0, lambda: judging.ceilings(self.measured)),
            Check("clock", 1.0, self._clock),
            *([Check("duet", 12.0 * len(compared), partial(self._duet, compared))] if compared else []),
            Check("disturbances", 0.0, lambda: [judging.disturbed(self.measured)]),
            Check("other load", 0.0, self._others),
        ]

    def _energy(self, meter: Counter) -> Iterator[Finding]:
        changes = moves(meter, _POLLED, time.perf_counter)
        yield judging.energy_counter(meter.name, changes, meter.fault)

    def _lane(self, lane: Lane) -> Iterator[Finding]:
        """Measure a lane in fresh processes in IEEE float32, and in one process in every other arithmetic."""
        first = self._measure(lane.name)
        others = [] if first.failure else [name for name in PRECISIONS if name != "fp32"]
        yield judging.arithmetic(lane.name, {"fp32": first} | {name: self._measure(lane.name, name) for name in others})
        if not first.failure:
            self._latencies[lane.name] = quantile(first.samples, 50)
            processes = [first, self._measure(lane.name)]
            if judging.agreement(lane.name, processes).bad:
                # A difference between two processes can be a coincidence.
                processes.append(self._measure(lane.name))
            yield judging.agreement(lane.name, processes)
        if "cudagraphs" in first.settings:
            yield judging.graphs(lane.name, first.settings["cudagraphs"])

    def _measurable(self) -> Iterator[Finding]:
        if not self._latencies:
            step = "correct what is said of one of them"
            yield Finding("lanes", "none that is installed here can be measured", step, bad=True)

    def _clock(self) -> Iterator[Finding]:
        empty = self._measure("noop", model="noop")
        if empty.failure:
            raise RuntimeError(empty.failure.message)
        if self._latencies:
            shortest = min(self._latencies.values())
            yield judging.clock(smallest_step(), statistics.median(empty.samples), shortest)

    def _duet(self, lanes: Sequence[Lane]) -> list[Finding]:
        here = self._machine.in_turns()
        workloads = [Workload(lane.name, _MODEL, device=here.device) for lane in lanes if lane.name in self._latencies]
        # Base and head are this fwbench in this interpreter.
        with sides(sys.executable, self._project, {}) as (base, head):
            pairs = Pairs(base, head, self._project.models, here, here.device, self._left())
            compared = duet.compare(dict.fromkeys(workloads, thresholds("duet")), pairs.play, left=self._left)
        faults = {workload: comparison.fault for workload, comparison in compared.items() if comparison.fault}
        self.measured += [Measurement(workload, failure=fault.failure) for workload, fault in faults.items()]
        return [judging.unchanged_duet(workload.lane, comparison) for workload, comparison in compared.items()]

    def _others(self) -> Iterator[Finding]:
        # Once our processes have ended, all of their CPU time is known to be ours.
        self.close()
        yield other_load(self._load, self._machine.device, time.monotonic() - self._begun, whole=True)

    def _measure(self, lane: str, precision: str = "fp32", model: str = _MODEL) -> Measurement:
        """Time a model in a fresh process; the first of a precision also measures the lane's ceilings."""
        workload = Workload(lane, model, precision=precision, device=self._machine.device)
        protocol = dataclasses.replace(_TIMED, deadline=self._left())
        self.measured.append(self._workers.measure(workload, protocol, lambda _: None))
        return self.measured[-1]

    def _left(self) -> float:
        return max(0.0, self._until - time.monotonic())


def installed() -> list[Lane]:
    """The lanes that can measure the model here; the looks report the others."""
    networks = complete(CATALOG[_MODEL]).networks
    usual = [lane for lane in public_lanes() if lane.profiles or lane.gpu_profiles]
    return [lane for lane in usual if lane.framework in networks and not lacking(lane)]


def smallest_step(now: Callable[[], float] = time.perf_counter) -> float:
    """The resolution of a clock as a process sees it: the least difference of two successive readings, in seconds."""
    steps = (later - earlier for earlier, later in pairwise(iter(now, None)) if later > earlier)
    return min(islice(steps, _STEPS))


def _span(checks: Sequence[Check]) -> str:
    return f"about {sum(each.seconds for each in checks):.0f} s"
