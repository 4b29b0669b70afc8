"""Latency: seconds from a call to its whole output, call by call."""

import math
import statistics
from collections.abc import Callable, Sequence

from fwbench.frameworks.contract import Program
from fwbench.record.measurement import Metric, unavailable
from fwbench.record.quantiles import quantile
from fwbench.suite.profiles import Protocol

Clock = Callable[[], float]
# Called with 0 when a pass begins, and with the number of calls after each wait for calls. Nothing is timed meanwhile.
Lap = Callable[[int], None]

# Most rounds. A program of microseconds would otherwise fill the record; further rounds of one process add nothing.
MAX_ROUNDS = 10_000

# Samples needed for the sample maximum to bound the percentile from above with 95 % confidence:
# n >= log(0.05) / log(p) (Wilks, Ann. Math. Statist. 12, 1941).
SAMPLES_NEEDED = {p: math.ceil(math.log(0.05) / math.log(p / 100)) for p in (50, 95, 99)}


def latencies(program: Program, protocol: Protocol, clock: Clock, lap: Lap = lambda calls: None) -> list[float]:
    """Time calls one by one until the protocol has enough of them; return the seconds of each call, in order.

    Makes at least `min_rounds` calls. Stops early if a `precision` is asked for, and the mean's margin of error is
    within it. Else stops once `max_time` has passed, or at `MAX_ROUNDS`; but if these calls are too few for the 95th
    percentile, it goes on to the number needed, provided that so many take at most `percentile_time` at this pace.
    """
    step, wait = program.step, program.wait
    enough = _Enough(protocol)
    samples: list[float] = []
    lap(0)
    begun = clock()
    while True:
        start = clock()
        step()
        wait()
        end = clock()
        samples.append(end - start)
        lap(1)
        if program.agree(enough(samples[-1], end - begun)):
            return samples


class _Enough:
    """Decides after each call whether to stop."""

    def __init__(self, protocol: Protocol) -> None:
        self._protocol = protocol
        self._most = max(MAX_ROUNDS, protocol.min_rounds)
        self._z = statistics.NormalDist().inv_cdf(0.5 + protocol.confidence / 2)
        self._n = 0
        self._mean = self._squares = 0.0

    def __call__(self, sample: float, spent: float) -> bool:
        """True if the pass may stop after a call that took `sample` seconds; `spent` is the time so far."""
        protocol = self._protocol
        self._n += 1
        n = self._n
        if protocol.precision is not None:
            # Welford's running variance (Technometrics 4, 1962).
            delta = sample - self._mean
            self._mean += delta / n
            self._squares += delta * (sample - self._mean)
            if n >= max(2, protocol.min_rounds):
                margin = self._z * math.sqrt(self._squares / (n - 1) / n)
                if margin <= protocol.precision * self._mean:
                    return True
        if n < protocol.min_rounds or (spent < protocol.max_time and n < self._most):
            return False
        needed = SAMPLES_NEEDED[95]
        return n >= needed or spent / n * needed > protocol.percentile_time


def percentiles(samples: Sequence[float]) -> dict[str, Metric]:
    """`latency_p50`, `latency_p95`, `latency_p99` in seconds, each only if there are enough samples for it.

    Each is the time of one of the calls (`fwbench.record.quantiles`).
    """
    metrics = {}
    for p, needed in SAMPLES_NEEDED.items():
        source = f"synchronised calls, n={len(samples)}"
        if len(samples) < needed:
            reason = f"n/a (n={len(samples)}): p{p} needs {needed} samples"
            metrics[f"latency_p{p}"] = unavailable(source, reason)
        else:
            metrics[f"latency_p{p}"] = Metric(quantile(samples, p), source)
    return metrics


def drift(samples: Sequence[float]) -> Metric:
    """The relative slowdown of calls during the pass; below 0 they became faster.

    Compares the median of the last third of the calls with that of the first third. A processor that heats up lowers
    its clock rate.
    """
    source = f"synchronised calls, n={len(samples)}"
    if len(samples) < SAMPLES_NEEDED[95]:
        return unavailable(source, f"n/a (n={len(samples)}): needs {SAMPLES_NEEDED[95]} samples")
    third = len(samples) // 3
    return Metric(statistics.median(samples[-third:]) / statistics.median(samples[:third]) - 1, source)
