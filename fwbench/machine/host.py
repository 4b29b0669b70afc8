"""The machine's fingerprint, read without importing a framework."""

import contextlib
import os
import platform
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path

from fwbench.machine import holes, nvml
from fwbench.machine.oom import host_memory
from fwbench.record.files import content
from fwbench.record.machine import Machine


@cache
def machine() -> Machine:
    """This machine, as seen by this process: its CPU affinity and `CUDA_VISIBLE_DEVICES` count."""
    gpu = nvml.find()
    of_gpu = gpu if isinstance(gpu, nvml.Gpu) else None
    cpus = cpus_near([of_gpu] if of_gpu else [])
    quota = holes.quota()
    return Machine(
        device="gpu" if of_gpu else "cpu",
        accelerator=of_gpu.name if of_gpu else str(gpu),
        driver=of_gpu.driver if of_gpu else None,
        accelerator_memory=of_gpu.memory if of_gpu else None,
        cpu=_cpuinfo("model name") or platform.processor() or platform.machine(),
        cpus=cpus,
        threads=len(cpus),
        memory=host_memory(),
        kernel=f"{platform.system()} {platform.release()}",
        power_limit=of_gpu.state().power_limit if of_gpu else None,
        # A quota limits nothing unless it is below the number of CPUs that the process may use.
        quota=quota if quota is not None and quota < len(affinity()) else None,
    )


def cpus_near(gpus: Sequence[nvml.Gpu]) -> tuple[int, ...]:
    """A logical CPU of each physical core that this process may use near these GPUs; of all if none is known."""
    mine = affinity()
    near = {cpu for gpu in gpus for cpu in gpu.near()}
    return physical_cores(mine & near or mine)


def physical_cores(cpus: set[int], topology: Path = Path("/sys/devices/system/cpu")) -> tuple[int, ...]:
    """The lowest-numbered logical CPU of each physical core among `cpus`; all of them if cores are unknown."""
    cores: dict[str, int] = {}
    for cpu in sorted(cpus):
        siblings = content(topology / f"cpu{cpu}" / "topology" / "thread_siblings_list")
        cores.setdefault(siblings or str(cpu), cpu)
    return tuple(cores.values())


def versions(distributions: Iterable[str]) -> dict[str, str]:
    """Installed versions in this interpreter, by distribution; those not installed are left out.

    A version is looked up, which takes a millisecond, once in a process: imported modules stay what they were, too.
    """
    return {name: version for name in distributions if (version := _version(name)) is not None}


@cache
def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def affinity() -> set[int]:
    """The CPUs that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def cpu_vendor() -> str:
    """The CPU's vendor, as Linux reports it: `GenuineIntel`, `AuthenticAMD`; elsewhere the architecture."""
    return _cpuinfo("vendor_id") or platform.machine()


def last_cache(caches: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> int:
    """Bytes of the first CPU's largest cache, as the kernel reports it; 0 if it does not."""
    sizes = []
    for file in caches.glob("index*/size"):
        with contextlib.suppress(ValueError):
            # As in 2048K.
            sizes.append(int(content(file).removesuffix("K")) * 1024)
    return max(sizes, default=0)


def _cpuinfo(name: str) -> str:
    """The field of this name in /proc/cpuinfo, for the first CPU; empty if there is none."""
    lines = content(Path("/proc/cpuinfo")).splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")
