"""Results that arrive after a test has passed: a second measurement of a disturbed workload, and rounds of turns."""

from dataclasses import dataclass
from typing import Any

import pytest
from pytest_benchmark.stats import Stats

from fwbench.machine.disturbances import disturbances, lengthening
from fwbench.plugin.replaying import extra_info
from fwbench.record.measurement import Measurement
from fwbench.suite.profiles import Protocol


@dataclass
class Made:
    """A test that has passed, and its measurement.

    Attributes:
        protocol: its amounts.
        benchmark: pytest-benchmark's fixture, whose statistics are stored when the run ends.
    """

    item: pytest.Item
    protocol: Protocol
    benchmark: Any
    measurement: Measurement

    @property
    def disturbed(self) -> bool:
        """Whether it is to be measured again; once is enough."""
        return bool(disturbances([self.measurement])) and not self.measurement.attempts

    def renew(self) -> None:
        """Make pytest-benchmark show and store the measurement."""
        self.benchmark.extra_info.update(extra_info(self.measurement))
        self.benchmark.stats.stats = Stats()  # type: ignore[no-untyped-call]
        for seconds in self.measurement.samples:
            self.benchmark.stats.stats.update(seconds)


def better(first: Measurement, second: Measurement) -> Measurement:
    """The one that was disturbed less, with the other beside it."""
    worse = second.failure or lengthening([second]) > lengthening([first])
    return first.beside(second) if worse else second.beside(first)
