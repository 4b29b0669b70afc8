"""Progress on the terminal: the current benchmark, its stage, and how far the suite is."""

import dataclasses
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import pytest

from fwbench import text, units
from fwbench.plugin.plan import Plan
from fwbench.record.measurement import STAGES, Measurement

# Moves the cursor to the beginning of the line and erases the line.
_ANEW = "\r\x1b[K"

# Stages, each shown only until the next one begins: a worker's, and those of a duet.
_PASSING = (*STAGES, "screening", "confirming")


@dataclass
class Progress:
    """One line per benchmark. A screen shows the current stage and time left; a log only unusual events.

    [ 3/24, 4 min left] jax-resnet50-inference-b8: 184 ms, 43.4 samples/s

    Attributes:
        terminal: pytest's reporter; None: nothing is written.
        uncaptured: a context in which output is not captured.
        total: the number of benchmarks.
        plan: the run's plan, which the run keeps up to date.
        shown: the tests whose outcome a line has already shown.
    """

    terminal: pytest.TerminalReporter | None = None
    uncaptured: Callable[[], AbstractContextManager[None]] = nullcontext
    total: int = 0
    plan: Plan | None = None
    shown: set[str] = field(default_factory=set, init=False)
    _begun: int = field(default=0, init=False)
    # The current line: its head, which shows how far the run is, and the text that stays.
    _head: Callable[[], str] = field(default=str, init=False)
    _text: str = field(default="", init=False)
    _written: int = field(default=0, init=False)  # characters of the line as it was last written
    _is_general: bool = field(default=False, init=False)  # whether the line belongs to no benchmark
    # The first workload of each network that fails in some way.
    _failed: dict[tuple[str, ...], str] = field(default_factory=dict, init=False)

    def begin(self, name: str, test: str) -> None:
        """Begin the line of a test's benchmark."""
        self._begun += 1
        if self.terminal:
            self.shown.add(test)
        count = f"{self._begun:{len(str(self.total))}}/{self.total}"
        plan = self.plan
        self._start(lambda: f"[{', '.join(filter(None, (count, plan.left_told() if plan else '')))}] ", f"{name}: ")

    def line(self, text: str, *, stays: bool = False) -> None:
        """Write a line that belongs to no benchmark; a screen shows the next one in its place, unless it stays."""
        if self._is_general and self._is_live():
            self._text = ""
            self._show(f"[{text}]")
        else:
            self._start(str, f"[{text}]")
        self._is_general = not stays

    def stage(self, name: str) -> None:
        """Show a stage, or a part of one (`training, epoch 2`), until the next; any other text stays on the line."""
        if name.partition(",")[0] in _PASSING:
            self._show(passing=name)
        else:
            self._show(f"{name}, ")

    def aside(self, text: str) -> None:
        """Show a text behind the current line, on a screen alone; an empty one takes it away."""
        self._show(passing=text)

    def end(self, measurement: Measurement) -> None:
        """End the line with the benchmark's outcome."""
        self._show(_outcome(self.once(measurement)))

    def once(self, measurement: Measurement) -> Measurement:
        """The measurement as it is shown: an error that several workloads of a network share is shown in full once."""
        of, failure = measurement.workload, measurement.failure
        if not failure or failure.kind != "error":
            return measurement
        first = self._failed.setdefault((of.lane, of.model, failure.message), of.id)
        if first == of.id:
            return measurement
        again = dataclasses.replace(failure, message=f"it fails as {first} does", detail="")
        return dataclasses.replace(measurement, failure=again)

    def _start(self, head: Callable[[], str], text: str) -> None:
        line = f"{head()}{text}"
        self._head, self._text, self._written, self._is_general = head, text, len(line), False
        self._write(f"\n{line}")

    def _show(self, staying: str = "", passing: str = "") -> None:
        """Write text that stays; a screen shows the line anew, with the passing text as far as there is room."""
        self._text += staying
        if self._is_live():
            line = f"{self._head()}{self._text}"
            self._written = len(line)
            self._write(f"{_ANEW}{line}{passing[: max(0, _width() - len(line))]}")
        else:
            self._written += len(staying)
            self._write(staying)

    def _is_live(self) -> bool:
        """True if the line can be rewritten: it is on a screen and has not wrapped."""
        return self.terminal is not None and bool(self.terminal.isatty) and self._written < _width()

    def _write(self, text: str) -> None:
        if self.terminal and text:
            with self.uncaptured():
                self.terminal.write(text, flush=True)


def _outcome(measurement: Measurement) -> str:
    if measurement.failure:
        return f"{measurement.failure.kind}: {measurement.failure.message}"
    batch = f"at batch {measurement.workload.batch_size}: " if measurement.unfit else ""
    return f"{batch}{_numbers(measurement)}"


def _numbers(measurement: Measurement) -> str:
    if measurement.workload.mode == "fit" and measurement.samples:
        accuracy = measurement.value("validation_top1")
        epoch = f"{units.seconds(measurement.samples[-1])} an epoch"
        return epoch if accuracy is None else f"{epoch}, validation top-1 {accuracy:.1%}"
    if measurement.duet.get("verdicts"):
        latency = measurement.duet["verdicts"]["latency"]
        return f"{measurement.duet['kind']}, latency {text.change(latency['ratio'])}"
    median, throughput = measurement.value("latency_p50"), measurement.value("throughput")
    if throughput is None:
        digest = measurement.program.digest if measurement.program else None
        return digest[:12] if digest else "runs"
    typical = "" if median is None else f"{units.seconds(median)}, "
    return f"{typical}{units.rate(throughput)} samples/s"


def _width() -> int:
    return shutil.get_terminal_size().columns - 1
