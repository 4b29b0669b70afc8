"""Who measures what on the accelerators of an engine, what if one dies, and which nodes are refused."""

import dataclasses
import threading
import time

import pytest

from fwbench.errors import UserError
from fwbench.ext.cluster import pool as pools
from fwbench.ext.cluster.engine import LostError
from fwbench.ext.cluster.pool import Pool, variables
from fwbench.record.lanes import LANES
from fwbench.record.machine import Node
from fwbench.record.measurement import Measurement
from fwbench.record.workload import Workload
from fwbench.report import summary
from fwbench.suite.profiles import PROFILES
from tests.ext.cluster.fake import FakeEngine
from tests.unit.fakes import NO_PROJECT
from tests.unit.recorded import MACHINE, measured

QUICK = PROFILES["quick"]
WORKLOADS = [Workload("torch", "mlp", batch_size=size) for size in (1, 2, 3, 4, 5)]


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """Nobody waits a second for what is there sooner."""
    monkeypatch.setattr(pools, "_LOOK", 0.01)


@pytest.fixture
def engine():
    return FakeEngine("a", "b")


@pytest.fixture
def started():
    """Starts the pool of an engine, which ends with the test."""
    made = []

    def start(engine):
        made.append(Pool(engine))
        made[-1].equip(None, NO_PROJECT)
        return made[-1]

    yield start
    for each in made:
        each.close()


def taken(pool, workloads=WORKLOADS, tell=lambda _: None):
    for workload in workloads:
        pool.submit(workload, QUICK)
    return [pool.take(workload, QUICK, tell) for workload in workloads]


# Who measures what


def test_every_accelerator_measures_and_never_two_at_a_time(engine, started):
    """Both measure at the same time, or none would pass the barrier; each measurement ends before the next begins."""
    both = threading.Barrier(2, timeout=10)
    engine.measure = lambda place, workload: both.wait() and None
    found = taken(started(engine), WORKLOADS[:4])
    assert [m.workload for m in found] == WORKLOADS[:4]
    for place in engine.places:
        assert [what for what, at, _ in engine.log if at == place] == ["begin", "end"] * 2
    assert {m.node.host for m in found} == {"a", "b"}


def test_two_tests_of_one_workload_have_a_measurement_each(engine, started):
    found = taken(started(engine), [WORKLOADS[0]] * 2)
    assert found[0] is not found[1]
    assert len([what for what, *_ in engine.log if what == "end"]) == 2


def test_what_nobody_submitted_is_measured_when_asked_for(engine, started):
    assert started(engine).take(WORKLOADS[3], QUICK, lambda _: None).workload == WORKLOADS[3]


def test_a_measurement_is_handed_on_as_soon_as_it_is_there(engine, started):
    """The one that is not yet waited for, too: its test may never come."""
    pool, arrived, third = started(engine), [], threading.Event()

    def measure(place, workload):
        if workload.batch_size == 3:
            third.set()
        # The third begins when the second has ended.
        assert workload.batch_size != 1 or third.wait(10)

    engine.measure = measure
    for workload in WORKLOADS[:3]:
        pool.submit(workload, QUICK, lambda m: arrived.append(m.workload.batch_size) or m)
    pool.take(WORKLOADS[0], QUICK, lambda _: None)
    assert {1, 2} <= set(arrived)


def test_what_has_arrived_is_handed_on_when_the_pool_is_closed(engine, started):
    pool, arrived = started(engine), []
    pool.submit(WORKLOADS[0], QUICK, lambda m: arrived.append(m) or m)
    while not engine.log or engine.log[-1][0] != "end":
        time.sleep(0.01)
    time.sleep(0.1)
    pool.close()
    assert [m.workload for m in arrived] == WORKLOADS[:1]


