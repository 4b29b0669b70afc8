"""Who else computes, how steady the machine is, and what of that makes a measurement a disturbed one."""

import dataclasses
import json
import math
import os
import sys
from types import MappingProxyType

import pytest

from fwbench.compare.cases import cases
from fwbench.machine.disturbances import (
    DRIFT,
    HELD,
    LOAD,
    NEIGHBOUR,
    THROTTLING,
    disturbances,
    lengthening,
    on_the_gpu,
)
from fwbench.machine.watch import Watch
from fwbench.record.machine import AcceleratorProcess, AcceleratorState
from fwbench.record.measurement import BEFORE, Measurement, Moment, Pass, unavailable
from fwbench.report import summary
from fwbench.report.answers import answers
from tests.unit.fakes import FakeGpu
from tests.unit.recorded import measured, metric
from tests.unit.test_nvml import run

OURS, CHILD = 10, 11
TIMED = "after the latency pass"


def running(*pids):
    return AcceleratorState(processes=tuple(AcceleratorProcess(pid, 2**30) for pid in pids))


def others(*looks, ours=(OURS, CHILD), **options):
    """The processes of others that each look finds, of those that the driver lists."""
    watch = Watch(FakeGpu(states=[running(*pids) for pids in looks]), ours=lambda: {*ours}, **options)
    for number in range(len(looks)):
        watch.note(str(number))
    return [[process.pid for process in moment.state.processes] for moment in watch.moments]


@pytest.mark.parametrize(
    ("looks", "found"),
    [
        # Alone: nobody, then this process and one that it has started.
        (((), (OURS,), (OURS, CHILD)), [[], [], []]),
        # A neighbour that was there before, and one that comes and goes.
        (((7,), (7, OURS), (OURS,)), [[7], [7], []]),
        (((), (OURS, 8), (OURS,)), [[], [8], []]),
        # In a container this process bears another number: the newcomer is taken for it, and stays it.
        (((), (4000,), (4000,)), [[], [], []]),
        (((7,), (7, 4000), (7, 4000)), [[7], [7], [7]]),
        (((), (4000,), (3999, 4000)), [[], [], [3999]]),
        # The driver does not list this process at all.
        (((), (), ()), [[], [], []]),
        (((7,), (7,), (7,)), [[7], [7], [7]]),
    ],
)
def test_others_are_told_from_this_process(looks, found):
    assert others(*looks) == found


def test_processes_that_wait_for_turns_are_no_neighbours_and_their_memory_is_nobody_elses():
    assert others((20,), (20, OURS), (7, 20, OURS), beside=[20]) == [[], [], [7]]
    waits = dataclasses.replace(running(20), used_memory=2**30 + 2**20)
    for beside, held in (([20], 2**20), ([], 2**30 + 2**20)):
        watch = Watch(FakeGpu(states=[waits, waits]), ours=set, beside=beside)
        watch.note(BEFORE)
        watch.note(TIMED)
        # Later all that is used is told.
        assert [moment.state.used_memory for moment in watch.moments] == [held, 2**30 + 2**20]
        assert [each.cause for each in on_the_gpu(watch.moments)] == ([] if beside else [NEIGHBOUR] * 2)


def test_in_a_container_as_many_newcomers_are_ours_as_compute_for_us():
    """Both sides of a pair, which bear other numbers there, and then a neighbour."""
    looks = ((7,), (7, 4000), (7, 4000, 4001), (4000, 4001, 4002))
    assert others(*looks, ours=(OURS,), computing=2) == [[7], [7], [7], [4002]]


@pytest.mark.parametrize(("busy", "seen"), [(5, 0.0), (99, 0.9)])
def test_beside_a_screen_what_computed_before_this_process_is_waited_for(clock, busy, seen):
    """The utilisation is of a second that is over: of the worker before this one, or of somebody who goes on."""
    drawn = {"used_memory": 2**29, "graphics": SCREEN}
    states = [AcceleratorState(utilisation=0.9, **drawn)] * busy + [AcceleratorState(utilisation=0.0, **drawn)]
    watch = Watch(FakeGpu(states=states), sleep=clock.sleep)
    watch.note(BEFORE)
    assert watch.moments[0].state.utilisation == seen
    assert clock.now == pytest.approx(0.5 if busy == 5 else 1.2)


