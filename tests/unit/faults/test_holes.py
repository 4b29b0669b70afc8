"""Processes that get no CPU while they are measured: stopped, frozen, suspended, or held back by a quota."""

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fwbench.commands.doctor.looks import Looks
from fwbench.compare.cases import cases
from fwbench.compare.weighing import weigh
from fwbench.errors import Absent
from fwbench.machine import holes
from fwbench.machine.disturbances import GAP, QUOTA, disturbances, lengthening
from fwbench.record.measurement import Pass
from fwbench.worker.client.channel import Channel
from fwbench.worker.client.conversation import Conversation
from fwbench.worker.client.starting import SERVER, command, configuration, environment
from fwbench.worker.turns import rounds
from fwbench.worker.turns.taken import Taken
from tests.unit.fakes import FakeClock
from tests.unit.faults import seen
from tests.unit.recorded import MACHINE, measured

KIND = "a process that gets no CPU"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, and stops processes")


def watched(laps, usual=None, root=Path("/nowhere")):
    """What is told of laps of (calls, seconds, CPU seconds)."""
    clock, cpu = FakeClock(), FakeClock()
    watch = holes.Watch(usual, clock, cpu, root)
    watch.lap(0)
    for calls, seconds, computed in laps:
        clock.advance(seconds)
        cpu.advance(computed)
        watch.lap(calls)
    return watch.read()


def test_a_call_without_cpu_is_a_gap_and_one_that_computes_is_none():
    calls = [(1, 0.01, 0.01)] * 50
    assert watched(calls)["gap"] == 0
    # The process waits for calls all the time, as on a GPU.
    assert watched([(1, 0.01, 0.0)] * 50)["gap"] == 0
    told = watched([*calls, (1, 6.01, 0.01), *calls])
    assert told["gap"] == pytest.approx(6.0, abs=0.1)
    assert told["seconds"] == pytest.approx(7.01)
    # Garbage is collected, or code compiled, with as much CPU time.
    assert watched([*calls, (1, 6.01, 5.9), *calls])["gap"] == 0


def test_calls_back_to_back_are_held_against_what_a_call_usually_takes():
    assert watched([(50, 0.5, 0.5)], (0.01, 0.01))["gap"] == 0
    assert watched([(50, 6.5, 0.5)], (0.01, 0.01))["gap"] == pytest.approx(6.0, abs=0.1)
    # Several threads compute as much in less time.
    assert watched([(50, 6.25, 1.0)], (0.01, 0.02))["gap"] == pytest.approx(5.75, abs=0.1)


def test_waiting_for_a_cpu_that_others_use_is_no_gap(monkeypatch):
    waited = iter([(0.0, 0.0, 0.0), (0.0, 0.0, 5.95)])
    monkeypatch.setattr(holes.Watch, "_count", lambda self: next(waited))
    assert watched([(1, 0.01, 0.01)] * 50 + [(1, 6.01, 0.01)])["gap"] == 0


def test_a_machine_that_slept_is_told_although_no_clock_counts_it(monkeypatch, fault):
    slept = iter([(0.0, 0.0, 0.0), (3600.0, 0.0, 0.0)])
    monkeypatch.setattr(holes.Watch, "_count", lambda self: next(slept))
    told = watched([(1, 0.01, 0.01)] * 50)
    assert (told["suspended"], told["gap"]) == (3600.0, 0.0)
    assert holes.stood_still(told)
    fault(KIND, "the machine is suspended for an hour in a pass (a clock that says so)", said="")


def test_a_pass_in_which_the_process_was_stopped_is_made_again(small, fault):
    found = small.measure("Stops")
    assert found.failure is None
    source = found.metrics["latency_p50"].source
    assert source.endswith("pass 2, as the process got no CPU for a while before")
    assert max(found.samples) < 1.0
    assert [(each.name, each.gap) for each in found.passes] == [("latency", 0.0), ("throughput", 0.0)]
    assert all(each.switches >= 0 and each.seconds > 0 for each in found.passes)
    assert GAP not in {each.cause for each in disturbances([found])}
    fault(KIND, "SIGSTOP to the worker for a second, and SIGCONT", said=source)


def test_a_pass_that_is_stopped_every_time_is_marked(small, fault):
    found = small.measure("StopsInEachPass", min_rounds=120)
    (gap,) = (each for each in disturbances([found]) if each.cause == GAP)
    latency = found.passes[0]
    assert latency.gap > 0.4
    assert gap.factor == pytest.approx(latency.seconds / (latency.seconds - latency.gap))
    assert lengthening([found]) >= gap.factor
    fault(KIND, "SIGSTOP for half a second in every pass", said=f"{GAP.happened} ({gap.detail})")


