"""Latency: seconds from a call to its whole output, call by call."""

import math
import statistics
from collections.abc import Callable, Sequence

from fwbench.frameworks.contract import Program
from fwbench.record.measurement import Metric, unavailable
from fwbench.record.quantiles import quantile
from fwbench.suite.profiles import Protocol

Clock = Callable[[], float]
# Called when a pass begins, with 0, and after calls whose end was waited for, with their number; nothing is timed then.
Lap = Callable[[int], None]

# A program of microseconds would otherwise fill the record; more rounds than this add nothing about one process.
MAX_ROUNDS = 10_000

# Samples needed for the sample maximum to bound the percentile from above with 95 % confidence:
# n >= log(0.05) / log(p) (Wilks, Ann. Math. Statist. 12, 1941).
SAMPLES_NEEDED = {p: math.ceil(math.log(0.05) / math.log(p / 100)) for p in (50, 95, 99)}


def latencies(program: Program, protocol: Protocol, clock: Clock, lap: Lap = lambda calls: None) -> list[float]:
    """Time calls one by one until the protocol has enough of them.

    Stops after `min_rounds` once `max_time` has passed or, where a `precision` is asked for, once the margin of error
    of the mean is within it; at `MAX_ROUNDS` in any case. Where so many calls are too few for the 95th percentile, and
    at their pace those that it needs take no longer than `percentile_time`, it goes on to these.

    Returns:
        Seconds of each call, in order.
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
        """Whether to stop after a call that took `sample` seconds; `spent` is the time so far."""
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
    """`latency_p50`, `latency_p95`, `latency_p99` in seconds, each only where the number of samples supports it.

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
    """By how much calls became slower (below 0: faster), as when a processor heats up and lowers its clock rate.

    From the median of the first third of them to that of the last third.
    """
    source = f"synchronised calls, n={len(samples)}"
    if len(samples) < SAMPLES_NEEDED[95]:
        return unavailable(source, f"n/a (n={len(samples)}): needs {SAMPLES_NEEDED[95]} samples")
    third = len(samples) // 3
    return Metric(statistics.median(samples[-third:]) / statistics.median(samples[:third]) - 1, source)
