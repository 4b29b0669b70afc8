"""Progress on the terminal: which benchmark runs, in which stage, how far the suite is."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from fwbench.plugin.plan import Plan
from fwbench.record.measurement import Measurement
from fwbench.report import units


class Terminal(Protocol):
    """What progress needs of pytest's terminal reporter."""

    def write(self, content: str, *, flush: bool = False) -> None:
        """Write at the cursor."""


class Progress:
    """One line a benchmark, written piece by piece as its stages begin, on a screen and in a log alike.

    [ 3/24, 4 min left] jax-resnet50-inference-b8: build, compile, warm-up, ..., 184 ms, 43.4 samples/s

    Args:
        total: how many benchmarks there are.
        plan: of the run, kept up to date by whoever gives it.
    """

    def __init__(
        self, terminal: Terminal, uncaptured: Callable[[], AbstractContextManager[None]], total: int, plan: Plan
    ) -> None:
        self._terminal = terminal
        self._uncaptured = uncaptured
        self._total = total
        self._plan = plan
        self._begun = 0

    def begin(self, name: str) -> None:
        """A benchmark begins."""
        self._begun += 1
        count = f"{self._begun:{len(str(self._total))}}/{self._total}"
        self._write(f"\n[{', '.join(filter(None, (count, self._plan.left_told())))}] {name}: ")

    def begin_again(self, name: str) -> None:
        """A benchmark is measured a second time."""
        self._write(f"\n[again, it was disturbed] {name}: ")

    def not_again(self) -> None:
        """It cannot be, as other load goes on."""
        self._write("other load goes on")

    def line(self, text: str) -> None:
        """Something that is about no benchmark alone."""
        self._write(f"\n[{text}]")

    def stage(self, name: str) -> None:
        """The benchmark enters a stage."""
        self._write(f"{name}, ")

    def end(self, measurement: Measurement) -> None:
        """The benchmark is over."""
        self._write(self._outcome(measurement))

    @staticmethod
    def _outcome(measurement: Measurement) -> str:
        if measurement.failure:
            return f"{measurement.failure.kind}: {measurement.failure.message}"
        batch = f"at batch {measurement.workload.batch_size}: " if measurement.unfit else ""
        return f"{batch}{Progress._numbers(measurement)}"

    @staticmethod
    def _numbers(measurement: Measurement) -> str:
        if measurement.workload.mode == "fit" and measurement.samples:
            return Progress._fitted(measurement)
        if measurement.duet.get("verdicts"):
            return f"{measurement.duet['kind']}, latency {measurement.duet['verdicts']['latency']['ratio'] - 1:+.1%}"
        median, throughput = measurement.value("latency_p50"), measurement.value("throughput")
        if throughput is None and measurement.program and measurement.program.digest:
            return measurement.program.digest[:12]
        if throughput is None:
            return "runs"
        typical = "" if median is None else f"{units.seconds(median)}, "
        return f"{typical}{units.rate(throughput)} samples/s"

    @staticmethod
    def _fitted(measurement: Measurement) -> str:
        epoch, accuracy = measurement.samples[-1], measurement.value("validation_top1")
        return f"{units.seconds(epoch)} an epoch" + ("" if accuracy is None else f", validation top-1 {accuracy:.1%}")

    def _write(self, text: str) -> None:
        with self._uncaptured():
            self._terminal.write(text, flush=True)
