"""One rank of a workload over several devices: started once per device by a launcher, and run by `start`.

    launcher           rank 0                           rank 1 ...
      | -- starts --->  | <------- star of ranks -------> |
      |                 | pins itself, imports, joins, checks, builds, measures, all like every other
      | <- {"ranks"} -- |                                 |
      | <- {"stage"} -- |                                 |
      | <- {"measurement"} of all                         |

Only the first rank writes messages to standard output; the others write to standard error. A rank that fails by
itself says so in a message of its own, in a single short write that no other write can interrupt, and ends at once, so
that the others do not wait for it. The job is in the environment, which every launcher passes on.
"""

import faulthandler
import gc
import json
import os
import select
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from fwbench import frameworks
from fwbench.ext.cluster.ranks import star as joining
from fwbench.ext.cluster.ranks.star import JOB, LOST, TOLD, RankError, Star
from fwbench.ext.cluster.ranks.together import combined
from fwbench.frameworks.contract import LostError
from fwbench.machine import machine, nvml
from fwbench.machine.host import physical_cores
from fwbench.record.lanes import Lane
from fwbench.record.measurement import Failure, Measurement, Rank
from fwbench.worker.process.job import own_gpu
from fwbench.worker.process.pipes import Pipes
from fwbench.worker.process.run import measure

Send = Callable[[Mapping[str, Any]], None]


def main() -> int:
    """Run this process's part of the job that the environment holds, and return its exit code."""
    began = _began()
    send = Pipes().send
    faulthandler.enable()
    job = json.loads(os.environ.pop(JOB))
    lane = Lane.from_json(job["lane"])
    place = None
    try:
        place = joining.place(os.environ)
        if place is None:
            raise RankError("no launcher has given this process a rank: start it by torchrun or srun")
        devices = job["workload"]["devices"]
        if place.size != devices:
            raise RankError(f"{place.launcher} started {place.size} ranks, and the workload has {devices} devices")
        star = Star(place, job["joining"])
    except (RankError, LostError) as error:
        send({"failure": vars(Failure("error", str(error), "join")), "rank": place.rank if place else 0})
        return TOLD
    try:
        return _run(lane, job, star, send, began)
    except LostError:
        return LOST


def _run(lane: Lane, job: Mapping[str, Any], star: Star, send: Send, began: float) -> int:
    host = socket.gethostname()
    gpu = nvml.find(number=own_gpu(star)) if job["workload"]["device"] == "gpu" else None
    mine = pin(star, host, gpu.near() if isinstance(gpu, nvml.Gpu) else set())
    if job["threads"] and mine:
        # Only here are the rank's CPUs known, and with them its number of threads.
        threads = len(mine)
        os.environ.update({"OMP_NUM_THREADS": str(threads), **lane.variables(threads, job["workload"]["device"])})
    star.watch()
    here = [host, os.getpid(), sorted(mine)]
    everybody = star.gather(here)
    if star.rank == 0:
        send({"ranks": [{"rank": rank, "host": of, "pid": pid} for rank, (of, pid, _) in enumerate(everybody)]})

    def tell(stage: str) -> None:
        if star.rank == 0:
            send({"stage": stage})

    with suppress(BaseException):
        # The job itself will report what is wrong with the import.
        frameworks.load(lane.adapter).preload(lane.name)
    gc.collect()
    gc.freeze()
    measurement, measuring = measure(lane, job, tell, star, began)
    if measurement.failure and not measuring.agreed:
        send({"failure": _short(measurement.failure), "rank": star.rank})
        return TOLD
    device = gpu.name if isinstance(gpu, nvml.Gpu) else machine().cpu
    reports = star.gather([measurement.to_json(), host, device])
    if star.rank == 0:
        places = [Rank(rank, of, name, tuple(everybody[rank][2])) for rank, (_, of, name) in enumerate(reports)]
        measurements = [Measurement.from_json(one) for one, _, _ in reports]
        whole = measurement if measurement.failure else combined(measurements, places)
        send({"measurement": whole.to_json()})
    # No rank leaves before the record has been written, as a launcher ends all ranks when one fails.
    star.part()
    with suppress(Exception):
        frameworks.load(lane.adapter).leave()
    return 0


def pin(star: Star, host: str, near: set[int]) -> set[int]:
    """Keep this rank to CPUs of its own, as many as every other rank on this host has, and return them.

    If the launcher has given each rank its CPUs, they stay. Else each rank gets an equal part of the physical cores; on
    a GPU, of the cores near it, if these are known, which ranks share if their GPUs have the same cores near.
    """
    if not hasattr(os, "sched_setaffinity"):
        return set()
    affinity = os.sched_getaffinity(0)
    nearest = sorted(affinity & near or affinity)
    everybody = star.gather([host, sorted(affinity), nearest])
    local = [set(cpus) for of, cpus, _ in everybody if of == host]
    if sum(map(len, local)) > len(set().union(*local)):
        numbers = [rank for rank, (of, _, cpus) in enumerate(everybody) if (of, cpus) == (host, nearest)]
        affinity = set(part(physical_cores(set(nearest)), numbers.index(star.rank), len(numbers)))
        os.sched_setaffinity(0, affinity)
    return affinity


def part(cpus: Sequence[int], number: int, size: int) -> Sequence[int]:
    """An equal part of the CPUs; with fewer CPUs than parts, one CPU that other parts share."""
    each = len(cpus) // size
    return cpus[number * each : (number + 1) * each] if each else [cpus[number % len(cpus)]]


def _short(failure: Failure) -> dict[str, Any]:
    """A failure short enough for a pipe to take in one write."""
    fields = dict(vars(failure))
    while len(json.dumps(fields)) > select.PIPE_BUF - 100:
        longest = max(("detail", "message"), key=lambda name: len(fields[name]))
        # The reason stands at the end of an exception's text.
        fields[longest] = fields[longest][len(fields[longest]) // 4 + 1 :]
    return fields


def _began() -> float:
    """The start of this process by `time.perf_counter`; the current time if the system does not report it."""
    now = time.perf_counter()
    if sys.platform != "linux":
        return now
    with open("/proc/self/stat", encoding="utf-8") as file:
        # starttime, in ticks since the boot (Linux, proc_pid_stat(5)).
        ticks = int(file.read().rpartition(")")[2].split()[19])
    return now - (time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    # Skip the interpreter's tear-down: a framework's takes long, and the client would wait for it.
    os._exit(code)
