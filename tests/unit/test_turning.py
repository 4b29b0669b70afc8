"""First rounds: the processes that have measured a workload take turns before they end."""

import dataclasses
import math
import os
import sys
import time
from types import SimpleNamespace

import pytest

from fwbench.compare.pair import Fault
from fwbench.machine import machine
from fwbench.models import CATALOG
from fwbench.plugin import turning
from fwbench.plugin.deciding import contests
from fwbench.plugin.plan import Estimate, Plan
from fwbench.plugin.turning import Turning
from fwbench.record.lanes import LANES
from fwbench.record.measurement import Failure
from fwbench.record.workload import Workload
from fwbench.worker.client import workers as client
from fwbench.worker.client.starting import PACKAGE
from fwbench.worker.client.workers import Workers
from fwbench.worker.turns.lanes import Lanes, Round
from fwbench.worker.turns.sides import Side
from tests.unit.fakes import NO_PROJECT
from tests.unit.processes import alive, grandchildren
from tests.unit.recorded import measured, metric
from tests.unit.shared import UNTIMED

OF_ALL = Workload("", "noop", mode="fixed")
TWO = ("noop", "again")


@pytest.fixture
def again(monkeypatch):
    """A second lane that needs no framework."""
    monkeypatch.setitem(LANES._all, "again", dataclasses.replace(LANES["noop"], name="again"))


@pytest.fixture
def workers(again):
    made = Workers(machine(), "cpu", {}, NO_PROJECT, stays=lambda workload: workload.mode == "fixed")
    yield made
    made.close()


def measure(workers, lane, mode="fixed"):
    """The process that has measured in a lane."""
    pids = []
    workload = dataclasses.replace(OF_ALL, lane=lane, mode=mode)
    measurement = workers.measure(workload, UNTIMED, lambda stage: pids.append(set(grandchildren(os.getpid()))))
    assert measurement.failure is None
    return pids[-1]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and forks")
def test_the_processes_that_have_measured_play_a_round_and_end(workers, tmp_path):
    (first,) = measure(workers, "noop")
    second = measure(workers, "again") - {first}
    here = Side("here", "this run", PACKAGE, tmp_path, PACKAGE.parent)
    lanes = Lanes(here, {OF_ALL: TWO}, CATALOG, machine(), "cpu", 60.0)
    took_turns = []
    turn = Lanes._turn

    def noted(lanes, partner, *rest):
        took_turns.append(frozenset(grandchildren(os.getpid())))
        turn(lanes, partner, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Lanes, "_turn", noted)
        played = lanes.play_measured(OF_ALL, workers.staying(OF_ALL))
    assert isinstance(played, Round)
    assert played.values.keys() == {*TWO}
    assert set(took_turns) == {frozenset({first, *second})}
    assert not any(map(alive, {first, *second}))
    assert workers.staying(OF_ALL) == {}
    # Its memory is the measurement's, which holds more than turns.
    assert not any("memory" in values for values in played.values.values())
    # The servers go on.
    assert not measure(workers, "noop") & {first, *second}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and forks")
def test_a_process_stays_beside_the_other_lanes_of_its_workload_alone(workers):
    (first,) = measure(workers, "noop")
    # The next lane's process is told of it.
    assert workers.job(dataclasses.replace(OF_ALL, lane="again"), UNTIMED)["beside"] == [first]
    measure(workers, "again")
    assert workers.staying(OF_ALL).keys() == {*TWO}
    measure(workers, "again")
    assert alive(first)
    measure(workers, "again", mode="inference")
    assert not alive(first)
    assert workers.staying(OF_ALL) == {}


def test_a_process_that_fills_a_sixth_of_the_memory_does_not_stay(workers, monkeypatch):
    monkeypatch.setattr(client, "host_memory", lambda: 2**20)
    measure(workers, "noop")
    assert workers.staying(OF_ALL) == {}


def test_a_process_that_only_writes_a_file_does_not_stay_and_its_server_goes_on(workers):
    """A user's network is built once for its initial values, before it is measured."""
    assert workers.shapes(dataclasses.replace(OF_ALL, lane="noop"), UNTIMED) == {}
    assert workers.staying(OF_ALL) == {}
    for _ in range(2):
        measure(workers, "noop")


class Run:
    """A session in which all lanes have measured a workload; those of `staying` wait for turns."""

    def __init__(self, monkeypatch, staying=("torch", "jax"), until=60.0, device="cpu", plan=None):
        self.selection = SimpleNamespace(minutes=1.0, pythons={}, device=device, protocol=UNTIMED)
        self.machine, self.caches = SimpleNamespace(cpus=(0, 1)), SimpleNamespace(path=None)
        fast = {"throughput": 1000.0, "metrics": {"latency_p50": metric(1e-3)}}
        self.measurements = [measured(lane, batch_size=1, device=device, **fast) for lane in ("torch", "jax")]
        self.workload = dataclasses.replace(self.measurements[0].workload, lane="")
        self.servers = {lane: SimpleNamespace(settle=lambda lane=lane: self.settled.append(lane)) for lane in staying}
        self.settled, self.kept, self.played = [], [], []
        self.keep = self.kept.append
        monkeypatch.setattr(Lanes, "__init__", lambda lanes, side, names, *rest: setattr(lanes, "names", names))
        monkeypatch.setattr(Lanes, "play_measured", lambda *given: self.play(*given))
        begun = time.monotonic() - 60 + until
        workloads = {m.workload.id: m.workload for m in self.measurements}
        project = SimpleNamespace(root=None, path=(), models={})
        progress = SimpleNamespace(aside=lambda text: None, line=lambda text: None)
        self.turning = Turning(self, project, progress, begun, workloads, plan)

    def staying(self, workload):
        return self.servers if workload == self.workload else {}

    def play(self, lanes, workload, servers):
        self.played.append((workload, *lanes.names[workload]))
        turns = {lane: {"call": (0.1, 0.1), "latency": (0.1, 0.1)} for lane in servers}
        return Round(1.0, turns, 0.0, 5.0)

    def measured(self):
        for measurement in self.measurements:
            self.turning.measured(measurement.workload)


