"""Benchmarks spread over many accelerators: who measures what, what if one dies, and what is refused; no Ray here."""

import dataclasses
import itertools
import os
import re
import socket
import subprocess
import sys
from types import SimpleNamespace

import pytest

import fwbench
from fwbench.errors import Absent, UserError
from fwbench.machine import nvml
from fwbench.record.lanes import LANES
from fwbench.record.machine import Node
from fwbench.record.measurement import Measurement, Metric
from fwbench.record.reading import read
from fwbench.record.workload import Workload
from fwbench.report import summary
from fwbench.suite.profiles import PROFILES
from fwbench.worker import pool as pools
from fwbench.worker import slot as slots
from fwbench.worker.pool import Engine, LostError, NoSlotsError, Pool, places, variables
from fwbench.worker.ray import Ray
from fwbench.worker.slot import Setup, Slot
from tests.unit.fakes import NO_PROJECT, FakeClock
from tests.unit.recorded import MACHINE, measured
from tests.unit.suites import benchmarks, in_process, suite  # noqa: F401

SETUP = Setup(NO_PROJECT, "cpu", {}, 1, 1, 0.0, False)
QUICK = PROFILES["quick"]
WORKLOADS = [Workload("torch", "mlp", batch_size=size) for size in (1, 2, 3, 4, 5)]


class FakeEngine(Engine):
    """Slots that need one second of a fake clock for each call, on nodes of a name and a number of accelerators.

    Attributes:
        dies: called with a node and a workload that a slot has begun; true: its process is lost.
        log: begin and end of each measurement: (what, place, workload's batch size, seconds).
    """

    name = "Fake"

    def __init__(self, nodes, clock, gpu=False):
        self.places = places(nodes, gpu)
        self.clock = clock
        self.log = []
        self.machines = {place.host: MACHINE for place in self.places}
        self.versions = {}
        self.faults = {}
        self.accelerators = {}
        self.dead = set()
        self.stuck = set()
        self.dies = lambda place, size: False
        self.killed = []
        self.closed = 0
        self._tickets = {}
        self._numbers = itertools.count()

    def start(self, place, arguments):
        return SimpleNamespace(place=place, arguments=arguments, gone=False)

    def ask(self, handle, method, *arguments, aside=False):
        ticket = next(self._numbers)
        due = self.clock() + (0.0 if aside else 1.0)
        if method == "measure":
            self.log.append(("begin", handle.place, arguments[1]["batch_size"], self.clock()))
        self._tickets[ticket] = (due, handle, method, arguments)
        return ticket

    def wait(self, tickets, seconds):
        self.clock.advance(seconds)
        return {t for t in tickets if self._tickets[t][0] <= self.clock() and not self._is_stuck(t)}

    def _is_stuck(self, ticket):
        _, handle, *_ = self._tickets[ticket]
        return handle.place.node in self.stuck and not handle.gone

    def answer(self, ticket):
        _, handle, method, arguments = self._tickets[ticket]
        place = handle.place
        if place.node in self.dead or handle.gone:
            raise LostError
        if method == "describe":
            of_slot = self.accelerators.get(place.node, f"CPUs {place.part}")
            machine = dataclasses.replace(self.machines[place.host], cpus=(place.part,)).to_json()
            told = {"host": place.host, "accelerator": of_slot, "machine": machine}
            return told | {"fault": self.faults.get(place.node, "")}
        if method == "stages":
            return ["build", "latency"]
        _, workload, protocol = arguments
        if self.dies(place, workload["batch_size"]):
            handle.gone = True
            raise LostError
        self.log.append(("end", place, workload["batch_size"], self.clock()))
        versions = {"torch": self.versions.get(place.host, "2.15")}
        found = measured(batch_size=workload["batch_size"], protocol=protocol, versions=versions)
        return found.to_json()

    def alive(self, place):
        return place.node not in self.dead

    def kill(self, handle):
        handle.gone = True
        self.killed.append(handle.place)

    def close(self):
        self.closed += 1


