"""What was disturbed, measured a second time at the end of a run: which of the two counts, and where it goes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from pytest_benchmark.stats import Stats

from fwbench.machine.disturbances import Disturbance, lengthening
from fwbench.record.measurement import Measurement
from fwbench.suite.profiles import Protocol


@dataclass
class Disturbed:
    """A test whose measurement was disturbed; it has passed.

    Attributes:
        protocol: its amounts.
        benchmark: pytest-benchmark's fixture, whose statistics are stored when the run ends.
    """

    item: pytest.Item
    protocol: Protocol
    benchmark: Any
    measurement: Measurement

    def renew(self) -> None:
        """Make the measurement's samples the rounds that pytest-benchmark shows and stores."""
        self.benchmark.stats.stats = Stats()  # type: ignore[no-untyped-call]
        for seconds in self.measurement.samples:
            self.benchmark.stats.stats.update(seconds)


def better(first: Measurement, second: Measurement) -> Measurement:
    """The one that was disturbed less, with the other beside it."""
    worse = second.failure or lengthening([second]) > lengthening([first])
    return first.beside(second) if worse else second.beside(first)


def fail_late(item: pytest.Item, found: Sequence[Disturbance]) -> None:
    """Report an error of a test that has passed, as pytest does where something goes wrong after it."""
    met = "; ".join(f"{one.cause.happened} meanwhile ({one.detail}). {one.cause.next_step}" for one in found)
    sentence = f"{item.nodeid} was measured, but {met}, and measure again, or leave out --fwbench-strict."
    report = pytest.TestReport(item.nodeid, item.location, {}, "failed", sentence, "teardown")
    item.ihook.pytest_runtest_logreport(report=report)