def test_lanes_take_turns_once_the_last_of_them_is_measured_and_the_round_is_kept(monkeypatch):
    run = Run(monkeypatch)
    run.turning.measured(run.measurements[0].workload)
    assert (run.played, run.settled) == ([], [])
    run.turning.measured(run.measurements[1].workload)
    assert run.played == [(run.workload, "torch", "jax")]
    assert [(each.workload, each.begun) for each in run.kept] == [(run.workload, 1.0)]
    assert run.settled == ["torch", "jax"]


@pytest.mark.parametrize("given", [{"staying": ["jax"]}, {"until": 0.1}])
def test_lanes_of_which_one_has_not_stayed_or_without_time_play_no_first_round(monkeypatch, given):
    run = Run(monkeypatch, **given)
    run.measured()
    assert (run.played, run.kept) == ([], [])
    assert set(run.settled) == set(run.servers)


@pytest.mark.parametrize(
    ("change", "until", "stays"),
    [
        ({}, math.inf, True),
        ({"batch_size": 3}, math.inf, False),
        ({}, -1.0, False),
    ],
)
def test_a_process_stays_on_a_cpu_if_other_lanes_follow_and_there_is_time(monkeypatch, change, until, stays):
    run = Run(monkeypatch, until=until)
    assert run.turning.stays(dataclasses.replace(run.measurements[0].workload, **change)) is stays


@pytest.mark.parametrize("recorded", [True, False])
def test_on_a_gpu_a_process_stays_if_all_lanes_are_recorded_as_they_then_load_their_programs(monkeypatch, recorded):
    workloads = [Workload(lane, "mlp", device="gpu") for lane in ("torch", "jax")]
    plan = Plan({w.id: Estimate(w.lane, 1.0, w.lane == "torch" or recorded) for w in workloads})
    run = Run(monkeypatch, device="gpu", plan=plan)
    assert [run.turning.stays(workload) for workload in workloads] == [recorded] * 2


@pytest.fixture
def decided(monkeypatch):
    """The workloads that played for their first answers, and the seconds that they had."""
    found = []

    def decide(contests, play, left, keep, tell, further):
        found.append(([contest.workload.model for contest in contests], round(left()), further))

    monkeypatch.setattr(turning, "decide", decide)
    return found


OTHER = Workload("torch", "cnn", device="gpu")


@pytest.mark.parametrize(
    ("until", "takes", "entering", "expected"),
    [
        # A round of the MLP takes less than 2 s, and it lacks two.
        (30.0, 20.0, OTHER, []),
        (30.0, 28.0, OTHER, [(["mlp"], 30, False)]),
        # Turns have a third of the minute at least.
        (10.0, 8.0, OTHER, [(["mlp"], 20, False)]),
        # What is over cannot be kept.
        (-1.0, 8.0, OTHER, []),
        (40.0, 1.0, dataclasses.replace(OTHER, precision="bf16"), [(["mlp"], 40, False)]),
        (-1.0, 1.0, dataclasses.replace(OTHER, mode="fit"), [(["mlp"], 20, False)]),
    ],
)
def test_on_a_gpu_what_lacks_an_answer_plays_before_what_leaves_no_time(
    monkeypatch, decided, until, takes, entering, expected
):
    run = Run(monkeypatch, until=until, device="gpu", plan=Plan({"test": Estimate("torch", takes, False)}))
    run.turning._tests[entering.of_all] = ["test"]
    for contest in contests(run.measurements, 2):
        assert 1.5 < contest.seconds < 2.0
    for lane in ("torch", "jax"):
        run.turning.before(dataclasses.replace(entering, lane=lane))
    assert decided == expected


def test_on_a_cpu_nothing_plays_before_another_workload(monkeypatch, decided):
    run = Run(monkeypatch, until=1.0)
    run.turning.before(dataclasses.replace(OTHER, device="cpu", mode="fit"))
    assert decided == []


def test_after_all_is_measured_what_was_measured_since_has_a_share_of_its_own(monkeypatch, decided):
    run = Run(monkeypatch, until=-5.0, device="gpu")
    run.turning.take()
    assert decided == [(["mlp"], 20, True)]
    run.turning._spent = 15.0
    run.turning.take()
    assert decided[1:] == [(["mlp"], 20, False), (["mlp"], 5, True)]


def test_what_cannot_take_turns_is_not_asked_again(monkeypatch):
    asked = []

    def fail(contests, *rest):
        asked.append(len(contests))
        contests[0].fault = Fault("here", "jax", Failure("crashed", "killed"))

    monkeypatch.setattr(turning, "decide", fail)
    run = Run(monkeypatch)
    run.turning.take()
    run.turning.take()
    assert asked == [1]


@pytest.mark.parametrize("change", [{"mode": "fit"}, {"devices": 2}])
def test_fits_and_workloads_over_several_devices_do_not_stay(monkeypatch, change):
    run = Run(monkeypatch)
    workload = dataclasses.replace(run.measurements[0].workload, batch_size=2, **change)
    run.turning._rivals.add(dataclasses.replace(workload, lane=""))
    assert not run.turning.stays(workload)
