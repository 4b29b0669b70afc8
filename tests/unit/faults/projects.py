"""A user's project in a git repository, whose network is measured in real processes, and which is edited meanwhile."""

import json
import os
import sys

import pytest

from fwbench.record import journal
from fwbench.record.lanes import LANES
from fwbench.worker.client.starting import PACKAGE
from tests.unit.plain.plain_lane import LANE
from tests.unit.suites import FAST, in_process

PLAIN = PACKAGE.parent / "tests" / "unit" / "plain"

# What each call does is another module's, as is most of a user's network.
NET = """
import part

class Net:
    calls = 0
    operators = {}
    def __call__(self):
        Net.calls += 1
        if Net.calls == CALL:
            EDIT
        return part.work()
"""
PART = "def work():\n    return sum(range(100))\n"
SLOWER = "def work():\n    return sum(range(900))\n"

SUITE = """
import fwbench

NET = fwbench.Model("mine", plain="net:Net", inputs=fwbench.normal(2))

@fwbench.benchmark(NET, lanes=["plain"], batch_sizes=[1, 2])
def test_it(fwbench_workload, fwbench_measure):
    BEFORE
    try:
        fwbench_measure()
    finally:
        AFTER
"""


class Mine:
    """The project.

    Args:
        pytester: whose folder it is.
    """

    def __init__(self, pytester):
        self.pytester, self.path = pytester, pytester.path
        self.write("conftest.py", 'pytest_plugins = ["fwbench.plugin"]\n')
        self.suite()
        self.write(".gitignore", "__pycache__\n.benchmarks\n")
        self.write("part.py", PART)
        self.edits()

    def write(self, name, text):
        (self.path / name).parent.mkdir(exist_ok=True)
        (self.path / name).write_text(text)

    def suite(self, before="pass", after="pass"):
        """Let each test begin and end with these statements."""
        self.write("test_suite.py", SUITE.replace("BEFORE", before).replace("AFTER", after))

    def edits(self, edit="pass", call=2, more=""):
        """Let the network begin with this statement, at one of its calls: 1 is of the warm-up."""
        self.write("net.py", f"{more}\n{NET.replace('EDIT', edit).replace('CALL', str(call))}")

    def by_another(self, name, text):
        """A statement by which another process writes a file of the project."""
        code = f"import pathlib; pathlib.Path({str(self.path / name)!r}).write_text({text!r})"
        return f"__import__('subprocess').run([{sys.executable!r}, '-c', {code!r}], check=True)"

    def run(self, *arguments):
        return in_process(self.pytester, "--benchmark-only", *FAST, *arguments)

    def records(self):
        """The measurements of the last run, as its journal has them."""
        last = max(self.path.glob(".benchmarks/journal/*.jsonl"), key=os.path.getmtime)
        _, *lines = map(json.loads, journal.lines(last.read_text())[0])
        return lines


@pytest.fixture
def mine(pytester, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (PLAIN, PACKAGE.parent))))
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    monkeypatch.setitem(LANES._all, LANE.name, LANE)
    return Mine(pytester)
