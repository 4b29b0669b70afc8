"""The looks of `fwbench doctor` at all that numbers depend on; they change nothing and import no framework."""

import os
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fwbench import units
from fwbench.commands.doctor.card import Card, dotted
from fwbench.commands.doctor.findings import QUIET, Finding
from fwbench.errors import Absent
from fwbench.machine import Machine, cpu_vendor, nvml, versions
from fwbench.machine.load import OtherLoad, disturbs, needed
from fwbench.meters.energy import Counter
from fwbench.record import files
from fwbench.record.lanes import LANES, Lane
from fwbench.record.storage import STORAGE

_WATCHED = 1.0  # seconds
_CPUS = "devices/system/cpu"  # in sysfs

# Tested versions that an older Python cannot have: `constraints.txt` holds an older version for that one.
NEEDS_PYTHON: Mapping[str, tuple[int, int]] = {"jax 0.12": (3, 12)}


def public_lanes() -> list[Lane]:
    """All lanes but the harness's own."""
    return [lane for lane in LANES.values() if not lane.internal]


def lacking(lane: Lane) -> list[str]:
    """The distributions that the lane needs and that are not installed."""
    installed = versions(lane.distributions)
    return [name for name in lane.distributions if name not in installed]


def other_load(watch: OtherLoad, device: str, seconds: float, *, whole: bool) -> Finding:
    """The load of other processes over so many seconds: the `whole` time that numbers come from, or a moment."""
    load = watch.read()
    if load.value is None:
        return Finding("other load", str(load.reason), "watch the machine yourself")
    step = QUIET if disturbs(load.value, needed(device, watch.cpus)) else ""
    found = f"{load.value:.1%} of the CPUs, over {seconds:.0f} s"
    return Finding("other load", found, step, bad=whole)


