"""The settings that a process has in force."""

from fwbench.record.workload import Workload
from fwbench.worker.process.witness import changed, in_force
from tests.unit.fakes import FakeFramework

MLP = Workload("torch", "mlp")


class Threads(FakeFramework):
    """Has four threads, and two once it has built."""

    threads = 4

    def in_force(self, workload):
        return {"threads": self.threads, "autocast": False}

    def chosen(self, workload):
        return {"threads": 2}


def test_settings_that_a_build_chooses_are_no_change_and_others_are():
    framework = Threads()
    before = in_force((), framework, MLP, building=True)
    framework.threads = 2
    assert in_force((), framework, MLP)["autocast"] is False
    assert changed(before, in_force((), framework, MLP)) == {}
    framework.threads = 1
    assert changed(before, in_force((), framework, MLP))["threads"] == 1


def test_a_framework_need_not_tell_its_settings():
    told = in_force((), FakeFramework(), MLP, building=True)
    assert "denormal numbers" in told
    assert told == in_force((), FakeFramework(), MLP)
