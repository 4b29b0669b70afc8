"""The metrics that gates decide over, each with its better direction and the smallest change that counts."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from fwbench.errors import UserError
from fwbench.record.measurement import PEAK_MEMORY, Measurement
from fwbench.record.metrics import METRICS, SCALES, Direction
from fwbench.record.quantiles import quantile

_SYNTAX = "METRIC:PERCENT%[+AMOUNT], as in latency:5% or peak_memory:2%+1MiB"


@dataclass(frozen=True)
class Threshold:
    """The smallest change that counts: a share of base, and an amount in the metric's unit on top."""

    share: float
    amount: float = 0.0

    def of(self, base: float) -> float:
        """The threshold as a share of `base`, which is above 0."""
        return self.share + self.amount / base


@dataclass(frozen=True)
class Criterion:
    """A metric that a gate can decide over.

    Attributes:
        metric: its name in a record, or that of a metric it is made of; unit and direction are that metric's.
        duet: the threshold if both sides take turns on one machine; None: a duet does not measure it.
        saved: the threshold against a record made earlier; None: records do not hold it.
        exact: stated by the compiler, not measured.
        asked: the threshold in pairs of processes, for a metric that a duet judges only on request, as pairs then take
            longer: each compiles workloads with empty caches, or starts them a second time.
    """

    metric: str
    duet: Threshold | None
    saved: Threshold | None
    exact: bool = False
    # Left out of the repr, which identifies a selftest: a duet without this request judges as before.
    asked: Threshold | None = field(default=None, repr=False)

    @property
    def paired(self) -> Threshold | None:
        """The threshold in pairs of processes; None: pairs do not measure the metric."""
        return self.duet or self.asked

    @property
    def unit(self) -> str:
        """The SI unit."""
        return METRICS[self.metric].unit

    @property
    def direction(self) -> Direction:
        """The better direction: `lower` or `higher`."""
        return METRICS[self.metric].direction

    def decided_by_one(self, device: str) -> bool:
        """True if every run of the same program gives the same value, so that one value a side decides.

        On a GPU no metric is like that: there compilers choose by measuring, in each process anew.
        """
        return self.exact and device == "cpu"


_MIB = 2.0**20
CRITERIA: Mapping[str, Criterion] = {
    "latency": Criterion("latency_p50", Threshold(0.02), Threshold(0.15)),
    # Shows tails, which a turn's fastest call does not.
    "cpu_time": Criterion("cpu_time", Threshold(0.10), None),
    "throughput": Criterion("throughput", None, Threshold(0.15)),
    "peak_memory": Criterion("host_peak_memory", Threshold(0.05, 16 * _MIB), Threshold(0.05, 16 * _MIB)),
    "program_memory": Criterion("program_memory", Threshold(0.02, _MIB), Threshold(0.02, _MIB), exact=True),
    "compile_time": Criterion("compile_time", None, Threshold(0.25, 0.5), asked=Threshold(0.10)),
    # A side's second process in a pair, which finds the compilers' caches filled by the first one.
    "warm_start": Criterion("warm_start_time", None, None, asked=Threshold(0.10)),
    # A plain test's first call may trace and compile.
    "first_call": Criterion("first_call_time", None, None, asked=Threshold(0.10)),
    # Energy of calls back to back, with the device's idle power included; for a plain test, of one call.
    "energy": Criterion("energy_per_sample", None, Threshold(0.10), asked=Threshold(0.10)),
}
# The metrics that pairs of processes measure. A search for a cause can go by any of them.
PAIRED: Mapping[str, Threshold] = {name: limit for name, criterion in CRITERIA.items() if (limit := criterion.paired)}


def thresholds(kind: Literal["duet", "saved"]) -> dict[str, Threshold]:
    """The thresholds of a kind of gate, by metric."""
    return {name: limit for name, criterion in CRITERIA.items() if (limit := getattr(criterion, kind))}


def values(measurement: Measurement) -> dict[str, float]:
    """One process's values by metric, in SI units; a metric without a value is left out."""
    by_name = {name: measurement.value(criterion.metric) for name, criterion in CRITERIA.items()}
    # A file that was saved without its rounds still has their median.
    if measurement.samples:
        by_name["latency"] = quantile(measurement.samples, 50)
    by_name["peak_memory"] = (
        None if hidden(measurement) else measurement.value(PEAK_MEMORY[measurement.workload.device])
    )
    by_name["compile_time"] = measurement.compiling
    return {name: value for name, value in by_name.items() if value is not None and value > 0}


def by_metric(measurement: Measurement) -> dict[str, list[float]]:
    """The values of each metric, one for each process that has it."""
    processes = measurement.processes or [values(measurement)]
    return {name: numbers for name in CRITERIA if (numbers := [each[name] for each in processes if name in each])}


def hidden(measurement: Measurement) -> bool:
    """True if a GPU's allocator reported a peak from before the step, which hides the step's own lower peak."""
    peak = measurement.metrics.get("device_peak_memory")
    return measurement.workload.device == "gpu" and peak is not None and peak.at_most


def parse(texts: Sequence[str], where: str) -> dict[str, Threshold]:
    """Read thresholds, by metric, from texts that hold one or several, separated by commas; `where` is their source.

    Raises:
        UserError: a text is not a threshold.
    """
    thresholds = {}
    for text in (part.strip() for given in texts for part in given.split(",")):
        match = re.fullmatch(r"(\w+):(\d+(?:\.\d+)?)%(?:\+(\d+(?:\.\d+)?)\s*([\w/]+))?", text)
        if match is None:
            raise UserError(f"{where} {text!r} is not {_SYNTAX}.")
        name, percent, amount, unit = match.groups()
        if name not in CRITERIA:
            raise UserError(f"unknown metric {name!r} in {where}: choose from {', '.join(CRITERIA)}.")
        factors = SCALES[CRITERIA[name].unit]
        if unit is not None and unit not in factors:
            raise UserError(f"unknown unit {unit!r} of {name} in {where}: choose from {', '.join(factors)}.")
        thresholds[name] = Threshold(float(percent) / 100, float(amount) * factors[unit] if unit else 0.0)
    return thresholds
