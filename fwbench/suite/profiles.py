"""Profiles: the amounts of a measurement. A profile changes amounts, never the meaning of a number."""

import dataclasses
from dataclasses import dataclass

from fwbench.record.decoding import Decoded


@dataclass(frozen=True)
class Protocol(Decoded):
    """The amounts of one measurement; times in seconds.

    Attributes:
        profile: the profile these amounts came from.
        warmup_iterations: the most calls before anything is timed.
        warmup_time: time that ends the warm-up early, after at least one call; 0: all `warmup_iterations` are made.
        least_warmup_time: the warm-up goes on until this much time has passed, however many calls that takes.
        min_rounds: the fewest timed calls; takes precedence over `max_time`.
        max_time: timed calls go on until this much time has passed.
        percentile_time: timed calls go on for up to this much time if that gives enough of them for `latency_p95`.
        precision: stop earlier once the margin of error of the mean falls below this fraction; None to switch off.
        confidence: of that margin.
        throughput_time: length of the pipelined window that throughput is read from.
        energy_time: length of the window that energy is read from.
        deadline: the worker is killed after this; in mode `fit`, after this for each epoch.
        disable_gc: measure with Python's garbage collector off.
        smoke: whether to make one call and measure nothing, to see if the program runs.
        programs: whether to take the program's fingerprint alone, and time nothing.
    """

    profile: str
    warmup_iterations: int
    warmup_time: float
    min_rounds: int
    max_time: float
    throughput_time: float
    energy_time: float
    deadline: float
    precision: float | None = None
    confidence: float = 0.99
    disable_gc: bool = False
    smoke: bool = False
    programs: bool = False
    least_warmup_time: float = 0.0
    percentile_time: float = 0.0

    def on(self, device: str) -> "Protocol":
        """The amounts on a device, `cpu` or `gpu`."""
        return dataclasses.replace(self, least_warmup_time=_RISING) if device == "gpu" else self


# A GPU raises its clock rate only under load: twenty calls of a millisecond are over before it has.
_RISING = 1.0

# The suite takes minutes on two cores: it has pytest-benchmark's default rounds in half the time, as turns come later.
_QUICK = Protocol(
    profile="quick",
    warmup_iterations=10,
    warmup_time=0.5,
    min_rounds=5,
    max_time=0.5,
    throughput_time=0.5,
    # Most of a benchmark's time on a GPU: twice this, and settling before. The energy counter is off by 5 % at most.
    energy_time=2.0,
    deadline=600.0,
    # 59 calls of a thirtieth of a second.
    percentile_time=2.0,
)
# The paper's protocol: 20 warm-up calls, then 100 timed ones, whatever they take.
_PAPER = Protocol(
    profile="paper",
    warmup_iterations=20,
    warmup_time=0.0,
    min_rounds=100,
    max_time=0.0,
    throughput_time=5.0,
    energy_time=5.0,
    deadline=3600.0,
)

# For a gate, which may judge energy but no percentile, and without turns: a smaller suite, measured for longer.
_CI = dataclasses.replace(
    _QUICK, profile="ci", warmup_time=1.0, max_time=1.0, throughput_time=1.0, energy_time=5.0, percentile_time=0.0
)

PROFILES = {protocol.profile: protocol for protocol in (_QUICK, _CI, _PAPER)}

# Minutes of a whole run by device: on a GPU compiling takes most of a first one. Lanes take turns in the minutes that
# measuring leaves, but at least for this share of all.
_MINUTES = {"quick": 6.0, "ci": 0.0, "paper": 60.0}
MINUTES = {"cpu": _MINUTES, "gpu": {**_MINUTES, "quick": 10.0}}
TURNS = 1 / 3