@pytest.fixture
def engine(clock):
    return FakeEngine([("n1", "a", 1), ("n2", "b", 1)], clock)


def started(engine):
    pool = Pool(engine, engine.clock)
    pool.equip(SETUP)
    return pool


def taken(pool, workloads=WORKLOADS, tell=lambda _: None):
    for workload in workloads:
        pool.submit(workload, QUICK)
    return [pool.take(workload, QUICK, tell) for workload in workloads]


# Who measures what


def test_every_accelerator_measures_and_never_two_at_a_time(engine):
    """What the engine was asked, per accelerator: each measurement ends before the next one begins."""
    found = taken(started(engine))
    assert [m.workload for m in found] == WORKLOADS
    for place in engine.places:
        kinds = [what for what, at, *_ in engine.log if at == place]
        assert kinds == ["begin", "end"] * (len(kinds) // 2)
        assert len(kinds) >= 4
    assert {m.node.host for m in found} == {"a", "b"}


def test_all_begin_at_the_first_take_and_none_waits_for_its_test(engine):
    pool = started(engine)
    for workload in WORKLOADS[:2]:
        pool.submit(workload, QUICK)
    pool.take(WORKLOADS[0], QUICK, lambda _: None)
    begun = {size: when for what, _, size, when in engine.log if what == "begin"}
    assert begun[1] == begun[2]


def test_two_tests_of_one_workload_have_a_measurement_each(engine):
    found = taken(started(engine), [WORKLOADS[0]] * 2)
    assert found[0] is not found[1]
    assert len([what for what, *_ in engine.log if what == "end"]) == 2


def test_what_nobody_submitted_is_measured_when_asked_for(engine):
    assert started(engine).take(WORKLOADS[3], QUICK, lambda _: None).workload == WORKLOADS[3]


def test_a_measurement_is_handed_on_as_soon_as_it_is_there(engine):
    """The one that is not yet waited for, too: its test may never come."""
    pool, arrived = started(engine), []
    for workload in WORKLOADS[:2]:
        pool.submit(workload, QUICK, lambda m: arrived.append(m) or m)
    pool.take(WORKLOADS[0], QUICK, lambda _: None)
    assert [m.workload for m in arrived] == WORKLOADS[:2]


def test_stages_are_told_while_a_test_waits(engine):
    told = []
    ask = engine.ask

    def slow(handle, method, *arguments, aside=False):
        ticket = ask(handle, method, *arguments, aside=aside)
        if method == "measure":
            due, *rest = engine._tickets[ticket]
            engine._tickets[ticket] = (due + 10, *rest)
        return ticket

    engine.ask = slow
    taken(started(engine), WORKLOADS[:1], told.append)
    assert told == ["build", "latency", "on a"]


def test_nodes_on_one_host_share_its_cores(clock):
    found = places([("n2", "b", 1), ("n1", "a", 1), ("n3", "a", 2), ("n4", "c", 0)], gpu=False)
    assert [(p.node, p.host, p.part, p.parts) for p in found] == [
        *(("n1", "a", 0, 3), ("n3", "a", 1, 3), ("n3", "a", 2, 3)),
        ("n2", "b", 0, 1),
    ]


# Faults


def test_a_lost_process_costs_a_retry_and_not_the_run(engine):
    """Told on the line of its test, on its record, and under the table."""
    lost, told = [], []

    def dies(place, size):
        return size == 2 and not lost and (lost.append(place) or True)

    engine.dies = dies
    found = taken(started(engine), tell=told.append)
    assert [m.failure for m in found] == [None] * 5
    again = found[1].node
    assert again.lost == (lost[0].host,)
    assert f"lost with its process on {lost[0].host}" in told
    notes = summary.cautions(found)
    assert (
        f"torch-mlp-inference-b2: lost with its process on {lost[0].host}, and measured again on {again.host}" in notes
    )


def test_a_lost_node_is_asked_nothing_more(engine):
    def dies(place, size):
        if place.node == "n2":
            engine.dead.add("n2")
        return place.node == "n2"

    engine.dies = dies
    pool = started(engine)
    found = taken(pool)
    assert {m.node.host for m in found} == {"a"}
    assert len(pool) == 1


def test_without_any_node_left_the_run_ends(engine):
    pool = started(engine)
    engine.dead |= {"n1", "n2"}
    with pytest.raises(NoSlotsError, match=r"every accelerator of Fake is lost; .* --fwbench-resume goes on"):
        taken(pool)


def test_what_kills_every_process_is_given_up(engine):
    """And must not take all nodes with it."""
    engine.dies = lambda place, size: size == 1
    found = taken(started(engine))
    assert found[0].failure.kind == "crashed"
    assert found[0].failure.message.startswith("the process that measured it was lost 3 times (")
    assert [m.failure for m in found[1:]] == [None] * 4


def test_a_slot_that_does_not_answer_is_killed_and_its_workload_measured_again(clock):
    engine = FakeEngine([("n1", "a", 1)], clock)
    pool = started(engine)
    engine.stuck.add("n1")
    kill = engine.kill

    def killed(handle):
        kill(handle)
        engine.stuck.clear()

    engine.kill = killed
    (found,) = taken(pool, WORKLOADS[:1])
    assert found.node.lost == ("a",)
    assert clock() > pools._SILENT


def test_a_fault_of_our_own_is_its_tests_alone(engine):
    answer = engine.answer

    def broken(ticket):
        if engine._tickets[ticket][2] == "measure" and engine._tickets[ticket][3][1]["batch_size"] == 2:
            raise ZeroDivisionError
        return answer(ticket)

    engine.answer = broken
    pool = started(engine)
    taken(pool, [WORKLOADS[0]])
    for workload in WORKLOADS[1:3]:
        pool.submit(workload, QUICK)
    assert pool.take(WORKLOADS[2], QUICK, lambda _: None).failure is None
    with pytest.raises(ZeroDivisionError):
        pool.take(WORKLOADS[1], QUICK, lambda _: None)


def test_closing_ends_what_runs_and_happens_once(engine):
    pool = started(engine)
    for workload in WORKLOADS:
        pool.submit(workload, QUICK)
    pool.take(WORKLOADS[0], QUICK, lambda _: None)
    pool.close()
    pool.close()
    assert {method for _, _, method, _ in engine._tickets.values()} >= {"end"}
    assert sorted(place.node for place in engine.killed) == ["n1", "n2"]
    assert engine.closed == 1


# One kind


def refused(engine):
    with pytest.raises(UserError) as caught:
        Pool(engine, engine.clock)
    assert engine.closed == 1
    return str(caught.value)


def test_nodes_of_two_kinds_are_refused(engine):
    engine.machines["b"] = dataclasses.replace(MACHINE, cpu="Another CPU")
    assert refused(engine) == (
        "the nodes of Fake are not of one kind, and timings of different kinds are never compared: cpu Some CPU on a, "
        "cpu Another CPU on b; leave one kind out"
    )


def test_what_is_no_kind_is_on_the_record_alone(engine):
    engine.machines["b"] = dataclasses.replace(MACHINE, kernel="Linux 7.0")
    found = {m.node.host: m.node for m in taken(started(engine))}
    assert found == {"a": Node("a", "CPUs 0"), "b": Node("b", "CPUs 0", machine={"kernel": "Linux 7.0"})}


def test_two_nodes_with_one_device_are_refused(clock):
    """Two of them on one machine would both count its GPUs."""
    engine = FakeEngine([("n1", "a", 1), ("n2", "a", 1)], clock)
    engine.accelerators = {"n1": "GPU-1", "n2": "GPU-1"}
    assert "two nodes of Fake on a both count GPU-1 as theirs" in refused(engine)


def test_a_node_that_cannot_measure_is_named(engine):
    engine.faults["n2"] = "has fwbench 0"
    assert refused(engine) == "b, a node of Fake, has fwbench 0"


def test_accelerators_that_somebody_else_holds_are_not_waited_for_for_ever(engine):
    engine.stuck.add("n2")
    assert refused(engine).startswith("1 of 2 accelerators of Fake did not come within 180 s: others hold them")


def test_another_version_on_another_node_is_no_timing(engine):
    engine.versions["b"] = "2.14"
    found = taken(started(engine))
    failures = {m.node.host: m.failure for m in found}
    assert failures["a"] is None
    assert "of other versions on b (torch 2.14) than on a (torch 2.15)" in failures["b"].message
    assert not next(m for m in found if m.failure).samples


def test_a_record_of_a_part_of_a_cpu_says_so():
    found = [measured(node=Node("a", "CPUs 0", accelerators=2)), measured(node=Node("a", "CPUs 1", accelerators=2))]
    assert [
        n for n in summary.cautions(found) if n.startswith("2 of 2 were measured on a part of their CPU (one of 2)")
    ]
    assert Measurement.from_json(found[0].to_json()) == found[0]


# A slot


@pytest.fixture
def here(monkeypatch):
    """A slot's machine of four cores, and an environment that it may change."""
    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.setattr(slots, "machine", lambda: dataclasses.replace(MACHINE, cpus=(0, 2, 4, 6), threads=4))


def made(part=0, parts=1, gpu=False, version=fwbench.__version__, niceness=20, **variables):
    return Slot(part, parts, gpu, variables, niceness, version)


def test_slots_of_one_host_have_cores_of_their_own(here):
    described = [made(part, 2).describe() for part in (0, 1)]
    assert [d["machine"]["cpus"] for d in described] == [(0, 2), (4, 6)]
    assert [d["machine"]["threads"] for d in described] == [2, 2]
    assert [d["accelerator"] for d in described] == ["CPUs 0, 2", "CPUs 4, 6"]
    assert [d["fault"] for d in described] == ["", ""]


def test_a_slot_takes_no_gpu_that_nobody_has_given_it(here):
    made(XLA_FLAGS="--set")
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
    assert os.environ["XLA_FLAGS"] == "--set"
    assert isinstance(nvml.find(), Absent)


@pytest.mark.parametrize(
    ("asked", "fault"),
    [
        ({"parts": 5}, "has 4 cores for 5 accelerators: let it count no more than it has cores"),
        ({"gpu": True}, "counts a GPU, and NVML does not find it (no GPU)"),
        ({"version": "0"}, f"has fwbench {fwbench.__version__}, and this is 0: install one version everywhere"),
    ],
)
def test_a_slot_that_cannot_measure_says_why(here, asked, fault):
    assert made(**asked).describe()["fault"] == fault


def test_a_slot_without_its_share_of_the_cpus_says_so(here, monkeypatch):
    def refuse(*_):
        raise PermissionError

    monkeypatch.setattr(os, "getpriority", lambda *_: 15)
    monkeypatch.setattr(os, "setpriority", refuse)
    assert "(niceness 15)" in made(niceness=0).describe()["fault"]
    lowered = []
    monkeypatch.setattr(os, "setpriority", lambda *asked: lowered.append(asked))
    assert made(niceness=0).describe()["fault"] == ""
    assert lowered == [(os.PRIO_PROCESS, 0, 0)]


def test_a_slot_measures_as_a_run_without_a_pool_does(here, monkeypatch):
    """The threads of the run, the cores of the slot, as many processes as are asked for."""
    asked = []

    class FakeWorkers:
        def __init__(self, machine, device, pythons, project, **options):
            asked.append((machine.cpus, machine.threads, device, options))

        def measure(self, workload, protocol, tell):
            tell("build")
            return measured(stages={"waiting for quiet": 2.0})

    monkeypatch.setattr(slots, "Workers", FakeWorkers)
    slot = made(1, 2)
    setup = dataclasses.replace(SETUP, processes=3, patience=5.0, threads=1)
    found = slot.measure(setup, WORKLOADS[0].to_json(), QUICK.to_json())
    assert len(Measurement.from_json(found).processes) == 3
    assert asked == [((4, 6), 1, "cpu", {"fit_batch": False, "patience": 5.0})]
    assert slot.stages() == ["build", "process 2", "build", "process 3", "build"]


def test_every_node_has_the_variables_that_change_what_is_measured():
    told = {"OMP_WAIT_POLICY": "passive", "LD_LIBRARY_PATH": "/here", "HOME": "/root", "CUDA_VISIBLE_DEVICES": "1"}
    assert variables(told) == {"OMP_WAIT_POLICY": "passive"}
    for lane in LANES.values():
        for prefix in lane.recorded:
            assert f"{prefix}X" in variables({f"{prefix}X": "1"})


# In pytest


@pytest.fixture
def spread(suite, monkeypatch):  # noqa: F811
    """A suite that is spread over two accelerators of a fake engine, and that engine."""
    clock = FakeClock()
    engine = FakeEngine([("n1", "a", 1), ("n2", "b", 1)], clock)
    monkeypatch.setattr(pools, "time", SimpleNamespace(monotonic=clock))
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(__spec__=object()))
    monkeypatch.setitem(sys.modules, "fwbench.worker.ray", SimpleNamespace(Ray=lambda: engine))
    monkeypatch.setattr(Pool.__init__, "__defaults__", (clock,))
    answer = engine.answer

    def of_noop(ticket):
        found = answer(ticket)
        if engine._tickets[ticket][2] == "measure":
            _, workload, protocol = engine._tickets[ticket][3]
            size = workload["batch_size"]
            found = measured(workload["lane"], workload["model"], batch_size=size, protocol=protocol).to_json()
        return found

    engine.answer = of_noop
    return suite, engine


