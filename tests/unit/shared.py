"""What makes runs within tests short: what takes long to make, made once, and pytest without what it does not need.

And how tests run other commands.
"""

import dataclasses
import fcntl
import importlib
import os
import shutil
import subprocess

import pytest

from fwbench.suite.profiles import PROFILES

# Amounts of a run in which nothing is timed that anybody would believe.
UNTIMED = dataclasses.replace(
    PROFILES["quick"],
    warmup_iterations=1,
    warmup_time=0.0,
    min_rounds=5,
    max_time=0.0,
    percentile_time=0.0,
    throughput_time=0.0,
    energy_time=0.0,
)

# Without plugins that happen to be installed, and that no test here is about: to import them, and Hypothesis at the end
# of each run, takes three times as long as all else that an empty run does.
ALONE = ("-p", "no:cacheprovider", "-p", "no:anyio", "-p", "no:hypothesispytest", "-p", "no:jaxtyping")

# For a conftest.py: a duet plays a pair of short turns and takes it for all. What it makes of pairs is the statistics'
# own matter.
ONE_PAIR = """
import dataclasses

from fwbench.worker.turns import pairs

play, played = pairs.Pairs.play, {}


def once(self, workloads, arrived):
    played.update(play(self, [workload for workload in workloads if workload not in played]))
    for workload in workloads:
        arrived(workload, played[workload])


pairs.Pairs.play = once
pairs.Pairs.amounts = dataclasses.replace(pairs.Pairs.amounts, placings=1)
"""

# The same of plain tests, for each duet and each try of a search.
ONE_PLAIN_PAIR = """
from fwbench.worker.turns.plain import PlainPairs

play = PlainPairs.play


def once(self, tests, arrived):
    played = vars(self).setdefault("played", {})
    play(self, [test for test in tests if test not in played], played.__setitem__)
    for test in tests:
        arrived(test, played[test])


PlainPairs.play = once
"""


def once(tmp_path_factory, name, make):
    """The folder of this name, filled by `make(folder)` in whichever of pytest-xdist's workers asks first."""
    base = tmp_path_factory.getbasetemp()
    # A worker's own lies in the run's.
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder, made = shared / f"shared-{name}", shared / f"shared-{name}.made"
    with (shared / f"shared-{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            # What an attempt that failed has left.
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            made.touch()
    return folder


def finish(*command, **options):
    """Run a command to its end; returns it with its output as text."""
    return subprocess.run(list(map(str, command)), **{"capture_output": True, "text": True, **options})


def git(folder, *arguments):
    """Run git in a folder, as nobody in particular; returns its output."""
    identity = ("-c", "user.name=nobody", "-c", "user.email=nobody@example.org")
    return finish("git", *identity, "-C", folder, *arguments, check=True).stdout.strip()


def extension(path):
    """A module of an extension of fwbench; None where that is not here, as the core works without it."""
    try:
        return importlib.import_module(f"fwbench.ext.{path}")
    except ModuleNotFoundError as error:
        if error.name not in ("fwbench.ext", f"fwbench.ext.{path.partition('.')[0]}"):
            raise
        return None


def needs(name):
    """A mark for tests that use a command of this extension."""
    return pytest.mark.skipif(extension(name) is None, reason=f"the extension {name} is not here")
