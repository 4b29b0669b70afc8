"""A workload measured in several processes one after another, and their measurements made one."""

import dataclasses
import statistics
from collections.abc import Callable, Sequence

from fwbench.compare.criteria import values
from fwbench.record.measurement import Measurement, Metric


def repeated(once: Callable[[], Measurement], count: int, tell: Callable[[str], None]) -> Measurement:
    """Measure so many times, and pool what is found; the first failure is what is found.

    Args:
        once: measures in one process.
        tell: called as each process after the first begins.
    """
    found: list[Measurement] = []
    while len(found) < count:
        if found:
            tell(f"process {len(found) + 1}")
        one = once()
        if one.failure:
            return one
        if found and (one.workload, one.fallback) != (found[0].workload, found[0].fallback):
            # With a smaller batch or fallback flags, as all processes of it will be from now on.
            found = []
        found.append(one)
    return pooled(found)


def pooled(found: Sequence[Measurement]) -> Measurement:
    """One measurement of those of several processes: all samples, the median of each metric, and each one's values."""
    first = found[0]
    if len(found) == 1:
        return first
    names = dict.fromkeys(name for one in found for name in one.metrics)
    return dataclasses.replace(
        first,
        samples=tuple(sample for one in found for sample in one.samples),
        metrics={
            name: (_worst if name in _DISTURBING else _median)([m.metrics[name] for m in found if name in m.metrics])
            for name in names
        },
        processes=tuple(map(values, found)),
        accelerator=tuple(moment for one in found for moment in one.accelerator),
    )


# What tells that a process was disturbed: one of them is enough for the numbers of all.
_DISTURBING = ("other_load", "latency_drift")


def _worst(metrics: Sequence[Metric]) -> Metric:
    return max(metrics, key=lambda metric: abs(metric.value or 0.0))


def _median(metrics: Sequence[Metric]) -> Metric:
    # One process may have rounds enough for a percentile, and the next one not.
    known = [(metric, metric.value) for metric in metrics if metric.value is not None]
    if not known:
        return metrics[0]
    first, _ = known[0]
    source = f"{first.source}; median of {len(known)} processes"
    return dataclasses.replace(first, value=statistics.median(value for _, value in known), source=source)