def spread_run(suite, *options):  # noqa: F811
    return in_process(suite, "--benchmark-only", "--fwbench-set=patience=0", "--fwbench-workers=ray", *options)


def test_a_run_is_spread_and_its_records_name_their_nodes(spread):
    suite, engine = spread  # noqa: F811
    done = spread_run(suite, "--benchmark-json=run.json")
    done.assert_outcomes(passed=3)
    done.stdout.fnmatch_lines(["fwbench: 2 accelerators measure at the same time, through Fake (a, b)"])
    done.stdout.fnmatch_lines(["*noop-noop-inference-b1: on [ab], *"])
    record = read(suite.path / "run.json")
    assert {m.node.host for m in record.measurements} == {"a", "b"}
    assert record.machine.cpu == "Some CPU"
    assert engine.closed == 1
    (journal,) = suite.path.glob(".benchmarks/journal/*.jsonl")
    assert len(read(journal).measurements) == 3


def test_a_saved_baseline_is_of_the_nodes_kind(spread):
    """Not of the kind of the machine that pytest runs on: another kind of nodes is not compared."""
    suite, engine = spread  # noqa: F811
    suite.makepyfile(test_suite=benchmarks("mlp", "torch"))
    gate = ("--fwbench-gate", "--benchmark-compare=base.json")
    spread_run(suite, "--benchmark-json=base.json")
    engine.closed = 0
    assert spread_run(suite, *gate).ret == 0
    engine.machines = dict.fromkeys("ab", dataclasses.replace(MACHINE, cpu="Another CPU"))
    done = spread_run(suite, *gate)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["ERROR: base.json is not comparable: cpu differs: Some CPU in *, Another CPU here.*"])


