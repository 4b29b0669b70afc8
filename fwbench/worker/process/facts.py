"""Facts that a benchmark takes over from an earlier one, or finds out for later ones.

Facts depend on this process's settings after its network was built, so a network that changes settings has facts of
its own.
"""

import time
from collections.abc import Mapping
from typing import Any

from fwbench.frameworks.contract import Framework
from fwbench.frameworks.precision import Products, check, operands
from fwbench.machine.facts import ARITHMETIC, CEILINGS, HIGHEST, RESTING, TOLD, WORTH, content, metrics
from fwbench.meters.ceilings import ceilings
from fwbench.meters.energy import Counter, Drawn, near_idle, period, resting
from fwbench.record.lanes import EXPORTS, TOOLS, recorded
from fwbench.record.measurement import CEILING, Metric
from fwbench.record.workload import TRAINING
from fwbench.worker.process.building import versions_of
from fwbench.worker.process.job import Job
from fwbench.worker.process.witness import in_force


def probe(job: Job, framework: Framework) -> None:
    """See that the arithmetic in force is the one asked for, and note it; raise an ArithmeticError if it is another."""
    precision = job.workload.precision

    def same(content: Mapping[str, Any], found: str) -> dict[str, dict[str, Any]]:
        taken = {name: {"error": float(content[name]["error"]), "found": found} for name in Products._fields}
        if any(content[name]["arithmetic"] != precision for name in taken):
            raise ValueError("another arithmetic")
        return {name: {**verdict, "arithmetic": precision} for name, verdict in taken.items()}

    with job.stage("probe"):
        under = conditions(job, framework)
        known = job.facts.known(ARITHMETIC, under, same)
        if known is None:
            given, begun = operands(), time.perf_counter()
            known = check(precision, given, framework.probe(job.workload, given))
            if time.perf_counter() - begun >= WORTH:
                job.facts.note(ARITHMETIC, under, known)
        job.parity["probe"] = known


def rest(job: Job, meter: Counter | str, load: Drawn | None) -> dict[str, Metric]:
    """`power_idle` and `energy_period`: another benchmark's, unless the load drew little more than idle power."""
    known = _rested(job)
    if known is not None and not near_idle(load, known):
        return known
    window, devices = job.protocol.energy_time, job.workload.devices
    found = resting(meter, window, job.clock, devices=devices)
    if devices == 1 and all(metric.value is not None for metric in found.values()):
        job.facts.note(RESTING, _at_rest(job), content(found))
    return found


def counter_period(job: Job, meter: Counter | str) -> Metric:
    """`energy_period`, for workloads that ask for no idle power."""
    known = _rested(job)
    return known["energy_period"] if known else period(meter, job.clock)


def _rested(job: Job) -> dict[str, Metric] | None:
    # The counters of several devices are read together.
    return job.facts.known(RESTING, _at_rest(job), metrics) if job.workload.devices == 1 else None


def _at_rest(job: Job) -> dict[str, Any]:
    # Another lane's context, or none, may keep the GPU in another state.
    return {"lane": job.lane.name, "window": job.protocol.energy_time}


def limits(job: Job, framework: Framework) -> None:
    """Add the machine's ceilings to a run's first record of this lane, precision and settings."""
    if not job.facts.shared:
        return
    workload, under = job.workload, conditions(job, framework)
    if job.facts.known(TOLD, under, lambda content, found: True):
        return
    precision = {"precision": workload.precision}
    # On a CPU lanes are too different: PyTorch's convolutions beat what XLA reaches there, and the other way round.
    highest = job.facts.known(HIGHEST, precision, lambda rate, found: float(rate)) if workload.device == "gpu" else None
    # A first lane measures all ceilings; a later one, beside the `highest`, its own matrix product alone.
    found = job.facts.known(CEILINGS, {**under, "all": True}, metrics)
    if found is None and highest:
        found = job.facts.known(CEILINGS, {**under, "all": False}, metrics)
    if found is None:
        with job.stage(CEILING):
            found = ceilings(framework, workload, job.clock, highest)
        if all(metric.value is not None for metric in found.values()):
            job.facts.note(CEILINGS, {**under, "all": highest is None}, content(found))
    job.metrics.update(found)
    job.facts.note(TOLD, under, True)
    own = found.get("compute_ceiling")
    if own and (own.value or 0.0) > (highest or 0.0):
        job.facts.note(HIGHEST, precision, own.value)


def conditions(job: Job, framework: Framework) -> dict[str, Any]:
    """All that a lane's speed and arithmetic depend on besides the machine, but not the names of compilers' folders."""
    workload, lane = job.workload, job.lane
    apart = {*lane.caches, *lane.sharing, *TOOLS, EXPORTS}
    settings = in_force(recorded([lane]), framework, workload).items()
    on_cpu = workload.device == "cpu"
    return {
        "lane": lane.name,
        "precision": workload.precision,
        "versions": versions_of(lane),
        "settings": {name: str(value) for name, value in settings if name not in apart},
        # XLA's options on a CPU differ by these.
        "trains": on_cpu and workload.mode in TRAINING,
        "plain": on_cpu and workload.plain,
    }