@pytest.mark.parametrize(
    "states",
    [
        # Once this process computes, also where the driver names no processes; and where nobody holds anything.
        [AcceleratorState(utilisation=share, used_memory=2**30) for share in (0.0, 1.0)],
        [AcceleratorState(utilisation=0.9, used_memory=0)],
    ],
    ids=["ours", "nobody"],
)
def test_what_this_process_computes_and_what_nobody_does_is_not_waited_for(clock, states):
    watch = Watch(FakeGpu(states=states), sleep=clock.sleep)
    watch.note(BEFORE)
    watch.note(TIMED)
    assert clock.now == 0.0


def test_this_process_and_its_children_are_ours():
    watch = Watch(FakeGpu(states=[running(), running(os.getpid(), 1)]))
    watch.note("first")
    watch.note("second")
    assert watch.moments[-1].state.processes == running(1).processes


def test_where_the_driver_lists_nothing_nothing_is_claimed():
    watch = Watch(FakeGpu())
    watch.note("first")
    assert watch.moments == [Moment("first", AcceleratorState())]
    watch = Watch("no GPU")
    watch.note("first")
    assert watch.moments == []


def test_what_held_the_clocks_down_is_told_as_a_share_of_what_was_timed(clock):
    """The driver counts seconds since it was loaded; before anything is timed none of them is ours."""
    heat = ({"thermal limit": seconds, "power cap": 9.0} for seconds in (100.0, 107.0, 108.0, 108.0, 3.0))
    watch = Watch(FakeGpu(counted=heat), clock=clock)
    for timed in (False, False, True, True, True):
        watch.note("", timed=timed)
        clock.advance(4.0)
    # The last one: the driver was loaded anew.
    assert [moment.held["thermal limit"] for moment in watch.moments] == [0.0, 0.0, 0.25, 0.0, 0.0]
    assert {moment.held["power cap"] for moment in watch.moments} == {0.0}


HOT = AcceleratorState(throttle_reasons=("thermal limit",))


@pytest.mark.parametrize(
    ("held", "state", "detail"),
    [
        # Counted between two looks that saw nothing; or not long enough to change a number, whatever a look saw.
        ({"thermal limit": 0.3}, AcceleratorState(), "thermal limit for 30% of the time after"),
        ({"thermal limit": 0.005}, HOT, None),
        ({"thermal limit": 0.0, "power cap": 0.0}, HOT, None),
        # A look tells what is not counted.
        ({"power cap": 0.0}, HOT, "thermal limit after"),
        # At its power limit a GPU computes as much as it may.
        ({"power cap": 1.0, "thermal limit": 0.0}, AcceleratorState(throttle_reasons=("power cap",)), None),
    ],
)
def test_heat_disturbs_for_as_long_as_the_driver_counts_it(held, state, detail):
    found = disturbances([measured(accelerator=(Moment(TIMED, state, held),))])
    assert [one.cause for one in found] == ([THROTTLING] if detail else [])
    assert all(detail in one.detail for one in found)


def stood(*moments, **fields):
    return measured(accelerator=tuple(Moment(when, AcceleratorState(**state)) for when, state in moments), **fields)


SCREEN = (AcceleratorProcess(70, 2**28), AcceleratorProcess(71, 2**27))
NEIGHBOURS = MappingProxyType({"processes": running(7, 8).processes})


@pytest.mark.parametrize(
    ("moment", "cause", "detail"),
    [
        ((BEFORE, NEIGHBOURS), NEIGHBOUR, "2 processes before the build"),
        ((TIMED, {"processes": running(7).processes}), NEIGHBOUR, "1 process after the latency pass"),
        ((BEFORE, {"processes": (), "used_memory": 3 * 2**30}), NEIGHBOUR, "3.0 GiB in use before the build"),
        ((TIMED, {"throttle_reasons": ("power cap", "thermal limit")}), THROTTLING, "thermal limit after the latency"),
        # A desktop's programs hold memory, which in a container nobody sees, and draw now and then.
        ((BEFORE, {"graphics": SCREEN, "used_memory": 2**29, "utilisation": 0.03}), None, ""),
        ((BEFORE, {"graphics": SCREEN, "used_memory": 2**29}), None, ""),
        ((BEFORE, {"processes": (), "used_memory": 2**29, "utilisation": 0.03}), None, ""),
        ((BEFORE, {"used_memory": 2**29, "utilisation": 0.4}), NEIGHBOUR, "0.5 GiB in use before the build"),
        ((BEFORE, {"used_memory": 3 * 2**30, "utilisation": 0.0}), NEIGHBOUR, "3.0 GiB in use before the build"),
        ((BEFORE, {"graphics": SCREEN, "utilisation": 0.4}), NEIGHBOUR, "a screen drawn 40% of the time before"),
        ((BEFORE, {"graphics": SCREEN, "processes": running(7).processes}), NEIGHBOUR, "1 process before"),
        ((TIMED, {"graphics": SCREEN, "utilisation": 1.0}), None, ""),
        # What is no disturbance: our own memory, an idle driver's, heat before the work, the limit that is on record.
        ((TIMED, {"used_memory": 3 * 2**30}), None, ""),
        ((BEFORE, {"used_memory": HELD}), None, ""),
        ((BEFORE, {"throttle_reasons": ("thermal limit",)}), None, ""),
        ((TIMED, {"throttle_reasons": ("power cap",)}), None, ""),
        ((TIMED, {"utilisation": 1.0}), None, ""),
    ],
)
def test_what_disturbs(moment, cause, detail):
    found = disturbances([stood(moment)])
    assert [one.cause for one in found] == ([cause] if cause else [])
    assert all(detail in one.detail for one in found)


