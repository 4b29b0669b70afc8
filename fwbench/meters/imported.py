"""Frameworks of other lanes that a process has imported, for instance by a stray `import torch` in a JAX network."""

import dataclasses
from collections.abc import Container, Mapping, Sequence

from fwbench.record.lanes import LANES, Lane
from fwbench.record.measurement import Metric

# Metrics that include the memory of such a framework. A device's allocator counts the lane's own framework alone.
_HOLDING = ("host_initial_memory", "host_peak_memory")


def also_imported(lane: Lane, before: Container[str], now: Container[str]) -> list[str]:
    """The frameworks of other lanes among the modules loaded now that were not loaded before any of the user's.

    A framework may itself import another one that is installed.
    """
    others: dict[str, str] = {}
    for other in LANES.values():
        # Several lanes may need one distribution, as torch and torch-aoti do: it is named once, by the first.
        if not other.internal and other.distributions[0] not in lane.distributions:
            others.setdefault(other.distributions[0], other.framework)
    names = {framework: (framework, distribution.replace("-", "_")) for distribution, framework in others.items()}
    return [
        framework for framework, modules in names.items() if any(name in now and name not in before for name in modules)
    ]


def with_others(metrics: Mapping[str, Metric], others: Sequence[str]) -> dict[str, Metric]:
    """The metrics of a process that holds other frameworks, too: its memory is an upper bound for its own framework."""
    return {
        name: dataclasses.replace(metric, source=f"{metric.source}, {' and '.join(others)} among them", at_most=True)
        if name in _HOLDING and metric.value is not None
        else metric
        for name, metric in metrics.items()
    }
