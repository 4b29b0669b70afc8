"""Progress on the terminal: the current benchmark, its stage, and how far the suite is."""

import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from fwbench.plugin.plan import Plan
from fwbench.record.measurement import STAGES, Measurement
from fwbench.report import units

# Moves the cursor to the beginning of the line and erases the line.
_ANEW = "\r\x1b[K"


class Terminal(Protocol):
    """The part of pytest's terminal reporter that progress needs."""

    isatty: bool

    def write(self, content: str, *, flush: bool = False) -> None:
        """Write at the cursor."""


class Progress:
    """One line per benchmark. A screen shows the current stage; a log shows only unusual events.

    [ 3/24, 4 min left] jax-resnet50-inference-b8: 184 ms, 43.4 samples/s

    Args:
        terminal: None: nothing is written.
        total: how many benchmarks there are.
        plan: the run's plan, which others keep up to date.

    Attributes:
        shown: the tests whose outcome a line has already shown.
    """

    def __init__(
        self,
        terminal: Terminal | None = None,
        uncaptured: Callable[[], AbstractContextManager[None]] = nullcontext,
        total: int = 0,
        plan: Plan | None = None,
    ) -> None:
        self._terminal = terminal
        self._uncaptured = uncaptured
        self._total = total
        self._plan = plan
        self._begun = 0
        # The text that already stands on the line and stays.
        self._line = ""
        self.shown: set[str] = set()

    def begin(self, name: str, test: str) -> None:
        """A test's benchmark begins."""
        self._begun += 1
        if self._terminal:
            self.shown.add(test)
        count = f"{self._begun:{len(str(self._total))}}/{self._total}"
        self._start(f"[{', '.join(filter(None, (count, self._plan.left_told() if self._plan else '')))}] {name}: ")

    def begin_again(self, name: str) -> None:
        """A second measurement of a benchmark begins."""
        self._start(f"[again, it was disturbed] {name}: ")

    def not_again(self) -> None:
        """The second measurement is given up, as other load goes on."""
        self._add("other load goes on")

    def line(self, text: str) -> None:
        """Write a line that belongs to no benchmark."""
        self._start(f"[{text}]")

    def stage(self, name: str) -> None:
        """The benchmark enters a stage, or a part of one (`training, epoch 2`); or something else is to be known."""
        if name.partition(",")[0] not in STAGES:
            self._add(f"{name}, ")
        elif self._is_live():
            self._write(f"{_ANEW}{self._line}{name}"[: len(_ANEW) + _width()])

    def end(self, measurement: Measurement) -> None:
        """The benchmark is over."""
        self._add(self._outcome(measurement))

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

    def _start(self, text: str) -> None:
        self._line = text
        self._write(f"\n{text}")

    def _add(self, text: str) -> None:
        """Write text that stays on the line, in place of the stage."""
        anew = f"{_ANEW}{self._line}" if self._is_live() else ""
        self._line += text
        self._write(f"{anew}{text}")

    def _is_live(self) -> bool:
        """Whether the line can be rewritten: on a screen, and if it has not wrapped."""
        return self._terminal is not None and self._terminal.isatty and len(self._line) < _width()

    def _write(self, text: str) -> None:
        if self._terminal:
            with self._uncaptured():
                self._terminal.write(text, flush=True)


def _width() -> int:
    return shutil.get_terminal_size().columns - 1