@pytest.mark.parametrize(("gap", "confidence"), [(0.0, "likely"), (6.0, "undecided")])
def test_six_seconds_without_a_cpu_make_no_lane_slower(gap, confidence, fault):
    """13 times as fast with a pass of 6.5 seconds, of which 6 are a hole."""
    stopped = (Pass("throughput", 6.5, 0.5, gap=gap),)
    lanes = measured("torch", throughput=100.0), measured("jax", throughput=100 / 13, passes=stopped)
    weighed = weigh(*cases(lanes))
    assert weighed.confidence == confidence
    if gap:
        assert weighed.shown.low < 1.1
        fault(KIND, "a record of a pass of 6.5 s, 6 of them a hole", said=weighed.reason)


# A quota of CPUs


def groups(tmp_path, own, **files):
    """A file system with this process's control groups, and files by their path."""
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(own)
    for path, text in files.items():
        file = tmp_path / "sys/fs/cgroup" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path


V2 = "nr_periods 9\nnr_throttled 7\nthrottled_usec {}\n"
V1 = "nr_periods 9\nnr_throttled 7\nthrottled_time {}\n"


@pytest.mark.parametrize(
    ("own", "files", "quota", "seconds"),
    [
        ("0::/pod/c\n", {"pod/c/cpu.max": "50000 100000", "pod/c/cpu.stat": V2.format(2_000_000)}, 0.5, 2.0),
        # The group around it is narrower.
        ("0::/pod/c\n", {"pod/c/cpu.max": "max 100000", "pod/cpu.max": "150000 100000"}, 1.5, None),
        # A container sees its own group as the root of all.
        ("0::/../../docker/abc\n", {"cpu.max": "200000 100000", "cpu.stat": V2.format(0)}, 2.0, 0.0),
        ("0::/\n", {"cpu.stat": "usage_usec 12\n"}, None, None),
        (
            "4:memory:/c\n3:cpu,cpuacct:/c\n0::/\n",
            {
                "cpu,cpuacct/c/cpu.cfs_quota_us": "25000",
                "cpu,cpuacct/c/cpu.cfs_period_us": "100000",
                "cpu,cpuacct/c/cpu.stat": V1.format(10**9),
            },
            0.25,
            1.0,
        ),
        ("3:cpu:/c\n", {"cpu/c/cpu.cfs_quota_us": "-1", "cpu/c/cpu.cfs_period_us": "100000"}, None, None),
        ("nonsense\n", {"cpu.max": "50000 100000"}, None, None),
        ("0::/c\n", {"c/cpu.max": "", "c/cpu.stat": "throttled_usec\n"}, None, None),
    ],
)
def test_quotas_are_read_from_both_versions_of_control_groups(tmp_path, own, files, quota, seconds):
    root = groups(tmp_path, own, **files)
    assert holes.quota(root) == quota
    assert max(holes.throttled(root).values(), default=None) == seconds


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the kernel does not tell who waits for a CPU")
def test_a_thread_that_waits_for_a_cpu_says_so():
    """Two processes on one CPU: each waits about half of the time."""
    cpus = os.sched_getaffinity(0)
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        os.sched_setaffinity(0, {min(cpus)})
        os.sched_setaffinity(other.pid, {min(cpus)})

        def spin():
            until = time.perf_counter() + 1.0
            while time.perf_counter() < until:
                pass
            return {}

        assert holes.watched((1.0, 1.0), 1, spin)["waited"] > 0.2
    finally:
        os.sched_setaffinity(0, cpus)
        other.kill()
        other.wait()


def test_throttled_seconds_are_those_of_the_pass(tmp_path):
    root = groups(tmp_path, "0::/c\n", **{"c/cpu.stat": V2.format(5_000_000), "cpu.stat": V2.format(90_000_000)})
    watch = holes.Watch(root=root)
    watch.lap(0)
    (root / "sys/fs/cgroup/c/cpu.stat").write_text(V2.format(5_750_000))
    watch.lap(1)
    assert watch.read()["throttled"] == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("throttled", "cpu", "cpus", "factor"),
    [
        (0.5, 0.5, 1, 2.0),
        (0.5, 0.5, 2, 2.0),
        (1.5, 0.5, 2, 4.0),  # two threads, each held back for three quarters of the second
        (0.005, 0.99, 1, None),  # a trifle
        (0.0, 0.01, 1, None),
    ],
)
def test_a_quota_explains_as_much_as_it_can_have_held_back(throttled, cpu, cpus, factor):
    held = (Pass("latency", 1.0, cpu, throttled=throttled),)
    found = disturbances([measured(passes=held, settings={"cpus": list(range(cpus))})])
    assert [(each.cause, each.factor) for each in found] == ([(QUOTA, pytest.approx(factor))] if factor else [])


def test_what_a_quota_disturbs_is_not_measured_again(fault):
    """The next measurement would meet it, too."""
    assert QUOTA.lasts
    assert not GAP.lasts
    assert not holes.stood_still({"gap": 0.0, "suspended": 0.0, "throttled": 3.0})


