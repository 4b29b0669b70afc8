"""Energy: joules per sample, with and without the share of idle power.

    |<- steps of the throughput pass ->| |<- settle, poll ->|<-- idle -->|
    begun                            e1 | e2

A counter moves in steps (on an H200 every 100 ms), so a reading is up to one step old. A window therefore begins when
the counter has just moved, and ends at its last move before the work ends (e1). No poll sees that move: its time is
that of the next move (e2) minus one step. Polling measures the length of a step; a window of few steps is refused.
"""

import itertools
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from typing import Protocol as TypingProtocol

from fwbench.errors import Absent
from fwbench.machine import nvml
from fwbench.meters.latency import Clock
from fwbench.record.files import content
from fwbench.record.measurement import Metric, unavailable

# Fewest steps of the counter in a window. With fewer, a window over several devices could be off by more than a tenth
# at either end.
_STEPS = 10
# Fewest seconds of a window, however short the steps: a device takes tenths of a second to reach its load's power.
SHORTEST_WINDOW = 1.0
# Seconds of polling before the idle window, while the device settles.
POLLING = 1.0
# From a load of this multiple of the idle power on, another benchmark's idle power may be used: in an H100's run idle
# powers agreed within 3 %, which is then at most 5 % of the power without the idle share.
_CLEAR = 1.6
# Seconds of sleep between two polls. On an H200 in a virtual machine, the reading itself takes another 3.5 ms.
_BETWEEN = 0.001


class Counter(TypingProtocol):
    """A running total of joules."""

    name: str

    @property
    def fault(self) -> str:
        """The error that a reading has shown in the counter, as one sentence; empty if none has."""

    def read(self) -> float:
        """Joules since a fixed moment."""


class NvmlCounter:
    """The GPU's own total-energy counter."""

    name = "NVML total energy counter (whole GPU)"

    def __init__(self, gpu: nvml.Gpu) -> None:
        self._gpu = gpu
        self._last = 0.0
        self.fault = ""

    def read(self) -> float:
        """Joules since the driver was loaded. If reading fails: the last reading, and the reason in `fault`."""
        try:
            now = self._gpu.energy()
        except Exception as error:  # any of pynvml's; times already measured must not be lost
            self.fault = f"the GPU's energy counter could not be read ({error})"
            return self._last
        if now < self._last:
            self.fault = (
                f"the GPU's energy counter fell from {self._last:.0f} J to {now:.0f} J: it started again meanwhile"
            )
        self._last = now
        return now


class SummedCounter:
    """The counters of several devices that one process uses; `parts` has their last readings, and those before."""

    def __init__(self, counters: Sequence[Counter]) -> None:
        self._counters = counters
        self.name = f"{counters[0].name}, sum over {len(counters)} devices"
        self.parts: list[list[float]] = []

    @property
    def fault(self) -> str:
        """The fault of the first counter that has one; empty if none has."""
        return next((each.fault for each in self._counters if each.fault), "")

    def read(self) -> float:
        """Joules of all devices together."""
        # Polling makes thousands of readings; only the last two are needed for `shares`.
        self.parts = [*self.parts[-1:], [each.read() for each in self._counters]]
        return sum(self.parts[-1])

    @property
    def shares(self) -> list[float]:
        """Each device's share of the joules between the last two readings; empty without two, or if none was drawn."""
        drawn = [end - start for start, end in zip(*self.parts, strict=True)] if len(self.parts) > 1 else []
        return [each / sum(drawn) for each in drawn] if sum(drawn) > 0 else []


class RaplCounter:
    """Intel's and AMD's running average power limit counters, summed over packages; `read` corrects a wrap-around."""

    name = "RAPL package counters (CPU packages, without memory)"

    def __init__(self, packages: list[Path]) -> None:
        self.fault = ""
        self._packages = [
            (package / "energy_uj", int((package / "max_energy_range_uj").read_text())) for package in packages
        ]
        self._last = [int(path.read_text()) for path, _ in self._packages]
        self._total = 0

    def read(self) -> float:
        """Joules since the start. If reading fails: those of the last reading, and the reason in `fault`."""
        for index, (path, wrap) in enumerate(self._packages):
            try:
                now = int(path.read_text())
            except OSError as error:  # times already measured must not be lost
                self.fault = f"the CPU's energy counter could not be read ({error})"
                break
            delta = now - self._last[index]
            self._total += delta if delta >= 0 else delta + wrap + 1
            self._last[index] = now
        return self._total / 1e6