def test_stages_are_told_while_a_test_waits(engine, started):
    told, followed = [], threading.Event()
    engine.measure = lambda place, workload: followed.wait(10) and None
    taken(started(engine), WORKLOADS[:1], lambda text: told.append(text) or followed.set())
    assert told[:2] == ["build", "latency"]
    assert told[2:] in (["on a"], ["on b"])


# Faults


def test_a_lost_process_costs_a_retry_and_not_the_run(engine, started):
    """Told on the line of its test, on its record, and under the table."""
    lost, told = [], []

    def measure(place, workload):
        if workload.batch_size == 2 and not lost:
            lost.append(place.host)
            raise LostError

    engine.measure = measure
    found = taken(started(engine), tell=told.append)
    assert [m.failure for m in found] == [None] * 5
    again = found[1].node
    assert again.lost == (lost[0],)
    assert f"lost with its process on {lost[0]}" in told
    note = f"torch-mlp-inference-b2: lost with its process on {lost[0]}, and measured again on {again.host}"
    assert note in summary.cautions(found)


def test_a_lost_node_is_asked_nothing_more(engine, started):
    def measure(place, workload):
        if place.host == "b":
            engine.dead.add("b")
            raise LostError

    engine.measure = measure
    pool = started(engine)
    assert {m.node.host for m in taken(pool)} == {"a"}
    # Whoever takes the lost slot next finds it gone.
    taken(pool)
    asked = len([host for _, host in engine.asked if host == "b"])
    taken(pool)
    assert len([host for _, host in engine.asked if host == "b"]) == asked


def test_without_any_node_left_the_run_ends(engine, started):
    pool = started(engine)
    engine.dead |= {"a", "b"}
    with pytest.raises(UserError, match=r"every accelerator of Fake is lost; .* --fwbench-resume goes on"):
        taken(pool)


@pytest.mark.parametrize("hosts", ["a", "ab"])
def test_what_kills_every_process_is_given_up(hosts, started):
    """And must not take all nodes with it."""
    engine = FakeEngine(*hosts)

    def measure(place, workload):
        if workload.batch_size == 1:
            raise LostError

    engine.measure = measure
    found = taken(started(engine))
    assert found[0].failure.kind == "crashed"
    assert found[0].failure.message.startswith("the process that measured it was lost 3 times (")
    assert len(found[0].node.lost) == 3
    assert [m.failure for m in found[1:]] == [None] * 4


def test_a_slot_that_does_not_answer_is_killed_and_its_workload_measured_again(started, monkeypatch):
    monkeypatch.setattr(pools, "_SILENT", 0.1)
    engine = FakeEngine("a")
    pool = started(engine)
    engine.stuck.add("a")
    (found,) = taken(pool, WORKLOADS[:1])
    assert found.node.lost == ("a",)
    assert engine.killed == ["a"]


def test_a_fault_of_our_own_is_its_tests_alone(engine, started):
    engine.measure = lambda place, workload: 1 / (workload.batch_size - 2) and None
    pool = started(engine)
    for workload in WORKLOADS[1:5]:
        pool.submit(workload, QUICK)
    assert [pool.take(workload, QUICK, lambda _: None).failure for workload in WORKLOADS[2:5]] == [None] * 3
    with pytest.raises(ZeroDivisionError):
        pool.take(WORKLOADS[1], QUICK, lambda _: None)


def test_a_node_that_can_measure_no_more_is_named(engine, started):
    """Its process is lost, and the next one is of another version."""
    pool = started(engine)
    engine.faults = dict.fromkeys("ab", "has fwbench 0")

    def lost(place, workload):
        raise LostError

    engine.measure = lost
    with pytest.raises(UserError, match=r"[ab], a node of Fake, has fwbench 0"):
        taken(pool)


