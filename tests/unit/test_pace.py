"""How fast two CPUs hand a number to each other."""

import errno
import os
import sys
import time

import pytest

from fwbench.machine import pace
from fwbench.machine.pace import Pace
from tests.unit.processes import gone
from tests.unit.shared import finish

CPUS = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
several = pytest.mark.skipif(len(CPUS) < 2, reason="needs two CPUs and the choice of them")


@several
def test_two_cpus_hand_a_number_to_each_other_and_the_process_stays_where_it_was():
    # A reading gives up where one of the two CPUs is busy with something else for long.
    for _ in range(50):
        with Pace(CPUS) as measured:
            found = [measured.read() for _ in range(3)]
            other = measured._other
            assert other.poll() is None
        if all(found):
            break
    assert all(1e-8 < seconds < 1e-3 for seconds in found)
    assert sorted(os.sched_getaffinity(0)) == CPUS
    assert other.poll() is not None


@several
def test_the_other_process_waits_without_using_its_cpu():
    with Pace(CPUS) as measured:
        measured.read()
        before = _cpu_seconds(measured._other.pid)
        time.sleep(0.3)
        assert _cpu_seconds(measured._other.pid) - before < 0.1


def _cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@several
def test_where_the_other_process_is_gone_nothing_is_measured(monkeypatch):
    monkeypatch.setattr(pace, "_LOOKS", 100)
    with Pace(CPUS) as measured:
        measured._other.kill()
        measured._other.wait()
        assert measured.read() is None
        assert measured.read() is None
    assert sorted(os.sched_getaffinity(0)) == CPUS


@several
@pytest.mark.parametrize("lacking", ["subprocess.Popen", "tempfile.TemporaryFile", "mmap.mmap"])
def test_where_it_cannot_start_nothing_is_measured(monkeypatch, lacking):
    def refuse(*_, **__):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(f"fwbench.machine.pace.{lacking}", refuse)
    with Pace(CPUS) as measured:
        assert measured.read() is None


@several
def test_the_other_process_ends_when_this_one_is_killed():
    script = "import os, signal; from fwbench.machine.pace import Pace; m = Pace({}).__enter__(); m.read(); "
    script += "print(m._other.pid, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    done = finish(sys.executable, "-c", script.format(CPUS))
    assert gone([int(done.stdout)])


@pytest.mark.parametrize("cpus", [(), (0,)])
def test_one_cpu_has_nobody_to_hand_to(cpus):
    with Pace(cpus) as measured:
        assert measured.read() is None
