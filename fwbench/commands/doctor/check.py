"""`fwbench doctor --check`: what can be wrong on this machine, run and judged, within five minutes."""

import contextlib
import dataclasses
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from fwbench.commands.doctor import judging
from fwbench.commands.doctor.advice import Advice, other_load
from fwbench.compare import duet
from fwbench.compare.criteria import thresholds
from fwbench.errors import UserError
from fwbench.machine import Machine, versions
from fwbench.machine.load import OtherLoad
from fwbench.meters.energy import Counter, counter, moves
from fwbench.models import CATALOG
from fwbench.models.importing import described
from fwbench.models.project import Project, complete
from fwbench.record.lanes import LANES, Lane
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

# The smallest of the suite: it has the shortest latency, and shows the machine rather than itself.
_MODEL = "mlp"
# Enough for a median, and for a GPU to leave its idle clocks; energy is not measured, its counter is watched.
_TIMED = dataclasses.replace(
    PROFILES["quick"], profile="check", warmup_time=0.5, max_time=0.5, throughput_time=0.1, energy_time=0.0
)

# Seconds for which the energy counter is polled. NVML's moves every 20 to 100 ms.
_COUNTED = 3.0
# Steps of the clock that are looked at.
_STEPS = 1000


@dataclass(frozen=True)
class Check:
    """One of the things that are run.

    Attributes:
        title: what is run.
        seconds: that it takes on two idle cores without a GPU.
        run: runs it and judges it.
    """

    title: str
    seconds: float
    run: Callable[[], Sequence[Advice]]


def check(here: Machine, tell: Callable[[str], None]) -> tuple[list[Advice], list[Measurement]]:
    """Run everything that can be run here, and judge it.

    Args:
        tell: called with what will be done, and for how long, and with each part as it begins.

    Returns:
        The findings, and what was measured for them.
    """
    until = time.monotonic() + _LIMIT
    with contextlib.closing(_Here(here, until)) as checks:
        findings = play(checks.parts(), tell, until)
    return [*findings, *checks.others()], checks.measured


def play(
    parts: Sequence[Check], tell: Callable[[str], None], until: float, now: Callable[[], float] = time.monotonic
) -> list[Advice]:
    """Run parts one after another; what one of them raises is a finding, and the others are run.

    Args:
        until: no part begins later than this.
    """
    tell(f"{_span(parts)} on two idle cores, {_LIMIT / 60:.0f} minutes at most")
    findings: list[Advice] = []
    for number, part in enumerate(parts):
        if now() >= until:
            step = "end what else runs, and check again"
            findings.append(Advice(part.title, "better", f"not run: {_LIMIT / 60:.0f} minutes had passed", step))
            continue
        tell(f"[{number + 1}/{len(parts)}] {part.title}, {_span(parts[number:])} to go")
        try:
            findings.extend(part.run())
        except Exception as error:
            step = "correct that and check again; without it this part of the machine is unknown"
            sentence = str(error) if isinstance(error, UserError) else described(error)
            findings.append(Advice(part.title, "bad", sentence, step))
    return findings


