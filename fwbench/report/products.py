"""How fast the lanes multiply matrices on a machine, and which of them is far behind.

A lane whose library for it takes a slow path, as MKL does on AMD's CPUs, is slow in every network of large matrix
products, whatever the framework does well.
"""

from collections.abc import Iterable, Mapping

from fwbench.machine.disturbances import slowed
from fwbench.record.measurement import Measurement, Metric

# A lane is behind below this share of the best lane's rate. Libraries that take their fast path are within a fifth of
# each other, and MKL's slow one reaches less than half; two measurements of one lane differ by a tenth.
BEHIND = 0.6


def rates(measurements: Iterable[Measurement]) -> dict[str, dict[str, Metric]]:
    """By precision and lane the best of its rates, in FLOP/s.

    One that was disturbed is left out: somebody else on one of two cores halves it.
    """
    best: dict[str, dict[str, Metric]] = {}
    for m in measurements:
        rate = m.metrics.get("matrix_product_rate")
        if rate is None or rate.value is None or slowed(m):
            continue
        lanes, lane = best.setdefault(m.workload.precision, {}), m.workload.lane
        if lane not in lanes or rate.value > (lanes[lane].value or 0.0):
            lanes[lane] = rate
    return best


def behind(rates: Mapping[str, Metric]) -> list[str]:
    """The lanes of one precision that are far behind the best one."""
    values = {lane: rate.value or 0.0 for lane, rate in rates.items()}
    return [lane for lane, value in values.items() if value < BEHIND * max(values.values())]


def listed(rates: Mapping[str, Metric]) -> str:
    """Each lane's rate: `torch 87.0 GFLOP/s (MKL on AuthenticAMD), jax ...`."""
    return ", ".join(
        f"{lane} {(rate.value or 0.0) / 1e9:.3g} GFLOP/s{f' ({rate.library})' if rate.library else ''}"
        for lane, rate in rates.items()
    )
