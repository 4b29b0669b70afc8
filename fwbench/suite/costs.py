"""Rough durations of benchmarks that no record has timed yet; docs/options.md says where the figures come from.

    device, lane, model, mode -> seconds until the program is ready, seconds of a call, seconds of each sample in it

A row without a model holds for every other model.
"""

import csv
import functools
from importlib.resources import files
from typing import NamedTuple

from fwbench.record.lanes import LANES
from fwbench.record.workload import STATEFUL, Workload

# Threads with which a CPU's figures were measured; with more threads a sample takes less.
_THREADS = 2

# Modes that use the figures of another mode.
_LIKE = {"fit": "train_step", **dict.fromkeys(STATEFUL, "inference")}

# Samples of an epoch, for data that are read faster than any model trains on them. For other data, reading decides.
_SAMPLES = {"digits": 1797, "synthetic": 768}


class Cost(NamedTuple):
    """Seconds of all but the calls (start, building, compiling, probe, fingerprint), and of one call."""

    ready: float
    call: float


def cost(workload: Workload, threads: int) -> Cost | None:
    """The cost of a workload with this many threads; None for epochs over data that take long to read."""
    if workload.mode == "fit" and workload.data not in _SAMPLES:
        return None
    table, lane = _table(), LANES[workload.lane]
    mode = _LIKE.get(workload.mode, workload.mode)
    # Compiling for a GPU takes as long on a machine without one.
    device = "gpu" if workload.target else workload.device
    # A lane from another package is assumed to compile as JAX does.
    own = workload.runner
    known = own if (device, own, "", mode) in table else "noop" if lane.internal else "jax"
    ready, call, sample = table.get((device, known, workload.model, mode)) or table[device, known, "", mode]
    call += sample * workload.samples * (_THREADS / threads if device == "cpu" else 1)
    if workload.mode != "fit":
        return Cost(ready, call)
    steps = _SAMPLES[workload.data] / workload.batch_size * workload.epochs
    return Cost(ready + _start("data", workload.device) + steps * call, 0.0)


def once(workload: Workload) -> float:
    """Seconds that a lane's first benchmark in a precision spends for later ones: on ceilings, and on a slow probe."""
    return _table().get((workload.device, workload.runner, "", "once"), (0.0,))[0]


def start(workload: Workload) -> float:
    """Seconds until a server of the workload's lane can fork processes: mostly its framework's import."""
    return 0.1 if LANES[workload.lane].internal else _start(LANES[workload.lane].framework, workload.device)


def _start(what: str, device: str) -> float:
    return (_table().get((device, what, "", "start")) or _table()[device, "", "", "start"])[0]


@functools.cache
def _table() -> dict[tuple[str, ...], tuple[float, ...]]:
    # The last column names the figures' source.
    _, *rows = csv.reader(files(__package__).joinpath("costs.csv").read_text(encoding="utf-8").splitlines())
    return {(device, lane, model, mode): tuple(map(float, of)) for device, lane, model, mode, *of, _ in rows}