class _Here:
    """This machine's parts, and what they measure with; its workers end with the context."""

    def __init__(self, here: Machine, until: float) -> None:
        self._machine = here
        self._until = until
        self._project = Project(PACKAGE.parent, ())
        self._workers = Workers(here, here.device, {}, self._project)
        # Medians by lane, of those that can be measured.
        self._latencies: dict[str, float] = {}
        self.measured: list[Measurement] = []
        self._begun = time.monotonic()
        self._load = OtherLoad()

    def close(self) -> None:
        """End the workers."""
        self._workers.close()

    def parts(self) -> list[Check]:
        """In the order in which they are run: idle power is read before anything has run."""
        lanes = installed()
        compared = [lane for lane in lanes if "ci" in lane.profiles]
        meter = counter(self._machine.device)
        checks = []
        # Where there is no counter, doctor has said why.
        if not isinstance(meter, str):
            checks.append(Check("energy", _COUNTED, partial(self._energy, meter)))
        checks += [Check(lane.name, 15.0, partial(self._lane, lane)) for lane in lanes]
        checks.append(Check("lanes", 0.0, lambda: judging.measurable(self._latencies)))
        checks.append(Check("matrix products", 0.0, lambda: judging.matrix_products(self.measured)))
        checks.append(Check("ceilings", 0.0, lambda: judging.ceilings(self.measured)))
        checks.append(Check("clock", 1.0, self._clock))
        if compared:
            checks.append(Check("duet", 12.0 * len(compared), partial(self._duet, compared)))
        return checks

    def others(self) -> list[Advice]:
        """What others did while all of it ran; asked when our own processes have ended."""
        findings = [other_load(self._load.read(), self._load.cpus, time.monotonic() - self._begun)]
        if self._machine.device == "gpu":
            findings.append(judging.disturbed(self.measured))
        return findings

    def _energy(self, meter: Counter) -> list[Advice]:
        changes = moves(meter, _COUNTED, time.perf_counter)
        return [judging.energy_counter(meter.name, changes, meter.fault)]

    def _lane(self, lane: Lane) -> list[Advice]:
        """Fresh processes in IEEE float32, and one in every other arithmetic."""
        first = self._measure(lane.name)
        by_precision = {"fp32": first}
        if first.failure is None:
            by_precision |= {name: self._measure(lane.name, name) for name in PRECISIONS if name != "fp32"}
        findings = [judging.arithmetic(lane.name, by_precision)]
        if first.failure is None:
            self._latencies[lane.name] = quantile(first.samples, 50)
            processes = [first, self._measure(lane.name)]
            agreement = judging.agreement(lane.name, processes)
            if agreement.level == "bad":
                # Two can be a coincidence.
                agreement = judging.agreement(lane.name, [*processes, self._measure(lane.name)])
            findings.append(agreement)
        if "cudagraphs" in first.settings:
            findings.append(judging.graphs(lane.name, first.settings["cudagraphs"]))
        return findings

    def _clock(self) -> list[Advice]:
        empty = self._measure("noop", model="noop")
        if empty.failure:
            raise RuntimeError(empty.failure.message)
        if not self._latencies:
            return []
        return [judging.clock(smallest_step(), statistics.median(empty.samples), min(self._latencies.values()))]

    def _duet(self, lanes: Sequence[Lane]) -> list[Advice]:
        here = self._machine.in_turns()
        workloads = [Workload(lane.name, _MODEL, device=here.device) for lane in lanes if lane.name in self._latencies]
        # Base and head are this fwbench in this interpreter.
        with sides(sys.executable, self._project, {}) as (base, head):
            pairs = Pairs(base, head, self._project.models, here, here.device, self._left())
            compared = duet.compare(dict.fromkeys(workloads, thresholds("duet")), pairs.play, left=self._left)
        faults = {workload: comparison.fault for workload, comparison in compared.items() if comparison.fault}
        self.measured += [Measurement(workload, failure=fault.failure) for workload, fault in faults.items()]
        return [judging.unchanged_duet(workload.lane, comparison) for workload, comparison in compared.items()]

    def _measure(self, lane: str, precision: str = "fp32", model: str = _MODEL) -> Measurement:
        """Time a model in a fresh process; the first of a precision also measures the lane's ceilings."""
        workload = Workload(lane, model, precision=precision, device=self._machine.device)
        protocol = dataclasses.replace(_TIMED, deadline=self._left())
        measurement = self._workers.measure(workload, protocol, lambda _: None)
        self.measured.append(measurement)
        return measurement

    def _left(self) -> float:
        return max(0.0, self._until - time.monotonic())


def installed() -> list[Lane]:
    """The lanes that can measure the model here; of the others doctor tells."""
    networks = complete(CATALOG[_MODEL]).networks
    return [
        lane
        for lane in LANES.values()
        if not lane.internal
        and lane.framework in networks
        and len(versions(lane.distributions)) == len(lane.distributions)
    ]


def smallest_step(now: Callable[[], float] = time.perf_counter) -> float:
    """The resolution of a clock as a process sees it: the least difference of two successive readings, in seconds."""
    steps = []
    for _ in range(_STEPS):
        before = after = now()
        while after == before:
            after = now()
        steps.append(after - before)
    return min(steps)


def _span(parts: Sequence[Check]) -> str:
    return f"about {sum(part.seconds for part in parts):.0f} s"