def counter(
    device: str, powercap: Path = Path("/sys/class/powercap"), number: int = 0, count: int = 1
) -> Counter | Absent:
    """The energy counter of the device that computes, or the reason why there is none, as one sentence.

    Of the GPUs that CUDA sees, `count` compute, from this number on.
    """
    if device == "gpu" and count > 1:
        counters = [counter(device, powercap, number + index) for index in range(count)]
        reason = next((each for each in counters if isinstance(each, Absent)), None)
        return reason if reason else SummedCounter([each for each in counters if not isinstance(each, Absent)])
    if device == "gpu":
        gpu = nvml.find(number=number)
        if isinstance(gpu, Absent):
            return gpu
        try:
            gpu.energy()
        except Exception as error:  # pynvml's exceptions exist only where pynvml is installed
            return Absent(f"{gpu.name} has no energy counter ({error})")
        return NvmlCounter(gpu)
    # The zone `psys`, beside the packages, is left out: it covers the whole board and so contains them.
    packages = [zone for zone in sorted(powercap.glob("*-rapl:*")) if content(zone / "name").startswith("package-")]
    if not packages:
        return Absent("this CPU or virtual machine shows no RAPL energy counters")
    try:
        return RaplCounter(packages)
    except PermissionError:
        return Absent(
            f"reading {packages[0].name}/energy_uj under {powercap} needs root or a changed file mode",
            f"`sudo chmod -R a+r {powercap}/*/energy_uj`, until the next start",
        )
    except (OSError, ValueError) as error:
        return Absent(f"the RAPL energy counters of {packages[0].name} cannot be read ({error})")


def period(meter: Counter | str, clock: Clock) -> Metric:
    """Poll a counter for a second; return `energy_period`, the median seconds between two of its moves."""
    if isinstance(meter, str):
        return unavailable("energy counter", meter)
    source = f"{meter.name}, polled with {_BETWEEN * 1e3:g} ms in between"
    steps = [later - earlier for (earlier, _), (later, _) in itertools.pairwise(moves(meter, POLLING, clock))]
    if meter.fault:
        return unavailable(source, meter.fault)
    if not steps:
        return unavailable(source, f"the energy counter moved less than twice in {POLLING:g} s")
    return Metric(statistics.median(steps), source)


def moves(meter: Counter, seconds: float, clock: Clock) -> list[tuple[float, float]]:
    """Poll a counter for so many seconds; return the time of each move that a poll saw, and the joules after it."""
    end, last, moved = clock() + seconds, meter.read(), []
    while move := _next_move(meter, last, end, clock):
        moved.append(move)
        last = move[1]
    return moved


def _next_move(meter: Counter, last: float, end: float, clock: Clock) -> tuple[float, float] | None:
    """Poll until the counter leaves its last reading; return the time and the joules; None if not until `end`."""
    while clock() < end:
        time.sleep(_BETWEEN)
        now = meter.read()
        if now != last:
            return clock(), now
    return None


def too_short(seconds: float, period: Metric) -> str:
    """The reason why a counter of this `energy_period` cannot measure a window; empty if it can."""
    if period.value is None:
        return period.reason or ""
    needed = max(SHORTEST_WINDOW, _STEPS * period.value)
    if seconds >= needed:
        return ""
    return (
        f"{seconds:.2g} s are too short for a counter that moves every {period.value * 1e3:.3g} ms: at least "
        f"{needed:.2g} s are needed"
    )


class Drawn(NamedTuple):
    """The joules and seconds of a window, by a counter.

    Attributes:
        joules: from the move at which the window began to the last move in the window.
        seconds: from the same first move to the first move after the window; for several devices, to the window's end.
        step: 1 if `seconds` ends one step too late, else 0.
    """

    joules: float
    seconds: float
    step: int

    def power(self, period: float) -> float:
        """Watts, for a counter with steps of so many seconds; NaN if it stood still."""
        seconds = self.seconds - self.step * period
        return self.joules / seconds if seconds > 0 else math.nan