@dataclass(frozen=True)
class Looks:
    """A look at each thing that numbers depend on; `meter` is the device's energy counter, `system` sysfs."""

    machine: Machine
    gpu: nvml.Gpu | Absent
    meter: Counter | Absent
    environment: Mapping[str, str]
    system: Path = Path("/sys")
    python: tuple[int, ...] = sys.version_info[:3]

    def findings(self) -> list[Finding]:
        """All findings, in the order in which they are shown."""
        looks = (
            *(self._load, self._lanes, self._python, self._gpu, self._energy, self._cpus, self._governor, self._boost),
            *(self._environment, self._host_memory, self._storage),
        )
        return [finding for look in looks for finding in look()]

    def _load(self) -> Iterator[Finding]:
        watch = OtherLoad()
        time.sleep(_WATCHED)
        yield other_load(watch, self.machine.device, _WATCHED, whole=False)

    def _lanes(self) -> Iterator[Finding]:
        missing = {lane.name: lacking(lane) for lane in public_lanes()}
        for lane in public_lanes():
            names, ours = missing[lane.name], lane.package == "fwbench"
            found, step = ", ".join(f"{name} {version}" for name, version in versions(lane.distributions).items()), ""
            if names:
                found = f"not installed in {sys.executable}, Python {dotted(self.python)}: {', '.join(names)}"
                # fwbench's own lanes have extras of their frameworks' names.
                wanted = f"'fwbench[{lane.framework}]'" if ours else " ".join(names)
                step = f"`pip install {wanted}`, or name its interpreter: --fwbench-python {lane.framework}=PATH"
            if not ours:
                found += f"; the lane comes from {' '.join((lane.package, *versions((lane.package,)).values()))}"
            yield Finding(lane.name, found, step, bad=all(missing.values()))

    def _python(self) -> Iterator[Finding]:
        needs = [(what, dotted(needed)) for what, needed in NEEDS_PYTHON.items() if self.python < needed]
        if self.python == (3, 13, 0):
            # PyTorch's own warning (torch/_dynamo/guards.py).
            needs.append(("torch-compile at full speed", "3.13.1"))
        found = "".join(f"; {what} needs {version} or newer" for what, version in needs)
        yield Finding("Python", f"{dotted(self.python)}{found}", "install fwbench with a newer Python" if needs else "")

    def _gpu(self) -> Iterator[Finding]:
        if isinstance(self.gpu, Absent):
            yield Finding("GPU", f"{self.gpu}; measuring on the CPU", self.gpu.next_step)
        else:
            yield from Card(self.gpu, self.environment, self.gpu.state()).findings()

    def _energy(self) -> Iterator[Finding]:
        if not isinstance(self.meter, Absent):
            yield Finding("energy", self.meter.name)
            return
        step = self.meter.next_step or "energy stays absent from the records, with this reason"
        yield Finding("energy", f"of the {self.machine.device}: {self.meter}", step)

    def _cpus(self) -> Iterator[Finding]:
        here, quota, step = self.machine, self.machine.quota, ""
        found = f"{here.cpu} ({cpu_vendor()}), {here.threads} physical cores for every lane, {units.size(here.memory)}"
        if quota is not None and quota < here.threads:
            # The quota holds threads back while they are timed; below 1, even a single thread.
            found += f"; a quota of the control group allows {quota:g} CPUs"
            fewer = f", or measure with --fwbench-threads={int(quota)}" if quota >= 1 else ""
            step = f"raise it (cpu.max, `docker --cpus`, `limits.cpu`) to {here.threads} or more{fewer}"
        yield Finding("CPU", found, step, bad=True)

    def _governor(self) -> Iterator[Finding]:
        paths = self.system.glob(f"{_CPUS}/cpu[0-9]*/cpufreq/scaling_governor")
        governors = sorted({text for path in paths if (text := files.content(path))})
        found = ", ".join(governors) or "the system shows none: a virtual machine, or no frequency scaling"
        own = "prefer a machine of your own for CPU numbers, or several runs (fwbench report takes them together)"
        step = "`sudo cpupower frequency-set -g performance`" if governors else own
        yield Finding("CPU governor", found, "" if governors == ["performance"] else step)

    def _boost(self) -> Iterator[Finding]:
        off = {"intel_pstate/no_turbo": "1", "cpufreq/boost": "0"}
        there = {switch: text for switch in off if (text := files.content(self.system / _CPUS / switch))}
        found, step = "off: the clock does not depend on heat" if there else "the system shows no switch", ""
        if there and not there.items() & off.items():
            switch, found = next(iter(there)), "on: the clock moves with load and heat"
            step = f"for steadier, slower numbers: `echo {off[switch]} | sudo tee /sys/{_CPUS}/{switch}`"
        yield Finding("CPU boost", found, step)

    def _environment(self) -> Iterator[Finding]:
        lanes = public_lanes()
        caches = sorted({variable for lane in lanes for variable in lane.caches})
        notes = [f"{variable} is set; " for variable in caches if self.environment.get(variable)]
        yield Finding("compiler caches", f"{''.join(notes)}workers start with empty ones, so compile times are true")
        prefixes = ("MALLOC_", "GLIBC_TUNABLES", "LD_PRELOAD", *(prefix for lane in lanes for prefix in lane.recorded))
        overridden = {variable for lane in lanes for variable in (*lane.environment, *lane.caches, *lane.sharing)}
        if changed := sorted(name for name in self.environment.keys() - overridden if name.startswith(prefixes)):
            found = f"{', '.join(changed)} set: workers inherit that, and records say so"
            yield Finding("environment", found, f"`unset {' '.join(changed)}` unless it is what you want to measure")

    def _host_memory(self) -> Iterator[Finding]:
        resets = os.access("/proc/self/clear_refs", os.W_OK)
        found = "lets the peak be reset before each reading" if resets else "resets no peak, so that it is absent"
        yield Finding("host memory", f"the kernel {found}", "" if resets else "measure on Linux")

    def _storage(self) -> Iterator[Finding]:
        folder, reason = STORAGE.absolute(), files.unwritable(STORAGE.absolute())
        found = f"{folder}{reason and f' cannot be written ({reason})'}"
        yield Finding("storage", found, reason and "change to a folder of your own", bad=True)
