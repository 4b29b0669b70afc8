"""The start of a process by pytest's side: its command, its configuration and its environment."""

import errno
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fwbench import git
from fwbench.errors import UserError, exhausted
from fwbench.machine import nvml
from fwbench.record.lanes import Lane

# The folder of this fwbench.
PACKAGE = Path(__file__).resolve().parents[2]
_START = PACKAGE / "worker" / "process" / "start.py"
SERVER = PACKAGE / "worker" / "process" / "server.py"

# Seconds of silence after which a starting server has failed: importing a framework from a cold disk takes long.
START_DEADLINE = 180.0

# glibc's defaults map and unmap large blocks at every call. That costs thousands of page faults and a third of the
# time, and is the largest source of differences between processes. If the user has set such a
# variable, none of these is set.
STABLE_ALLOCATOR = {
    # By default each thread has an arena of its own, which holds no block of 64 MiB; XLA computes on such a thread.
    "MALLOC_ARENA_MAX": "1",
    # MALLOC_MMAP_THRESHOLD_ will not do: glibc before 2.35 refuses more than 32 MiB and then maps all above 128 KiB.
    "MALLOC_MMAP_MAX_": "0",
    # More bytes than any machine has, so that the heap returns nothing. The memory pass trims the heap itself.
    "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
}

# Forking a process that has loaded frameworks is safe only on Linux: elsewhere each job gets a new server.
FORKS = sys.platform == "linux"

# Files that a run's own process needs: those of pytest, and up to six for the server of each of its lanes.
_FILES = 64


def require_files() -> None:
    """See that a run's process may open its files, or raise a UserError."""
    if sys.platform != "win32":
        import resource

        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if most != resource.RLIM_INFINITY and most < _FILES:
            advice = exhausted(OSError(errno.EMFILE, ""))
            raise UserError(f"this process may open {most} files, and a run needs {_FILES}: {advice}")


def command(python: str, script: Path, *arguments: str, package: Path = PACKAGE) -> list[str]:
    """The command that runs a script under an interpreter, with this `fwbench` and that interpreter's packages."""
    return [python, "-P", str(_START), str(package), str(script), *arguments]


def configuration(lane: Lane, cpus: Sequence[int], scratch: str) -> dict[str, Any]:
    """The configuration that starts a lane's server: imports, CPUs, and its folder for temporary files."""
    return {"lane": lane.to_json(), "cpus": cpus, "fork": FORKS, "scratch": scratch}


def environment(
    base: Mapping[str, str], threads: int, device: str, lane: Lane, devices: int | None = 1
) -> dict[str, str]:
    """The environment of a lane's worker: one thread count for every library, a stable allocator, the lane's own.

    All processes of a workload share the threads, and use so many of this host's devices; None: a launcher has shown
    this process its own.
    """
    # With a git hook's variables, code that asks git would see the hook's repository on every side.
    variables = git.unbound(base)
    if not any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in base):
        variables |= STABLE_ALLOCATOR
    if devices and lane.in_ranks(devices, device):
        threads = max(1, threads // devices)
    variables |= {
        "OMP_NUM_THREADS": str(threads),
        # NumPy only prepares batches; its thread pool would be threads in a process that forks.
        "OPENBLAS_NUM_THREADS": "1",
    }
    if device == "gpu" and devices and (gpus := nvml.visible(devices)):
        # CUDA and NVML number GPUs differently, and a framework may open every GPU that it sees.
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(gpu.uuid for gpu in gpus)
    return variables | lane.variables(threads, device)


def allocated(environment: Mapping[str, str]) -> bool:
    """True if Slurm has given this process several nodes, over which srun spreads the ranks."""
    nodes = environment.get("SLURM_JOB_NUM_NODES", "1")
    return "SLURM_JOB_ID" in environment and nodes.isdecimal() and int(nodes) > 1
