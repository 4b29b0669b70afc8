"""What stands on the terminal while a benchmark runs, and after it."""

import os
import re

import pytest

from fwbench.plugin.progress import Progress
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