def drawn(meter: Counter | str, spend: Callable[[], object], clock: Clock, devices: int = 1) -> Drawn | None:
    """Read a counter around a window, which `spend` fills; None if there is no counter.

    The counters of several devices move at different moments, so no move is awaited.
    """
    if isinstance(meter, str):
        spend()
        return None
    begun, before = _moved(meter, devices, clock)
    spend()
    reading = meter.read()
    end, _ = _moved(meter, devices, clock, reading)
    return Drawn(reading - before, end - begun, int(devices == 1))


def _moved(meter: Counter, devices: int, clock: Clock, last: float | None = None) -> tuple[float, float]:
    """Wait until the counter leaves its last reading; return the time and the joules. For several devices: at once."""
    last = meter.read() if last is None else last
    if devices > 1:
        return clock(), last
    return _next_move(meter, last, clock() + POLLING, clock) or (math.nan, math.nan)


def resting(meter: Counter | str, window: float, clock: Clock, devices: int = 1) -> dict[str, Metric]:
    """Measure `power_idle`, in watts over a window of so many seconds, and the counter's `energy_period`."""
    step = period(meter, clock)
    reason = too_short(window, step)
    if isinstance(meter, str) or reason:
        return {"power_idle": unavailable("energy counter", reason), "energy_period": step}
    begun, before = _moved(meter, devices, clock)
    time.sleep(window)
    end, after = _moved(meter, devices, clock)
    power = (after - before) / (end - begun)
    source = f"{meter.name}; {window:.1f} s, program loaded, no calls"
    if meter.fault or not power >= 0:
        idle = unavailable(source, meter.fault or "the energy counter went back, or stood still")
    else:
        idle = Metric(power, source)
    return {"power_idle": idle, "energy_period": step}


def of_a_call(meter: Counter | str, spend: Callable[[float], tuple[int, float]], clock: Clock) -> Metric:
    """Joules of a call, including the share of idle power, by the counter of one device.

    `spend` makes calls for at least as many seconds as it is given; it returns their number, and the seconds they took.
    """
    step = period(meter, clock)
    if isinstance(meter, str) or step.value is None:
        return step
    window, spent = max(SHORTEST_WINDOW, _STEPS * step.value), list[tuple[int, float]]()
    load = drawn(meter, lambda: spent.append(spend(window)), clock)
    assert load is not None
    ((calls, seconds),) = spent
    source = f"{meter.name}; {seconds:.1f} s, {calls} calls"
    power = load.power(step.value)
    if meter.fault or not power > 0:
        return unavailable(source, meter.fault or "the energy counter went back, or stood still while calls ran")
    return Metric(power * seconds / calls, source)


def near_idle(load: Drawn | None, rest: Mapping[str, Metric]) -> bool:
    """True if a load draws so little above idle power that idle power from another moment is too inaccurate."""
    idle, period = rest["power_idle"].value, rest["energy_period"].value
    return load is not None and idle is not None and load.power(period or 0.0) < _CLEAR * idle


def energy(
    meter: Counter | str, load: Drawn | None, rest: Mapping[str, Metric], per_sample: float, window: float, what: str
) -> dict[str, Metric]:
    """Energy of a sample, and the power while calls run, from the load and from the metrics of `resting`.

    The calls, `what` in words, are queued as deep as for throughput; `per_sample` are seconds of a sample in them, and
    `window` the seconds of all.

    Returns:
        `energy_per_sample` and `energy_per_sample_net` (without the idle share) in joules, `power_load` in watts, and
        `rest`.
    """
    idle, step = rest["power_idle"], rest["energy_period"]
    if isinstance(meter, str):
        return _untold(meter, step)
    reason = meter.fault or too_short(window, step) or idle.reason
    if reason or load is None or idle.value is None:
        return _untold(reason or "", step)
    power = load.power(step.value or 0.0)
    # A counter that no longer moves makes the power NaN.
    if not (load.joules > 0 and power > 0):
        return _untold("the energy counter went back, or stood still while the program ran", step)
    source = f"{meter.name}; {window:.1f} s, {what}"
    return {
        "energy_per_sample": Metric(power * per_sample, source),
        "energy_per_sample_net": Metric((power - idle.value) * per_sample, f"{source}; idle share taken off"),
        "power_load": Metric(power, source),
        **rest,
    }


def _untold(reason: str, step: Metric) -> dict[str, Metric]:
    names = ("energy_per_sample", "energy_per_sample_net", "power_idle", "power_load")
    return {name: unavailable("energy counter", reason) for name in names} | {"energy_period": step}