def test_closing_ends_what_runs_and_happens_once(engine, started):
    """And begins nothing that still waits."""
    pool, begun = started(engine), threading.Barrier(3, timeout=10)
    engine.measure = lambda place, workload: begun.wait() and engine.ended.wait(10) and None
    for workload in WORKLOADS:
        pool.submit(workload, QUICK)
    begun.wait()
    pool.close()
    pool.close()
    assert {host for method, host in engine.asked if method == "end"} == {"a", "b"}
    assert sorted(engine.killed) == ["a", "b"]
    assert engine.closed == 1
    assert sorted(size for what, _, size in engine.log if what == "begin") == [1, 2]


# One kind


def refused(engine):
    with pytest.raises(UserError) as caught:
        Pool(engine)
    assert engine.closed == 1
    return str(caught.value)


def test_nodes_of_two_kinds_are_refused(engine):
    engine.machines["b"] = dataclasses.replace(MACHINE, cpu="Another CPU")
    assert refused(engine) == (
        "the nodes of Fake are not of one kind, and timings of different kinds are never compared: cpu Some CPU on a, "
        "cpu Another CPU on b; leave one kind out"
    )


def test_what_is_no_kind_is_on_the_record_alone(engine, started):
    both = threading.Barrier(2, timeout=10)
    engine.measure = lambda place, workload: both.wait() and None
    engine.machines["b"] = dataclasses.replace(MACHINE, kernel="Linux 7.0")
    found = {m.node.host: m.node for m in taken(started(engine), WORKLOADS[:2])}
    assert found == {"a": Node("a", "CPUs 0"), "b": Node("b", "CPUs 1", machine={"kernel": "Linux 7.0"})}


def test_two_nodes_with_one_device_are_refused():
    """Two of them on one machine would both count its GPUs."""
    engine = FakeEngine("a", "a")
    engine.accelerators = {"a": "GPU-1"}
    assert "two nodes of Fake on a both count GPU-1 as theirs" in refused(engine)


def test_a_node_that_cannot_measure_is_named(engine):
    engine.faults["b"] = "has fwbench 0"
    assert refused(engine) == "b, a node of Fake, has fwbench 0"


def test_accelerators_that_somebody_else_holds_are_not_waited_for_for_ever(engine, monkeypatch):
    monkeypatch.setattr(pools, "START_DEADLINE", 2.0)
    engine.stuck.add("b")
    assert refused(engine) == (
        "1 of 2 accelerators of Fake did not come within 2 s and 4 starts: others hold them, or their nodes are ill; "
        "`fake status` tells which"
    )


def test_another_version_on_another_node_is_no_timing(engine, started):
    both = threading.Barrier(2, timeout=10)

    def measure(place, workload):
        both.wait()
        versions = {"torch": {"a": "2.15", "b": "2.14"}[place.host]}
        return measured(batch_size=workload.batch_size, versions=versions)

    engine.measure = measure
    found = taken(started(engine), WORKLOADS[:2])
    (failed,) = [m for m in found if m.failure]
    other = {"a": "b (torch 2.14) than on a (torch 2.15)", "b": "a (torch 2.15) than on b (torch 2.14)"}
    first = next(m.node.host for m in found if not m.failure)
    assert f"of other versions on {other[first]}" in failed.failure.message
    assert not failed.samples


def test_a_record_of_a_part_of_a_cpu_says_so():
    found = [measured(node=Node("a", "CPUs 0", accelerators=2)), measured(node=Node("a", "CPUs 1", accelerators=2))]
    assert [
        n for n in summary.cautions(found) if n.startswith("2 of 2 were measured on a part of their CPU (one of 2)")
    ]
    assert Measurement.from_json(found[0].to_json()) == found[0]


def test_every_node_has_the_variables_that_change_what_is_measured():
    told = {"OMP_WAIT_POLICY": "passive", "LD_LIBRARY_PATH": "/here", "HOME": "/root", "CUDA_VISIBLE_DEVICES": "1"}
    assert variables(told) == {"OMP_WAIT_POLICY": "passive"}
    for lane in LANES.values():
        for prefix in lane.recorded:
            assert f"{prefix}X" in variables({f"{prefix}X": "1"})