def test_of_several_disturbances_of_one_cause_the_worst_is_told():
    calm, busy = (measured(metrics={"other_load": metric(load)}) for load in (0.1, 0.4))
    found = disturbances([calm, stood((TIMED, {"processes": running(7).processes}), (TIMED, NEIGHBOURS)), busy])
    assert [(one.cause, one.detail) for one in found] == [(LOAD, "40%"), (NEIGHBOUR, f"2 processes {TIMED}")]


def beside(load, cpus=(0,), device="cpu"):
    """A measurement that met other load."""
    return measured(metrics={"other_load": metric(load)}, settings={"cpus": list(cpus)}, device=device)


@pytest.mark.parametrize(
    ("found", "factor"),
    [
        (beside(0.05), 1.0),
        (beside(0.3), 0.7**-5),
        # On two CPUs all of it may be on one, of which it leaves so much.
        (beside(0.3, (0, 1)), 0.7**-5),
        (beside(0.3, range(3)), 1 / 0.1),
        # It leaves nothing that can be counted.
        (beside(0.49, (0, 1)), math.inf),
        (beside(0.9, (0, 1)), math.inf),
        (beside(0.0, (0, 1)), 1.0),
        # Half of one CPU is somebody's program, however many there are.
        (beside(0.007, range(64)), 1.0),
        (beside(0.01, range(64)), 1 / 0.36),
        (beside(0.3, range(16), device="gpu"), 0.7**-5),
    ],
)
def test_load_explains_what_its_share_and_its_place_tell(found, factor):
    assert lengthening([found]) == pytest.approx(factor)


@pytest.mark.parametrize(
    ("device", "mode", "waited", "factor"),
    [
        # Others left a CPU free for the thread that feeds the GPU.
        ("gpu", "inference", 0.002, 1.0),
        ("gpu", "inference", 0.25, 1 / 0.75),
        ("gpu", "inference", 0.99, math.inf),
        # Old records and other kernels do not tell; loaders wait in processes of their own; a CPU's threads share it.
        ("gpu", "inference", None, 0.7**-5),
        ("gpu", "fit", 0.0, 0.7**-5),
        ("cpu", "inference", 0.0, math.inf),
    ],
)
def test_on_a_gpu_load_explains_as_much_as_threads_waited_for_a_cpu(device, mode, waited, factor):
    told = tuple(Pass(name, 2.0, 1.0, waited=part and 2 * part) for name, part in (("a", waited), ("b", None)))
    found = measured(
        metrics={"other_load": metric(0.3)}, settings={"cpus": [*range(64)]}, device=device, mode=mode, passes=told
    )
    assert lengthening([found]) == pytest.approx(factor)
    assert [one.cause for one in disturbances([found])] == ([LOAD] if factor > 1 else [])


@pytest.mark.parametrize(
    ("drift", "factor"),
    [(0.11, 1.0), (-0.11, 1.0), (0.5, 1.5), (-0.5, 2.0), (-1.0, math.inf), (-3.0, math.inf), (None, 1.0)],
)
def test_drift_explains_no_more_than_itself(drift, factor):
    told = unavailable("few calls", "n/a") if drift is None else metric(drift)
    drifting = measured(metrics={"latency_drift": told})
    assert lengthening([drifting]) == pytest.approx(factor)
    assert [one.cause for one in disturbances([drifting])] == ([DRIFT] if factor > 1 else [])
    # Beside other load it is no cause of its own.
    loaded = measured(metrics={"latency_drift": told, "other_load": metric(0.3)})
    assert [one.cause for one in disturbances([loaded])] == [LOAD]


