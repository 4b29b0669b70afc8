"""`fwbench ci` that is ended from outside."""

import os
import signal
import subprocess
import sys

import pytest

from tests.unit.processes import as_in_a_terminal, gone
from tests.unit.test_faults import comes, folder  # noqa: F401

WAITS = """
import os, sys
from pathlib import Path
from fwbench.ext.ci.command import _run
from fwbench.worker.client import interrupts
with interrupts.in_order():
    sys.exit(_run([sys.executable, "-c", sys.argv[1]]))
"""


# It takes longer to end than Python waits by itself for what it has started.
RUNS = """
import os, signal, sys, time
from pathlib import Path
def end(*_):
    time.sleep(0.5)
    sys.exit(5)
signal.signal(signal.SIGINT, end)
signal.signal(signal.SIGTERM, end)
Path(os.environ["FAULT_COMES"]).touch()
time.sleep(3600)
"""


@pytest.mark.parametrize(("number", "send"), [(signal.SIGINT, os.killpg), (signal.SIGTERM, os.kill)])
def test_fwbench_ci_lets_pytest_end_in_order(folder, number, send):
    """Ctrl-C comes to both, and SIGTERM to the command alone."""
    process = subprocess.Popen([sys.executable, "-c", WAITS, RUNS], start_new_session=True, preexec_fn=as_in_a_terminal)
    pids = comes(process)
    send(process.pid, number)
    assert process.wait(timeout=30) == 5
    assert gone(pids)
