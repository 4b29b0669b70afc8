"""Combines the measurements of several ranks into one: a call is done when the last rank is."""

import dataclasses
from collections.abc import Sequence

from fwbench.meters.latency import drift, percentiles
from fwbench.record.measurement import CHANGED, NO_SCALING, Measurement, Metric, Rank, unavailable
from fwbench.worker.process.job import ELSEWHERE
from fwbench.worker.texts import unlike

# Metrics that are summed over all devices.
_SUMMED = ("energy_per_sample", "energy_per_sample_net", "power_idle", "power_load", "epoch_energy")
# Metrics that the record holds for each rank too: those of its own clock and its own device.
OF_A_RANK = (
    *("latency_p50", "throughput", "epoch_time", "device_peak_memory", "process_device_memory", "host_peak_memory"),
    *(*_SUMMED, "join_time"),
)
# Metrics that the ranks agree on, so that each rank has the same value.
_SHARED = (
    "train_loss",
    "train_top1",
    *(f"{split}_{name}" for split in ("validation", "test") for name in ("loss", "top1", "top5")),
)


def combined(measurements: Sequence[Measurement], places: Sequence[Rank]) -> Measurement:
    """Combine the measurements of all ranks, which made the same calls over the whole batch, and their places."""
    first = measurements[0]
    samples = tuple(map(max, zip(*(one.samples for one in measurements), strict=True)))
    metrics = {name: _of_all(name, [one.metrics[name] for one in measurements]) for name in first.metrics}
    if "latency_p50" in metrics:
        metrics |= percentiles(samples)
        metrics["latency_drift"] = drift(samples)
    size = len(measurements)
    clock = "epoch_time" if first.workload.mode == "fit" else "latency_p50"
    times = [value for one in measurements if (value := one.value(clock)) is not None]
    if samples:
        source = f"median {'epoch' if clock == 'epoch_time' else 'call'} of each of {size} ranks"
        metrics["rank_spread"] = (
            Metric(max(times) / min(times) - 1, source)
            if len(times) == size
            else unavailable(source, f"not every rank has a {clock}")
        )
    settings = dict(first.settings)
    if all("cpus" in one.settings for one in measurements):
        settings["cpus"] = sorted({cpu for one in measurements for cpu in one.settings["cpus"]})
    if first.workload.device == "cpu":
        settings["caution"] = f"{settings['caution']}; {NO_SCALING}" if CHANGED in settings else NO_SCALING
    sources = {name: read for one in reversed(measurements) for name, read in one.sources.items()}
    differing = [name for name, of in sources.items() if any(one.sources.get(name, of) != of for one in measurements)]
    return dataclasses.replace(
        first,
        samples=() if differing else samples,
        failure=unlike(differing) if differing else None,
        sources=sources,
        metrics=metrics,
        settings=settings,
        accelerator=tuple(moment for one in measurements for moment in one.accelerator),
        passes=tuple(each for one in measurements for each in one.passes),
        ranks=tuple(_rank(one, place, first, size) for one, place in zip(measurements, places, strict=True)),
    )


def _rank(one: Measurement, place: Rank, first: Measurement, size: int) -> Rank:
    values = {name: value for name in OF_A_RANK if (value := one.value(name)) is not None}
    # Over the samples that the rank itself computed.
    values |= {name: values[name] / size for name in ("throughput",) if name in values}
    differing = {
        name: value for name, value in one.settings.items() if name != "cpus" and first.settings.get(name) != value
    }
    return dataclasses.replace(place, metrics=values, settings=differing)


def _of_all(name: str, metrics: Sequence[Metric]) -> Metric:
    """Combine one metric of all ranks."""
    size = len(metrics)
    if name in _SHARED:
        return metrics[0]
    if name in _SUMMED:
        metrics = [metric for metric in metrics if metric.reason != ELSEWHERE]
    lacking = [metric for metric in metrics if metric.value is None]
    if lacking:
        return lacking[0]
    values = [metric.value for metric in metrics if metric.value is not None]
    if name in _SUMMED:
        return dataclasses.replace(metrics[0], value=sum(values), source=f"{metrics[0].source}; sum over {size} ranks")
    # The lowest throughput; of all else the highest: the slowest time, the largest memory, the worst load.
    choose = min if name == "throughput" else max
    chosen = metrics[values.index(choose(values))]
    which = "slowest" if name == "throughput" else "largest"
    return dataclasses.replace(
        chosen,
        source=f"{chosen.source}; the {which} of {size} ranks",
        at_most=any(metric.at_most for metric in metrics),
    )
