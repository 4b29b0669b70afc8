"""What a machine can do: the highest rates that any lane measured on it, and each lane's own."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from fwbench import units
from fwbench.compare.cases import grouped
from fwbench.machine.disturbances import slowed
from fwbench.record.measurement import CEILING, Measurement
from fwbench.record.metrics import CEILINGS, METRICS
from fwbench.report.tables import Column, Table, tabulate

_Key = TypeVar("_Key")

# A lane whose matrix products reach less than this share of the best lane's rate is called far slower. Libraries that
# take their fast path are within a fifth of each other. MKL's slow path, which it takes on AMD's CPUs, reaches less
# than half. Two measurements of one lane differ by a tenth.
_BEHIND = 0.6


@dataclass(frozen=True)
class Ceilings:
    """The highest rates of any lane on one machine. The highest counts, as a disturbance only lowers a rate.

    `compute` and `product` hold, by precision, the measurement of the highest `compute_ceiling` and of the highest
    `matrix_product_rate` (FLOP/s); `bandwidth` is the memory's (B/s), and None if no lane measured it.
    """

    compute: Mapping[str, Measurement]
    product: Mapping[str, Measurement]
    bandwidth: float | None

    def reached(self, precision: str) -> float | None:
        """FLOP/s of the fastest operation in a precision; None if no lane measured it."""
        return self.compute[precision].value("compute_ceiling") if precision in self.compute else None

    def limit(self, precision: str, device: str) -> float | None:
        """FLOP/s that limit a program in a precision; None if no lane measured them.

        On a GPU this is the rate of matrix products: a convolution's fast algorithm multiplies less often than is
        counted. An H100 seems to convolve at 100 TFLOP/s in IEEE float32, though its arithmetic can do only 67.
        """
        if device == "gpu" and precision in self.product:
            return self.product[precision].value("matrix_product_rate")
        return self.reached(precision)

    @property
    def disturbed(self) -> list[str]:
        """The precisions whose ceiling was disturbed when this run measured it; earlier runs' ceilings do not count."""
        return [precision for precision, m in self.compute.items() if CEILING in m.stages and slowed(m)]


def highest(
    measurements: Iterable[Measurement], metric: str, key: Callable[[Measurement], _Key]
) -> dict[_Key, Measurement]:
    """By key, the measurement in which a metric is the highest; keys for which none is above 0 are left out."""
    groups = grouped((m for m in measurements if m.value(metric)), key)
    return {of: max(group, key=lambda m: m.value(metric) or 0.0) for of, group in groups.items()}


def ceilings(measurements: Iterable[Measurement]) -> Ceilings:
    """The ceilings over all these measurements."""
    every = list(measurements)
    compute, product = (
        highest(every, metric, lambda m: m.workload.precision) for metric in ("compute_ceiling", "matrix_product_rate")
    )
    return Ceilings(compute, product, max(filter(None, (m.value("memory_bandwidth") for m in every)), default=None))


def matrix_products(measurements: Iterable[Measurement]) -> dict[str, tuple[str, list[str]]]:
    """By precision, each lane's rate in words (`torch 87.0 GFLOP/s (MKL on AuthenticAMD), jax ...`), and the lanes that
    are far behind the best one.

    Disturbed measurements are left out: another process on one of two cores halves a rate.
    """
    by_precision = {}
    steady = (m for m in measurements if m.value("matrix_product_rate") and not slowed(m))
    for precision, of in grouped(steady, lambda m: m.workload.precision).items():
        best = highest(of, "matrix_product_rate", lambda m: m.workload.lane)
        rates = {lane: m.value("matrix_product_rate") or 0.0 for lane, m in best.items()}
        libraries = {lane: m.metrics["matrix_product_rate"].library for lane, m in best.items()}
        words = (
            f"{lane} {rate / 1e9:.3g} GFLOP/s{f' ({libraries[lane]})' if libraries[lane] else ''}"
            for lane, rate in rates.items()
        )
        behind = [lane for lane, rate in rates.items() if rate < _BEHIND * max(rates.values())]
        by_precision[precision] = ", ".join(words), behind
    return by_precision


def table(measurements: Iterable[Measurement]) -> Table:
    """The table of ceilings: each lane's own rates, beside the best lane's."""
    every = list(measurements)
    best = ceilings(every)
    by_metric = {
        metric: highest(every, metric, lambda m: (m.workload.lane, m.workload.precision)) for metric in CEILINGS
    }

    def rate(name: str, metric: str, show: Callable[[float], str] = units.flop_rate) -> Column[tuple[str, str]]:
        of_lane = by_metric[metric]
        return Column(
            name, lambda row: of_lane[row].value(metric) if row in of_lane else None, METRICS[metric].unit, show
        )

    def of_best(row: tuple[str, str]) -> float | None:
        measured, ceiling = by_metric["compute_ceiling"].get(row), best.reached(row[1])
        return (measured.value("compute_ceiling") or 0.0) / ceiling if measured and ceiling else None

    return tabulate(
        "ceilings",
        "What this machine can do, lane by lane",
        "The fastest matrix product of each lane; the best of that and of a dense convolution; how near that comes to "
        "the best lane's, which is the ceiling of all rows; and a copy in memory, bytes read and written. "
        "On a GPU one lane measures all of it, and the others a product.",
        (
            Column("lane", lambda row: row[0]),
            Column("precision", lambda row: row[1]),
            rate("product", "matrix_product_rate"),
            rate("best", "compute_ceiling"),
            Column("of ceiling", of_best, "1", "{:.1%}".format),
            rate("copy", "memory_bandwidth", units.byte_rate),
        ),
        {**by_metric["matrix_product_rate"], **by_metric["compute_ceiling"]},
    )
