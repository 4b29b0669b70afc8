"""Finds the disturbances of a measurement in its record alone; no other module does.

A disturbed number does not describe the machine. It is shown with a note. Answers and gates rest on it only as far as
they would hold even if the disturbance had lengthened it by as much as it can.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fwbench.machine.load import disturbs, lengthened, needed
from fwbench.record.machine import AcceleratorState
from fwbench.record.measurement import BEFORE, Measurement, Moment, Pass

# Bytes in use beyond which somebody computes although the driver names nobody, as in a container. On an idle GPU the
# limit is DESKTOP: a desktop's programs, which a container does not see either, hold as much as that.
HELD, DESKTOP = 128 * 2**20, 2 * 2**30

# Share of the time in which an idle GPU may compute: for a screen, or to answer queries of its state.
IDLE = 0.1

# Drift beyond which calls were disturbed. On an idle machine (two shared virtual cores) the last third of calls was at
# most 11 % off the first in 102 of 103 benchmarks.
DRIFTED = 0.12

# A quota, or a GPU's heat, that held a pass back for less than this share of its time changes no number.
_THROTTLED = 0.01

# A GPU that computes as much as its power limit allows is held back all the time. That is no disturbance: the limit is
# on the machine's record, and a gate refuses another one. `capped` reports it.
POWER_CAP = "power cap"


@dataclass(frozen=True)
class Cause:
    """A kind of disturbance, and whether it `lasts`, so that a repeated measurement meets it, too."""

    name: str
    happened: str
    next_step: str
    lasts: bool = False


LOAD = Cause("other load", "other processes used the CPUs", "Stop the other load")
NEIGHBOUR = Cause(
    "a neighbour on the GPU",
    "other processes were on the GPU",
    "End them (`nvidia-smi` names them) or choose another GPU (CUDA_VISIBLE_DEVICES)",
)
THROTTLING = Cause(
    "a throttled GPU",
    "the GPU was throttled",
    "See to its cooling and power (`nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER` tells which)",
)
DRIFT = Cause(
    "drift",
    "calls became slower or faster",
    "See to the machine's cooling and clock rates, or warm up for longer (--benchmark-warmup-iterations)",
)
GAP = Cause(
    "a process that stood still",
    "the process was stopped, frozen or waited for something else than a CPU",
    "Look for what stops processes (SIGSTOP, a suspended container or virtual machine), or for calls that wait",
)
QUOTA = Cause(
    "a quota of CPUs",
    "a quota of the control group held the process back",
    "Raise the quota (cpu.max, `docker --cpus`, `limits.cpu`) or use fewer threads (--fwbench-threads)",
    lasts=True,
)
CAUSES = (LOAD, NEIGHBOUR, THROTTLING, GAP, QUOTA, DRIFT)


@dataclass(frozen=True)
class Disturbance:
    """One disturbance of a measurement.

    Attributes:
        degree: severity; the worse of two disturbances of one cause has the larger.
        detail: how much, or by what.
        factor: the factor by which it can have lengthened a time; infinite if unknown.
    """

    cause: Cause
    degree: float
    detail: str
    factor: float = math.inf


def disturbances(measurements: Iterable[Measurement]) -> list[Disturbance]:
    """The disturbances of any of these measurements: the worst of each cause."""
    return gravest(
        each for m in measurements for each in (*_load(m), *on_the_gpu(m.accelerator), *_still(m), *_drift(m))
    )


def gravest(disturbances: Iterable[Disturbance]) -> list[Disturbance]:
    """The worst disturbance of each cause."""
    every = list(disturbances)
    alike = ([each for each in every if each.cause == cause] for cause in CAUSES)
    return [max(ones, key=lambda each: each.degree) for ones in alike if ones]


def lengthening(measurements: Iterable[Measurement]) -> float:
    """The factor by which disturbances can have lengthened these measurements' times; 1 if there were none."""
    return math.prod(each.factor for each in disturbances(measurements))


def slowed(measurement: Measurement) -> bool:
    """True if a disturbance other than drift may have made the measured program slower."""
    return any(each.cause != DRIFT for each in disturbances([measurement]))


def loaded(measurement: Measurement) -> bool:
    """True if other processes used the CPUs so much that the measurement may suffer from it."""
    return disturbs(measurement.value("other_load") or 0.0, _cpus(measurement), _waited(measurement))


