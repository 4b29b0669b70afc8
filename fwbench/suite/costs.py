"""Estimated durations of benchmarks that no record has timed yet: a table of rough figures, each row with its source.

    device, lane, model, mode -> seconds until the program is ready, seconds of a call, seconds of each sample in it

A row without a model holds for every other model. docs/method.md says where the figures come from.
"""

import csv
import functools
from dataclasses import dataclass
from importlib.resources import files

from fwbench.record.lanes import LANES
from fwbench.record.workload import Workload

# Threads with which a CPU's figures were measured; with more threads a sample takes less.
_THREADS = 2

# Samples in a pass over data that are read faster than any model trains on them. For other data, reading decides.
_SAMPLES = {"digits": 1797, "synthetic": 768}


@dataclass(frozen=True)
class Cost:
    """The duration of one workload, in seconds.

    Attributes:
        ready: everything but calls, which are the same whatever the protocol's amounts: the process's start, building,
            compiling, the probe, the fingerprint.
        call: of one call.
    """

    ready: float
    call: float


def cost(workload: Workload, threads: int) -> Cost | None:
    """The table's figures for a workload; None if it has none: epochs over data that take long to read.

    Args:
        threads: of the lane, on a CPU.
    """
    if workload.mode != "fit":
        return _look_up(workload, workload.mode, threads)
    if workload.data not in _SAMPLES:
        return None
    step = _look_up(workload, "train_step", threads)
    steps = _SAMPLES[workload.data] / workload.batch_size * workload.epochs
    return Cost(step.ready + _start("data", workload.device) + steps * step.call, 0.0)


def start(workload: Workload) -> float:
    """Seconds until a server of the workload's lane can fork processes: mostly its framework's import."""
    return 0.1 if LANES[workload.lane].internal else _start(LANES[workload.lane].framework, workload.device)


def _look_up(workload: Workload, mode: str, threads: int) -> Cost:
    table, lane = _table(), LANES[workload.lane]
    # Compiling for a GPU takes as long on a machine without one.
    device = "gpu" if workload.target else workload.device
    # A lane from another package is assumed to compile as JAX does.
    known = lane.name if (device, lane.name, "", mode) in table else "noop" if lane.internal else "jax"
    ready, call, sample = table.get((device, known, workload.model, mode)) or table[device, known, "", mode]
    if device == "cpu":
        sample *= _THREADS / threads
    return Cost(ready, call + sample * workload.batch_size)


def _start(what: str, device: str) -> float:
    table = _table()
    ready, _, _ = table.get((device, what, "", "start")) or table[device, "", "", "start"]
    return ready


@functools.cache
def _table() -> dict[tuple[str, str, str, str], tuple[float, float, float]]:
    text = files(__package__).joinpath("costs.csv").read_text(encoding="utf-8")
    return {
        (row["device"], row["lane"], row["model"], row["mode"]): (
            float(row["ready_s"]),
            float(row["call_s"]),
            float(row["sample_s"]),
        )
        for row in csv.DictReader(text.splitlines())
    }
