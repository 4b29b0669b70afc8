"""What a gate decides over: the metrics, which way is better, and how much of a change counts."""

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
    """The smallest change that counts.

    Attributes:
        share: of base.
        amount: on top of that, in the metric's unit.
    """

    share: float
    amount: float = 0.0

    def of(self, base: float) -> float:
        """The threshold as a share of this value, which is above 0."""
        return self.share + self.amount / base


@dataclass(frozen=True)
class Criterion:
    """A metric that a gate can decide over.

    Attributes:
        metric: what it is in a record, or one of the metrics it is made of; its unit and direction are theirs.
        duet: the threshold where both sides take turns on one machine; None: a duet does not measure it.
        saved: the threshold against a record made earlier; None: records do not hold it.
        exact: stated by the compiler, not measured.
        asked: the threshold in pairs of processes of what a duet judges only if somebody asks for it, as pairs then
            take longer: workloads are compiled with empty caches in each, or started a second time.
    """

    metric: str
    duet: Threshold | None
    saved: Threshold | None
    exact: bool = False
    # Left out of what a selftest is of: a duet that nobody has asked judges as before.
    asked: Threshold | None = field(default=None, repr=False)

    @property
    def paired(self) -> Threshold | None:
        """The threshold in pairs of processes; None: these do not yield it."""
        return self.duet or self.asked

    @property
    def unit(self) -> str:
        """SI."""
        return METRICS[self.metric].unit

    @property
    def direction(self) -> Direction:
        """Which way is better."""
        return METRICS[self.metric].direction

    def decided_by_one(self, device: str) -> bool:
        """Whether it is the same at every run of the same program, so that one value a side decides.

        On a GPU nothing is: there compilers choose by measuring, each process anew.
        """
        return self.exact and device == "cpu"


_MIB = 2.0**20
CRITERIA: Mapping[str, Criterion] = {
    "latency": Criterion("latency_p50", Threshold(0.02), Threshold(0.15)),
    # Tails that the fastest round of a turn does not show.
    "cpu_time": Criterion("cpu_time", Threshold(0.10), None),
    "throughput": Criterion("throughput", None, Threshold(0.15)),
    "peak_memory": Criterion("host_peak_memory", Threshold(0.05, 16 * _MIB), Threshold(0.05, 16 * _MIB)),
    "program_memory": Criterion("program_memory", Threshold(0.02, _MIB), Threshold(0.02, _MIB), exact=True),
    "compile_time": Criterion("compile_time", None, Threshold(0.25, 0.5), asked=Threshold(0.10)),
    # In a second process of the pair, which finds in the compilers' caches what the first one has made.
    "warm_start": Criterion("warm_start_time", None, None, asked=Threshold(0.10)),
    # Of a plain test, whose first call may trace and compile.
    "first_call": Criterion("first_call_time", None, None, asked=Threshold(0.10)),
    # Of calls back to back, beside a device's idle power; of a plain test, of a call.
    "energy": Criterion("energy_per_sample", None, Threshold(0.10), asked=Threshold(0.10)),
}
# The metrics that pairs of processes yield, by which a search can go.
PAIRED: Mapping[str, Threshold] = {name: limit for name, criterion in CRITERIA.items() if (limit := criterion.paired)}


def thresholds(kind: Literal["duet", "saved"]) -> dict[str, Threshold]:
    """The thresholds of a kind of gate, by metric."""
    return {name: limit for name, criterion in CRITERIA.items() if (limit := getattr(criterion, kind))}


def values(measurement: Measurement) -> dict[str, float]:
    """What one process found, by metric, in SI units; what it could not tell is left out."""
    by_name = {name: measurement.value(criterion.metric) for name, criterion in CRITERIA.items()}
    # A file that was saved without its rounds has their median.
    if measurement.samples:
        by_name["latency"] = quantile(measurement.samples, 50)
    by_name["peak_memory"] = (
        None if hidden(measurement) else measurement.value(PEAK_MEMORY[measurement.workload.device])
    )
    by_name["compile_time"] = measurement.compiling
    return {name: value for name, value in by_name.items() if value is not None and value > 0}


def by_metric(measurement: Measurement) -> dict[str, list[float]]:
    """The values of each metric, one of each process that has it."""
    processes = measurement.processes or [values(measurement)]
    return {name: numbers for name in CRITERIA if (numbers := [each[name] for each in processes if name in each])}


def hidden(measurement: Measurement) -> bool:
    """Whether a GPU's allocator told of a higher peak, from before the step, than the step's own."""
    peak = measurement.metrics.get("device_peak_memory")
    return measurement.workload.device == "gpu" and peak is not None and peak.at_most


def parse(texts: Sequence[str], where: str) -> dict[str, Threshold]:
    """Thresholds by metric.

    Args:
        texts: each one or several, separated by commas.
        where: they come from, for the sentence.

    Raises:
        UserError: one of them is none.
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
