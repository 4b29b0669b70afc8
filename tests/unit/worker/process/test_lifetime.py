"""How a keeper ends: its job goes with it, in whichever order it is told that its client is gone."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has what keepers need")

# Of a job with a number that no process has.
TOLD_TWICE = """
import os, signal
from fwbench.worker.process.lifetime import Keeper

class Told(Keeper):
    def _clear(self, pid):
        os.kill(os.getpid(), signal.SIGTERM)
        print(f"{pid} cleared", flush=True)
        return 0

keeper = Told(0, ".")
keeper._job = 2**22 + 1
keeper._end()
"""


def test_a_keeper_that_the_pipe_told_clears_its_job_before_the_signal_ends_it():
    done = subprocess.run([sys.executable, "-c", TOLD_TWICE], stdout=subprocess.PIPE, text=True)
    assert (done.stdout, done.returncode) == (f"{2**22 + 1} cleared\n", 0)
