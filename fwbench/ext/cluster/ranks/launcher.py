"""Starts the ranks of a workload on this host by its lane's launcher and reports how they ended; run by `start`.

It starts `rank` once per device, with this process's environment. The client, which holds the other end of the pipe at
standard input, ends everything by closing it.

    {"ended": {"0": 0, "1": -9}}       each rank's exit code; a signal's number, negated, where one ended it
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from fwbench.ext.cluster.ranks.star import LOCAL, RANK, SIZE
from fwbench.worker.process import lifetime

# Seconds that the other ranks have to end once one has failed, and seconds between two checks.
_ENDS = 5.0
_PAUSE = 0.05


def own(command: Sequence[str], size: int) -> dict[int, int]:
    """Start one process per rank; return the exit codes of the ranks that ended before the others were killed."""
    ranks: dict[int, subprocess.Popen[bytes]] = {}
    for rank in range(size):
        variables = {RANK: str(rank), SIZE: str(size), LOCAL: str(rank)}
        ranks[rank] = subprocess.Popen(command, env={**os.environ, **variables}, stdin=subprocess.DEVNULL)
    while True:
        codes = {rank: code for rank, process in ranks.items() if (code := process.poll()) is not None}
        if any(codes.values()) or len(codes) == size:
            break
        time.sleep(_PAUSE)
    left = [process for rank, process in ranks.items() if rank not in codes]
    for process in left:
        process.terminate()
    until = time.monotonic() + _ENDS
    for process in left:
        try:
            process.wait(timeout=max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    return codes


def torchrun(command: Sequence[str], size: int) -> dict[int, int]:
    """Start the ranks by PyTorch's elastic launcher, without restarts; return the exit codes of those that failed."""
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    # Any, as PyTorch's module has no annotations.
    launcher: Any = run
    # Each run's store has a port of its own.
    options = ["--standalone", "--nnodes=1", f"--nproc-per-node={size}", "--max-restarts=0", "--no-python"]
    try:
        launcher.run(launcher.parse_args([*options, *command]))
    except ChildFailedError as error:
        return {rank: failure.exitcode for rank, failure in error.failures.items()}
    return dict.fromkeys(range(size), 0)


def srun(command: Sequence[str], size: int) -> dict[int, int]:
    """Start the ranks by Slurm on the nodes of its allocation; return the exit codes that srun reports as failed."""
    nodes = min(size, int(os.environ["SLURM_JOB_NUM_NODES"]))
    options = [f"--ntasks={size}", f"--nodes={nodes}", "--overlap", "--kill-on-bad-exit=1", "--input=none"]
    started = subprocess.Popen(
        ["srun", *options, *command], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace"
    )
    codes: dict[int, int] = {}
    assert started.stderr is not None
    for said in started.stderr:
        sys.stderr.write(said)
        sys.stderr.flush()
        if told := _TASK.search(said):
            code = -_SIGNALS[told[2]] if told[2] in _SIGNALS else int(told[3] or 1)
            codes.setdefault(int(told[1]), code)
    started.wait()
    return codes or dict.fromkeys(range(size), started.returncode)


_SIGNALS = {"Killed": signal.SIGKILL, "Terminated": signal.SIGTERM}
# srun reports how a task ended: `srun: error: n2: task 1: Killed`.
_TASK = re.compile(r"task (\d+): (Killed|Exited with exit code (\d+)|[A-Z]\w+)")

_LAUNCHERS = {"fwbench": own, "torchrun": torchrun, "srun": srun}


def main(config: dict[str, Any]) -> None:
    """Start ranks and wait for them; the configuration has `launcher`, a rank's `command`, `size` and all `cpus`."""
    lifetime.end_if_closed(0)
    lifetime.end_when_closed(0)
    if config["cpus"] and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, config["cpus"])
    try:
        codes = _LAUNCHERS[config["launcher"]](config["command"], config["size"])
    except FileNotFoundError as error:
        raise SystemExit(f"{error.filename} is not there") from None
    print(f"\n{json.dumps({'ended': codes})}", flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
    sys.stderr.flush()
    os._exit(0)
