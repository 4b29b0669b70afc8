"""What stands on the terminal while a benchmark runs, and after it."""

import os
import re

import pytest

from fwbench.compare.criteria import CRITERIA
from fwbench.compare.duet import compare
from fwbench.compare.pair import Pair
from fwbench.plugin.plan import Estimate, Plan
from fwbench.plugin.progress import Progress
from fwbench.record.measurement import WAITING, Failure, Measurement
from fwbench.record.workload import Workload
from tests.unit.recorded import measured


class Terminal:
    def __init__(self, isatty):
        self.isatty = isatty
        self.written = ""

    def write(self, content, *, flush=False):
        self.written += content

    @property
    def shown(self):
        """The lines, as they stand on a screen."""
        return [re.split(r"\r\x1b\[K", line)[-1] for line in self.written.split("\n")]


@pytest.fixture(autouse=True)
def narrow(monkeypatch):
    """Pytest's own terminal asks, too, with a fallback, if tests run with -v."""
    monkeypatch.setattr("shutil.get_terminal_size", lambda fallback=(): os.terminal_size((60, 24)))


@pytest.fixture(params=[True, False], ids=["screen", "log"])
def terminal(request):
    return Terminal(request.param)


def test_a_line_shows_the_stage_of_the_moment_on_a_screen_alone(terminal):
    progress = Progress(terminal, total=12)
    progress.begin("torch-mlp", "a test")
    progress.stage("compile")
    progress.stage("latency")
    assert terminal.shown[-1] == "[ 1/12] torch-mlp: " + ("latency" if terminal.isatty else "")
    progress.stage("again with --mild")
    progress.stage("latency")
    progress.end(measured(throughput=4.0))
    assert terminal.shown == ["", "[ 1/12] torch-mlp: again with --mild, 4.00 samples/s"]
    assert terminal.written.count("latency") == 2 * terminal.isatty
    assert progress.shown == {"a test"}


@pytest.mark.parametrize("length", [50, 70])
def test_a_stage_does_not_leave_its_line(length):
    """A line that has wrapped cannot be begun anew."""
    terminal = Terminal(isatty=True)
    progress = Progress(terminal)
    progress.line("x" * length)
    progress.stage("communication")
    assert len(terminal.shown[-1]) == (59 if length == 50 else length + 2)


def test_without_a_terminal_nothing_is_shown():
    progress = Progress()
    progress.begin("torch-mlp", "a test")
    progress.end(measured())
    assert progress.shown == set()


def test_the_time_left_is_that_of_the_moment_on_a_screen_alone(terminal):
    """Waiting, too, takes of the minutes in which lanes take turns."""
    now = [0.0]
    plan = Plan({"a": Estimate("torch", 60.0, False)}, turns=lambda measuring: 360.0 - now[0])
    progress = Progress(terminal, total=1, plan=plan)
    progress.begin("torch-mlp", "a")
    now[0] = 120.0
    progress.stage(WAITING)
    left = 4 if terminal.isatty else 6
    assert terminal.shown[-1] == f"[1/1, up to {left} min left] torch-mlp: " + (WAITING if terminal.isatty else "")
    now[0] = 240.0
    progress.end(measured(throughput=4.0))
    left = 2 if terminal.isatty else 6
    assert terminal.shown[-1] == f"[1/1, up to {left} min left] torch-mlp: 4.00 samples/s"


def test_rounds_of_turns_are_one_line_on_a_screen_and_a_line_each_in_a_log(terminal):
    progress = Progress(terminal, total=1)
    progress.begin("torch-mlp", "a")
    progress.end(measured(throughput=4.0))
    for number in (1, 2, 3):
        progress.line(f"round {number}")
    last = ["[round 3]"] if terminal.isatty else ["[round 1]", "[round 2]", "[round 3]"]
    assert terminal.shown == ["", "[1/1] torch-mlp: 4.00 samples/s", *last]


def test_a_duets_stages_pass(terminal):
    """However many pairs it plays."""

    def play(workloads, arrived):
        sides = {"base": {"latency": 0.1}, "head": {"latency": 0.1}}
        for workload in workloads:
            arrived(workload, Pair({"latency": 0.0}, {}, sides, {}, 0.0, 60.0))

    progress = Progress(terminal, total=1)
    progress.begin("torch-mlp", "a")
    compare({Workload("torch", "mlp"): {"latency": CRITERIA["latency"].duet}}, play, progress.stage)
    assert terminal.shown[-1] == "[1/1] torch-mlp: " + (
        "screening, pair 3 (benchmarks: 1, about 1." if terminal.isatty else ""
    )


def test_what_fails_several_workloads_of_a_network_is_said_once():
    """Each test fails, and the first one has the reason, wherever it fails; reasons of others stand in each."""
    progress = Progress()

    def shown(lane, size, message, stage="build", kind="error"):
        failure = Failure(kind, message, stage, "a traceback")
        return progress.once(Measurement(Workload(lane, "mlp", batch_size=size), failure=failure)).failure

    first = shown("jax", 1, "no weights fit")
    assert (first.message, first.detail) == ("no weights fit", "a traceback")
    again = shown("jax", 8, "no weights fit", "latency")
    assert ("jax-mlp-inference-b1" in again.message, again.detail, again.stage) == (True, "", "latency")
    assert shown("jax", 1, "no weights fit") == first
    others = [shown("torch", 8, "no weights fit"), shown("jax", 8, "another")]
    assert [other.message for other in others] == ["no weights fit", "another"]
    assert [shown("jax", size, "it died", kind="crashed").message for size in (1, 8)] == ["it died", "it died"]


def test_a_line_that_stays_is_kept_on_a_screen_too(terminal):
    progress = Progress(terminal)
    progress.line("building")
    for text in ("one", "two"):
        progress.line(text, stays=True)
    assert terminal.shown[-2:] == ["[one]", "[two]"]