def test_k_leaves_out_and_x_cancels_the_rest_yet_keeps_what_came(spread):
    """Two measure when the first test fails; what is begun then ends, and the second one's record is kept."""
    suite, engine = spread  # noqa: F811
    failing = "    fwbench_measure()\n    assert 0\n"
    suite.makepyfile(test_suite=benchmarks(sizes=(1, 2, 3, 4)).replace("    fwbench_measure()\n", failing, 1))
    done = spread_run(suite, "-x", "-k", "not b2")
    done.assert_outcomes(failed=1, deselected=1)
    begun = [size for what, _, size, _ in engine.log if what == "begin"]
    assert begun[:2] == [1, 3]
    assert 2 not in begun
    assert len(engine.killed) == 2
    (journal,) = suite.path.glob(".benchmarks/journal/*.jsonl")
    assert [m.workload.batch_size for m in read(journal).measurements] == [1, 3]
    # And a run that goes on from there measures the rest alone.
    engine.log.clear()
    engine.closed = 0
    spread_run(suite, "--fwbench-resume").assert_outcomes(passed=3, failed=1)
    assert sorted(size for what, _, size, _ in engine.log if what == "begin") == [2, 4]


def test_what_was_disturbed_is_measured_again_by_all_at_once(spread, monkeypatch):
    """And stands in the journal once."""
    suite, engine = spread  # noqa: F811
    monkeypatch.setattr("fwbench.plugin.later._is_made_again", lambda workload: True)
    answer, seen = engine.answer, []

    def disturbed(ticket):
        found = answer(ticket)
        if engine._tickets[ticket][2] == "measure":
            size = found["workload"]["batch_size"]
            load = 0.0 if size in seen else 0.5
            # No two measurements have the same samples.
            found["samples"] = [0.25 + load]
            found["metrics"]["other_load"] = Metric(load, "a test").to_json("other_load")
            seen.append(size)
        return found

    engine.answer = disturbed
    in_process(suite, "--benchmark-only", "--fwbench-set=patience=9", "--fwbench-workers=ray").assert_outcomes(passed=3)
    begun = [(size, when) for what, _, size, when in engine.log if what == "begin"]
    assert [size for size, _ in begun] == [1, 2, 3, 1, 2, 3]
    assert begun[3][1] == begun[4][1]
    (journal,) = suite.path.glob(".benchmarks/journal/*.jsonl")
    kept = read(journal).measurements
    assert [(m.value("other_load"), len(m.attempts)) for m in kept] == [(0.0, 1)] * 3


