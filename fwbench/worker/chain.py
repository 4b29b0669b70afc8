"""The links of a chain that yields a measurement; `fwbench.plugin.session` puts them together.

duet -> twice if disturbed -> several processes -> workers here, or a pool of them
                                                                                  |
the measurement  <-  kept in this run's journal  <-  texts checked
"""

import dataclasses
import statistics
from collections.abc import Callable, Sequence

from fwbench.compare.criteria import values
from fwbench.machine.disturbances import DRIFTED, disturbances, lengthening
from fwbench.record.lanes import LANES
from fwbench.record.measurement import Measurement, Metric
from fwbench.record.workload import Workload
from fwbench.suite.profiles import Protocol
from fwbench.worker.texts import Texts, unlike

# Called with each stage as it begins.
Tell = Callable[[str], None]
Measure = Callable[[Workload, Protocol, Tell], Measurement]


def twice(measure: Measure, may: Callable[[Tell], bool]) -> Measure:
    """Measure a workload again if a passing disturbance met it, and keep the better measurement of the two.

    Fits, which may take hours, and the harness's own lanes are measured once.

    Args:
        may: returns whether to measure again; called once a measurement was disturbed.
    """

    def measured(workload: Workload, protocol: Protocol, tell: Tell) -> Measurement:
        first = measure(workload, protocol, tell)
        passing = any(not each.cause.lasts for each in disturbances([first]))
        if first.failure or not passing or workload.mode == "fit" or LANES[workload.lane].internal or not may(tell):
            return first
        tell("disturbed and measured again")
        second = measure(workload, protocol, tell)
        return first.beside(second) if second.failure or _better(first, second) else second.beside(first)

    return measured


def _better(first: Measurement, second: Measurement) -> bool:
    """True if the first of two measurements of a workload is the better evidence of its speed: it is less disturbed.

    Disturbances only slow it. So if the less disturbed one is so much slower that its own disturbances do not explain
    it, something unseen has slowed it, and the faster one is the better.
    """
    less, more = sorted((second, first), key=lambda m: (lengthening([m]), _seconds(m)))
    slowed = _seconds(less) / lengthening([less]) > _seconds(more) * (1 + DRIFTED)
    return (more if slowed else less) is first


def _seconds(measurement: Measurement) -> float:
    """Seconds of a sample, from the throughput; without a throughput, the median seconds of a call."""
    if throughput := measurement.value("throughput"):
        return 1 / throughput
    return statistics.median(measurement.samples or (0.0,))


def several(measure: Measure, count: int) -> Measure:
    """Measure in several processes, one after another, and pool them; programs alone need one process."""

    def measured(workload: Workload, protocol: Protocol, tell: Tell) -> Measurement:
        made: list[Measurement] = []
        while len(made) < (1 if protocol.programs else count):
            if made:
                tell(f"process {len(made) + 1}")
            latest = measure(workload, protocol, tell)
            if latest.failure:
                return latest
            if made and (latest.workload, latest.fallback) != (made[0].workload, made[0].fallback):
                # All further processes have the same smaller batch and the same fallback flags.
                made = []
            made.append(latest)
        return pooled(made)

    return measured


def pooled(made: Sequence[Measurement]) -> Measurement:
    """Pool several processes: all their samples, the median of each metric, and each process's own values."""
    first = made[0]
    if len(made) == 1:
        return first
    names = dict.fromkeys(name for measurement in made for name in measurement.metrics)
    return dataclasses.replace(
        first,
        samples=tuple(sample for measurement in made for sample in measurement.samples),
        metrics={
            name: (_worst if name in _DISTURBING else _median)([m.metrics[name] for m in made if name in m.metrics])
            for name in names
        },
        processes=tuple(map(values, made)),
        accelerator=tuple(moment for measurement in made for moment in measurement.accelerator),
        passes=tuple(each for measurement in made for each in measurement.passes),
    )


# If one process was disturbed, the pooled measurement counts as disturbed.
_DISTURBING = ("other_load", "latency_drift")


def _worst(metrics: Sequence[Metric]) -> Metric:
    return max(metrics, key=lambda metric: abs(metric.value or 0.0))


def _median(metrics: Sequence[Metric]) -> Metric:
    # One process may have enough rounds for a percentile, and the next one too few.
    known = [(metric, metric.value) for metric in metrics if metric.value is not None]
    if not known:
        return metrics[0]
    first, _ = known[0]
    source = f"{first.source}; median of {len(known)} processes"
    return dataclasses.replace(first, value=statistics.median(value for _, value in known), source=source)


# The times of the process that compiles a program.
_COMPILING = ("trace_time", "compile_time")


def compiled_by(made: Measurement, measured: Measurement) -> Measurement:
    """A measurement of a program that was loaded, with the times of the process that compiled it."""
    metrics = {**measured.metrics, **{name: made.metrics[name] for name in _COMPILING if name in made.metrics}}
    if (steady := metrics.get("time_to_steady")) and steady.value is not None:
        compiled, loaded = made.compiling or 0.0, measured.compiling or 0.0
        metrics["time_to_steady"] = dataclasses.replace(steady, value=steady.value + compiled - loaded)
    stages = {name: made.stages.get(name, 0.0) + seconds for name, seconds in measured.stages.items()}
    overhead = (made.overhead_s or 0.0) + (measured.overhead_s or 0.0)
    return dataclasses.replace(measured, metrics=metrics, stages=stages, overhead_s=overhead)


def same_texts(texts: Texts, measurement: Measurement) -> Measurement:
    """Fail a measurement whose process has read other texts than the run began with."""
    differing = [] if measurement.failure else texts.unlike(measurement.sources)
    return dataclasses.replace(measurement, samples=(), failure=unlike(differing)) if differing else measurement