def _load(measurement: Measurement) -> Iterator[Disturbance]:
    if loaded(measurement):
        load = measurement.value("other_load") or 0.0
        factor = lengthened(load, _cpus(measurement), _waited(measurement))
        yield Disturbance(LOAD, load, f"{load:.{0 if load > 0.05 else 1}%}", factor)


def _cpus(measurement: Measurement) -> int:
    """The number of CPUs on which other load is in the way."""
    return needed(measurement.workload.device, max(1, len(measurement.settings.get("cpus", ()))))


def _waited(measurement: Measurement) -> float | None:
    """The largest share of a pass for which threads of a GPU's program waited for a CPU; None if it is unknown.

    It is None in mode `fit`, whose loaders are processes of their own.
    """
    if measurement.workload.device == "cpu" or measurement.workload.mode == "fit":
        return None
    known = ((each.waited, each.seconds) for each in measurement.passes if each.seconds)
    return max((waited / seconds for waited, seconds in known if waited is not None), default=None)


def _still(measurement: Measurement) -> Iterator[Disturbance]:
    for each in measurement.passes:
        for cause, still in ((GAP, each.gap), (QUOTA, _held(each, len(measurement.settings.get("cpus", ())) or 1))):
            if still > 0:
                factor = each.seconds / left if (left := each.seconds - still) > 0 else math.inf
                yield Disturbance(cause, factor, f"{still:.2g} of {each.seconds:.2g} s, {each.name}", factor)


def _held(each: Pass, cpus: int) -> float:
    """The seconds for which a quota can have held a pass back; the kernel's figure is a sum over CPUs."""
    return min(each.throttled, each.seconds - each.cpu / cpus) if each.throttled > _THROTTLED * each.seconds else 0.0


def _drift(measurement: Measurement) -> Iterator[Disturbance]:
    drift = measurement.value("latency_drift")
    # Other load alone explains a drift, and is reported itself.
    if drift is not None and abs(drift) > DRIFTED and not loaded(measurement):
        # A record may state that calls came to take no time at all.
        factor = 1 + drift if drift > 0 else 1 / (1 + drift) if drift > -1 else math.inf
        yield Disturbance(DRIFT, abs(drift), f"{drift:+.0%}", factor)


def capped(moments: Iterable[Moment]) -> float | None:
    """The largest share of timed stretches in which the power limit held a GPU's clocks down; None if not counted."""
    return max((moment.held[POWER_CAP] for moment in moments if POWER_CAP in moment.held), default=None)


def on_the_gpu(moments: Iterable[Moment]) -> Iterator[Disturbance]:
    """The disturbances on the GPU at each of these moments."""
    for moment in moments:
        state = moment.state
        if state.processes:
            count = len(state.processes)
            yield Disturbance(NEIGHBOUR, count, f"{count} process{'es' if count > 1 else ''} {moment.when}")
        elif moment.when == BEFORE and (held := unseen(state)):
            used = f"{held / 2**30:.1f} GiB in use {moment.when}, the driver does not say by whom"
            yield Disturbance(NEIGHBOUR, 0.5, used)
        elif moment.when == BEFORE and state.graphics and computes(state):
            yield Disturbance(NEIGHBOUR, 0.5, f"a screen drawn {state.utilisation:.0%} of the time {moment.when}")
        if moment.when != BEFORE:
            yield from _throttled(moment)


def _throttled(moment: Moment) -> Iterator[Disturbance]:
    """Throttling at a moment, by the driver's counters; for reasons that it does not count, by the moment's sample."""
    counted = {reason: share for reason, share in moment.held.items() if share > _THROTTLED}
    sampled = set(moment.state.throttle_reasons or ()) - moment.held.keys()
    if reasons := (counted.keys() | sampled) - {POWER_CAP}:
        most = max(counted.get(reason, 0.0) for reason in reasons)
        long = f" for {most:.0%} of the time" if most else ""
        yield Disturbance(THROTTLING, len(reasons) + most, f"{' and '.join(sorted(reasons))}{long} {moment.when}")


def unseen(state: AcceleratorState) -> int:
    """Bytes in use by a process that may compute and that the driver does not name, before we use the GPU; else 0."""
    held = (state.used_memory or 0) - sum(process.memory or 0 for process in state.graphics or ())
    idle = state.utilisation is not None and not computes(state)
    return held if held > (DESKTOP if idle else HELD) else 0


def computes(state: AcceleratorState) -> bool:
    """True if a GPU computes more than an idle one does for a screen."""
    return (state.utilisation or 0.0) > IDLE