@pytest.mark.parametrize(("quota", "level"), [(None, "good"), (2.0, "good"), (1.5, "bad"), (0.5, "bad")])
def test_the_doctor_tells_a_quota(quota, level, fault):
    here = dataclasses.replace(MACHINE, quota=quota)
    (found,) = Looks(here, Absent("no GPU"), Absent("no counter"), {})._cpus()
    assert found.level == level
    assert ("quota" in found.found) is (level != "good")
    assert ("--fwbench-threads=1" in found.next_step) is (quota == 1.5)
    if quota == 0.5:
        fault(KIND, "half a CPU (a machine's record)", said=f"{found.found} -> {found.next_step}")


def test_a_machine_with_another_quota_is_another_machine():
    half = dataclasses.replace(MACHINE, quota=0.5)
    assert MACHINE.differences(half) == ("quota",)
    assert half.differences(half) == ()


@pytest.fixture
def narrow():
    """A control group with a quota of a tenth of a CPU, which is less than other load leaves a process here."""
    tops = [Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup/cpu,cpuacct"), Path("/sys/fs/cgroup")]
    group = next((top for top in tops if (top / "cgroup.procs").exists()), tops[-1]) / f"fwbench-test-{os.getpid()}"
    try:
        group.mkdir()
        if (group / "cpu.max").exists():
            (group / "cpu.max").write_text("10000 100000")
        else:
            (group / "cpu.cfs_quota_us").write_text("10000")
    except OSError as error:
        with contextlib.suppress(OSError):
            group.rmdir()
        pytest.skip(f"no control group can be made here: {error}")
    yield group
    # Processes of the group may still be ending.
    for _ in range(200):
        with contextlib.suppress(OSError):
            group.rmdir()
            break
        time.sleep(0.05)


@pytest.mark.slow  # beside other work a tenth of a CPU is not enough to build the network
def test_a_quota_is_noticed_in_a_real_control_group(small, narrow, fault):
    def enter(stage):
        if stage == "build":
            for pid in seen.workers():
                (narrow / "cgroup.procs").write_text(str(pid))

    found = small.measure("Net", at=enter, min_rounds=200)
    assert found.failure is None
    (quota,) = (each for each in disturbances([found]) if each.cause == QUOTA)
    assert quota.factor > 1.2
    assert any(each.throttled > 0 for each in found.passes)
    fault(KIND, "a tenth of a CPU, by a control group made for the test", said=f"{QUOTA.happened} ({quota.detail})")


# Turns


@pytest.fixture
def job(tmp_path):
    """Asks a player's server in a process of its own."""
    lane = sys.modules["small_lane"].LANE
    config = json.dumps({**configuration(lane, [], scratch=str(tmp_path))})
    variables = environment({"PYTHONPATH": seen.PATH}, 1, "cpu", lane)
    channel = Channel(command(sys.executable, SERVER, config), variables)
    conversation = Conversation(channel)

    def ask(message):
        channel.send(message)
        return conversation.receive(time.monotonic() + 60, 60)

    assert "ready" in channel.receive(time.monotonic() + 60)
    yield ask
    channel.close()


@pytest.mark.parametrize("asked", [{"alone": 20, "together": 20}, {"rounds": 40}], ids=["lanes", "duet"])
def test_a_turn_says_for_how_long_its_process_was_stopped(small, job, asked, fault):
    told = {"workload": {"lane": "small", "model": "net", "batch_size": 8}}
    told["model"] = seen.model("StopsInEachPass").to_json()
    told |= {
        "path": [str(seen.PLAIN)],
        "side": "here",
        "root": "/nowhere",
        "tree": None,
        "own": [],
        "recorded": [],
        "extra": 0.0,
        "turns": True,
    }
    assert "built" in job(told)
    assert job({"place": [0]})["placed"] > 0
    held = [job(asked)["held"] for _ in range(4)]
    assert max(held) > 0.4
    assert min(held) < 0.4
    fault(KIND, f"SIGSTOP for half a second within a turn of {'lanes' if 'alone' in asked else 'a duet'}", said="")


class Partner:
    def __init__(self, *held):
        self.held, self.asked = iter(held), 0

    def ask(self, message, answer):
        self.asked += 1
        return {"held": next(self.held), "try": self.asked}


@pytest.mark.parametrize(
    ("held", "counts", "disturbed"),
    [((0.0,), 1, False), ((1.0, 0.0), 2, False), ((1.0,) * 3, 3, True)],
)
def test_a_turn_with_a_hole_is_taken_again(held, counts, disturbed):
    partner, taken = Partner(*held), Taken(None)
    assert rounds.take_turn(partner.ask, taken, {}, "try")["try"] == counts == partner.asked
    assert taken.held is disturbed