def test_a_run_without_any_node_left_ends_with_a_sentence(spread):
    suite, engine = spread  # noqa: F811
    engine.dies = lambda place, size: engine.dead.update({"n1", "n2"}) or True
    done = spread_run(suite)
    assert done.ret == pytest.ExitCode.INTERRUPTED
    done.stdout.fnmatch_lines(["*Exit: every accelerator of Fake is lost; what was measured is in the journal*"])
    assert engine.closed == 1


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--fwbench-against=HEAD",), "*--fwbench-workers cannot work with --fwbench-against: in a duet*"),
        (("--fwbench-devices=1,2",), "*--fwbench-workers cannot work with --fwbench-devices 1,2: each benchmark*"),
        (("--benchmark-disable",), "*--benchmark-disable measures nothing that --fwbench-workers could spread*"),
        (("-n2",), "*--fwbench-workers cannot work with -n/--dist*"),
    ],
)
def test_what_cannot_be_spread_is_refused(spread, options, sentence):
    suite, engine = spread  # noqa: F811
    done = in_process(suite, "--fwbench-workers=ray", *options)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines([sentence])
    assert not engine.log


def test_without_ray_one_sentence_says_what_to_install(suite, monkeypatch):  # noqa: F811
    monkeypatch.setattr("fwbench.plugin.pooling.importlib.util.find_spec", lambda name: None)
    done = in_process(suite, "--fwbench-workers=ray")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(['ERROR: --fwbench-workers ray needs Ray*`pip install "fwbench?ray?"`, on every node.'])


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("ray://127.0.0.1:10001", "run pytest on a node of the cluster"),
        ("127.0.0.1:{free}", "no Ray cluster answers at RAY_ADDRESS=127.0.0.1:{free} ("),
    ],
)
def test_a_cluster_that_cannot_be_joined_is_one_sentence(monkeypatch, address, sentence):
    """Before Ray is imported, which would wait for minutes."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = probe.getsockname()[1]
    monkeypatch.setenv("RAY_ADDRESS", address.format(free=free))
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=re.escape(sentence.format(free=free))):
        Ray()


def test_a_run_that_is_not_spread_imports_no_ray():
    """Nor does whatever it imports; where `None` stands for a module, importing it raises."""
    code = "import sys; sys.modules['ray'] = None; import fwbench.plugin.run, fwbench.plugin.pooling"
    subprocess.run([sys.executable, "-c", code], check=True)
