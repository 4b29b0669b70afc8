"""Energy: joules per sample, with and without what the device draws when idle.

    idle window            load window
    |<---- settle ---->|<-- idle -->|<------ steps, pipelined ------>|
                       e0           e1                               e2

A counter that moves every 100 ms is off by at most that much at either end, so windows are seconds long.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol as TypingProtocol

from fwbench.frameworks.contract import Program
from fwbench.machine import nvml
from fwbench.meters.latency import Clock
from fwbench.record.measurement import Metric, unavailable

# Ten times the counters' resolution: a shorter window could be a tenth off.
SHORTEST_WINDOW = 1.0
_SETTLE = 1.0


class Counter(TypingProtocol):
    """A running total of joules."""

    name: str

    def read(self) -> float:
        """Joules since some fixed moment."""


class NvmlCounter:
    """The GPU's own total-energy counter."""

    name = "NVML total energy counter (whole GPU, about 100 ms resolution)"

    def __init__(self, gpu: nvml.Gpu) -> None:
        self._gpu = gpu

    def read(self) -> float:
        return self._gpu.energy()


class RaplCounter:
    """Intel's and AMD's running average power limit counters, summed over packages; `read` corrects a wrap-around."""

    name = "RAPL package counters (CPU packages, without memory)"

    def __init__(self, packages: list[Path]) -> None:
        self._packages = [
            (package / "energy_uj", int((package / "max_energy_range_uj").read_text())) for package in packages
        ]
        self._last = [int(path.read_text()) for path, _ in self._packages]
        self._total = 0

    def read(self) -> float:
        for index, (path, wrap) in enumerate(self._packages):
            now = int(path.read_text())
            delta = now - self._last[index]
            self._total += delta if delta >= 0 else delta + wrap + 1
            self._last[index] = now
        return self._total / 1e6


def counter(device: str, powercap: Path = Path("/sys/class/powercap")) -> Counter | str:
    """The energy counter of the device that computes, or one sentence on why there is none."""
    if device == "gpu":
        gpu = nvml.find()
        if isinstance(gpu, str):
            return gpu
        try:
            gpu.energy()
        except Exception as error:  # pynvml's own hierarchy, which exists only where pynvml does
            return f"{gpu.name} has no energy counter ({error})"
        return NvmlCounter(gpu)
    packages = sorted(powercap.glob("*-rapl:?"))
    if not packages:
        return "this CPU or virtual machine shows no RAPL energy counters"
    try:
        return RaplCounter(packages)
    except PermissionError:
        return f"reading {packages[0].name}/energy_uj under {powercap} needs root or a changed file mode"


def energy(
    program: Program,
    meter: Counter | str,
    batch_size: int,
    window: float,
    clock: Clock,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, Metric]:
    """Read a counter around an idle and a loaded window.

    Args:
        program: compiled and warm.
        meter: the counter, or why there is none.
        batch_size: samples per call.
        window: seconds of load; the idle window is as long.
        clock: seconds.
        sleep: lets seconds pass.

    Returns:
        `energy_per_sample` and `energy_per_sample_net` (without the idle share) in joules, `power_idle` and
        `power_load` in watts.
    """
    if not isinstance(meter, str) and window < SHORTEST_WINDOW:
        meter = f"a window of {window:g} s is too short for the counter: at least {SHORTEST_WINDOW:g} s are needed"
    if isinstance(meter, str):
        return {
            name: unavailable("energy counter", meter)
            for name in ("energy_per_sample", "energy_per_sample_net", "power_idle", "power_load")
        }
    sleep(_SETTLE)
    before, start = meter.read(), clock()
    sleep(window)
    idle_power = (meter.read() - before) / (clock() - start)

    calls = 0
    before, start = meter.read(), clock()
    now = start
    while now < start + window:
        # A short run of calls keeps the device busy and the window's end in reach.
        for _ in range(4):
            program.step()
        program.wait()
        calls += 4
        now = clock()
    joules = meter.read() - before
    seconds = now - start
    samples = calls * batch_size
    source = f"{meter.name}; {seconds:.1f} s, {calls} calls"
    net = joules - idle_power * seconds
    return {
        "energy_per_sample": Metric(joules / samples, source),
        "energy_per_sample_net": Metric(net / samples, f"{source}; idle share taken off"),
        "power_idle": Metric(idle_power, f"{meter.name}; {window:.1f} s, program loaded, no calls"),
        "power_load": Metric(joules / seconds, source),
    }
