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
    step, wait, least = program.step, program.wait, protocol.min_rounds
    z = statistics.NormalDist().inv_cdf(0.5 + protocol.confidence / 2)
    samples: list[float] = []
    mean = squares = 0.0
    lap(0)
    begun = clock()
    while True:
        start = clock()
        step()
        wait()
        end = clock()
        samples.append(end - start)
        lap(1)
        n, spent = len(samples), end - begun
        enough = n >= least and (spent >= protocol.max_time or n >= max(MAX_ROUNDS, least))
        if n < SAMPLES_NEEDED[95] and spent / n * SAMPLES_NEEDED[95] <= protocol.percentile_time:
            enough = False
        if protocol.precision is not None:
            # Welford's running variance (Technometrics 4, 1962).
            delta = samples[-1] - mean
            mean += delta / n
            squares += delta * (samples[-1] - mean)
            if n >= max(2, least):
                enough = enough or z * math.sqrt(squares / (n - 1) / n) <= protocol.precision * mean
        if program.agree(enough):
            return samples


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