def test_a_lane_that_is_the_slower_one_loses_nothing_while_it_is_disturbed():
    alone = measured("torch", throughput=100.0)
    for moment, told_so in (
        ((TIMED, NEIGHBOURS), "a neighbour on the GPU (2 processes after the latency pass)"),
        ((TIMED, {"throttle_reasons": ("thermal limit",)}), "a throttled GPU (thermal limit after the latency pass)"),
    ):
        (answer,) = answers(cases([alone, stood(moment, lane="jax", throughput=3.0)]))
        assert (answer.confidence, answer.reason) == ("undecided", f"one process each; {told_so}")
        # One that is the faster all the same would be more so alone.
        (answer,) = answers(cases([alone, stood(moment, lane="jax", throughput=300.0)]))
        assert (answer.fastest, answer.confidence) == ("jax", "likely")
    (answer,) = answers(cases([alone, stood((TIMED, {}), lane="jax", throughput=3.0)]))
    assert answer.confidence == "likely"


def test_notes_say_who_was_there_and_what_to_do():
    hot = stood((TIMED, {"throttle_reasons": ("thermal limit",)}), lane="jax")
    notes = summary.every_note([measured("torch"), hot, stood((TIMED, NEIGHBOURS), lane="jax", batch_size=8)])
    (neighbours,) = (note for note in notes if note.startswith("other processes were on the GPU"))
    assert "1 of 3 were measured (most: 2 processes after the latency pass, jax-mlp-inference-b8)" in neighbours
    assert "`nvidia-smi` names them" in neighbours
    (throttled,) = (note for note in notes if note.startswith("the GPU was throttled"))
    assert "nvidia-smi -q" in throttled


def test_a_power_limit_that_holds_the_clocks_down_is_a_note_and_no_disturbance():
    def limited(share, **fields):
        return measured(accelerator=(Moment(TIMED, AcceleratorState(), {"power cap": share}),), **fields)

    rows = [limited(0.93), limited(0.4, batch_size=8), limited(0.01, batch_size=32), measured("jax")]
    (note,) = (note for note in summary.every_note(rows) if "power limit" in note)
    assert "in 2 of 4 (most: 93% of a pass, torch-mlp-inference-b1)" in note
    assert disturbances(rows) == []


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the library that stands for NVML is built on Linux")
@pytest.mark.parametrize(
    ("counted", "heat", "seen_hot"),
    [({}, {"clock_event_reasons": "0x20"}, ("thermal limit",)), ({"held_269": 50}, {"held_269": 60}, ())],
    ids=["at a look", "counted"],
)
def test_a_neighbour_and_heat_that_come_while_it_is_measured_are_on_the_record(nvml_stub, counted, heat, seen_hot):
    """A whole measurement of a lane without a framework."""
    calm = {"power_limit": 500, "energy_step": 0.02, "power": 300, "processes": f"own:{2**29}", **counted}
    # The clocks of one state say that it is hot, the driver's counters of the other that it was.
    hot = {"processes": f"own:{2**29} 77:{2**30}", **heat}
    change = "".join(f"{key}={value}\n" for key, value in hot.items())
    later = {"FAILING_STAGE": "throughput", "FAILURE": change}
    machine, record = run(nvml_stub(**calm) | later, window=1.0)
    assert machine["power_limit"] == 500
    found = Measurement.from_json(json.loads(json.dumps(record)))
    assert found.failure is None
    seen = {moment.when: moment.state for moment in found.accelerator}
    assert seen["before the latency pass"].processes == ()
    assert seen["before the latency pass"].throttle_reasons == ()
    late = seen["after the energy window"]
    assert [process.pid for process in late.processes] == [77]
    assert (late.power_limit, late.throttle_reasons) == (500, seen_hot)
    assert (found.accelerator[-2].held.get("thermal limit", 0.0) > 0) == bool(counted)
    # This machine may be loaded, or change its clock rate.
    assert [one.cause for one in disturbances([found]) if one.cause not in (LOAD, DRIFT)] == [NEIGHBOUR, THROTTLING]
    # Energy by the same library: how often its counter moves was found out, and the power is what it says.
    assert found.value("energy_period") == pytest.approx(0.02, abs=0.005)
    assert found.value("power_load") == pytest.approx(300, rel=0.1)
    assert found.settings["CUDA_VISIBLE_DEVICES"] == "0"
