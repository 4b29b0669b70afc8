"""Suites that `fwbench selftest` has kept of a machine, and the scatter between its runs that they show."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec

from fwbench.compare.cases import grouped
from fwbench.compare.testing import UNTESTED
from fwbench.errors import UserError
from fwbench.machine import Machine
from fwbench.machine.load import busy
from fwbench.record import bounds, journal, reading, schema
from fwbench.record.storage import SELFTEST

# The fewest quiet suites that show the scatter between runs.
_QUIET = 10

Suites = Sequence[Mapping[str, Any]]

_Rounds = Annotated[list[bounds.Positive], msgspec.Meta(min_length=1)]


class _Pair(msgspec.Struct):
    base: _Rounds
    head: _Rounds


class _Benchmark(msgspec.Struct):
    id: str
    planted: bounds.Amount
    kind: str
    seconds: Annotated[list[bounds.Amount], msgspec.Meta(min_length=2)]
    rounds: list[_Pair]


class _Suite(msgspec.Struct):
    slowdown: bounds.Amount
    loaded: bool
    number: int
    benchmarks: list[_Benchmark]
    other_load: bounds.Amount | None = None


class _Machine(msgspec.Struct):
    device: str
    cpu: str
    threads: bounds.Count


class _Header(msgspec.Struct):
    definition: str
    machine: _Machine


@dataclass(frozen=True)
class Evidence:
    """A file of suites: its first line, each suite once, and the faults of damaged lines, which are left out."""

    header: Mapping[str, Any]
    suites: Suites
    faults: Sequence[str] = ()


def read(path: Path) -> Evidence:
    """Read a file of suites; a line that is damaged or was cut off is left out.

    Raises:
        UserError: the file holds no suites.
    """

    def suite(data: Any) -> Mapping[str, Any]:
        schema.read(data, _Suite, "it")
        made: Mapping[str, Any] = data
        return made

    try:
        whole, _ = journal.lines(journal.text(path))
        header = reading.parsed(whole[0] if whole else "")
        schema.read(header, _Header, "its first line")
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path} holds no suites of `fwbench selftest` ({error}): give --output another file."
        ) from None
    suites, damaged = reading.each(whole[1:], suite)
    once = {(suite["slowdown"], suite["number"]): suite for suite in suites}
    return Evidence(header, list(once.values()), [each.fault for each in damaged])


def state(machine: Machine, path: Path = SELFTEST) -> float:
    """The scatter between this machine's runs of unchanged code while nothing else runs.

    Returns:
        Standard deviation between runs of the logarithm of a run's time, for the benchmark in which it is largest. It
        comes from base's processes in the machine's own A/A record, in which each suite is a run. `UNTESTED` if the
        machine has no such record, or one with too few quiet suites.
    """
    try:
        evidence = read(path)
    except UserError:
        return UNTESTED
    known = evidence.header["machine"]
    if any(known[name] != getattr(machine, name) for name in ("device", "cpu", "threads")):
        return UNTESTED
    limit = busy(known["threads"])
    quiet = [suite for suite in evidence.suites if not suite["loaded"] and (suite.get("other_load") or 0.0) <= limit]
    if len(quiet) < _QUIET:
        return UNTESTED
    benchmarks = (benchmark for suite in quiet for benchmark in suite["benchmarks"] if benchmark["rounds"])
    levels = [
        [statistics.fmean(math.log(statistics.median(pair["base"])) for pair in each["rounds"]) for each in of]
        for of in grouped(benchmarks, lambda benchmark: benchmark["id"]).values()
    ]
    return max((statistics.stdev(means) for means in levels if len(means) > 1), default=UNTESTED)
