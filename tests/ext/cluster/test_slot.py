"""One accelerator of a pool, as its node sees it."""

import dataclasses
import os
import pickle

import pytest

import fwbench
from fwbench.errors import Absent
from fwbench.ext.cluster import slot as slots
from fwbench.ext.cluster.engine import Place
from fwbench.ext.cluster.slot import Slot
from fwbench.machine import nvml
from fwbench.record.workload import Workload
from fwbench.suite.profiles import PROFILES
from fwbench.suite.selection import Selection
from tests.unit.fakes import NO_PROJECT
from tests.unit.recorded import MACHINE, measured

QUICK = PROFILES["quick"]
WORKLOAD = Workload("torch", "mlp")


@pytest.fixture
def here(monkeypatch):
    """A slot's machine of four cores, and an environment that it may change."""
    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.setattr(slots, "machine", lambda: dataclasses.replace(MACHINE, cpus=(0, 2, 4, 6), threads=4))


def made(part=0, parts=1, gpu=False, version=fwbench.__version__, **variables):
    return Slot(Place("n1", "a", part, parts, gpu), variables, version)


def test_slots_of_one_host_have_cores_of_their_own(here):
    described = [made(part, 2).describe() for part in (0, 1)]
    assert [d.machine.cpus for d in described] == [(0, 2), (4, 6)]
    assert [d.machine.threads for d in described] == [2, 2]
    assert [d.accelerator for d in described] == ["CPUs 0, 2", "CPUs 4, 6"]
    assert [d.fault for d in described] == ["", ""]


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
    assert made(**asked).describe().fault == fault


def test_a_slot_measures_as_a_run_without_a_pool_does(here, monkeypatch):
    """The threads of the run, the cores of the slot, as many processes as are asked for."""
    asked = []

    class FakeWorkers(slots.Workers):
        def __init__(self, machine, device, pythons, project, **options):
            asked.append((machine.cpus, machine.threads, device, options))

        def measure(self, workload, protocol, tell):
            tell("build")
            return measured(stages={"waiting for quiet": 2.0})

    monkeypatch.setattr(slots, "Workers", FakeWorkers)
    slot = made(1, 2)
    selection = Selection(QUICK, (), {}, {}, None, {}, "cpu", 1, 0.0, processes=3, patience=5)
    found = slot.measure(selection, NO_PROJECT, WORKLOAD, QUICK)
    assert len(found.processes) == 3
    assert asked == [((4, 6), 1, "cpu", {"fit_batch": False, "patience": 5, "lowers": selection.lowers})]
    assert slot.stages() == ["build", "process 2", "build", "process 3", "build"]


def test_what_travels_to_a_slot_and_back_is_the_same_there(here):
    selection = Selection(QUICK, (), {"lanes": ("torch",)}, {}, None, {}, "cpu", 1, 0.0)
    sent = selection, NO_PROJECT, WORKLOAD, QUICK, made().describe(), measured()
    assert pickle.loads(pickle.dumps(sent)) == sent
