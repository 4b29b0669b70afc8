"""The measurement of epochs: its stages, its check, its failures."""

import dataclasses

import numpy as np
import pytest

from fwbench import frameworks
from fwbench.ext.epochs import measuring
from fwbench.models import CATALOG
from fwbench.record.lanes import OWN
from fwbench.record.sketch import Sketch
from fwbench.record.workload import Workload
from fwbench.worker.process.run import Measuring
from tests.ext.epochs.fakes import FakeData
from tests.unit.fakes import FakeFramework, FakeTrainer
from tests.unit.worker.process.test_run import Failing, Restarting
from tests.unit.worker.process.test_run import checked as checked_steps


@pytest.fixture
def checked(monkeypatch, clock, protocol):
    """Train a fake for an epoch of three steps in a lane that is not the harness' own."""

    def run(program, opening=None, **changes):
        monkeypatch.setattr(measuring, "open_data", opening or (lambda *_, **__: FakeData(clock, {"train": 12})))
        return checked_steps(monkeypatch, clock, protocol, program, "fit", **changes)

    return run


def test_the_check_begins_again_with_the_first_batch_when_all_is_timed(checked, clock):
    program = Restarting(clock)
    found = checked(program)
    assert found.failure is None
    assert np.abs(Sketch.from_json(found.parity["check"]["loss"]).slots).tolist() == [[1.0]]
    assert program.log[program.log.index("restart") - 1] == "feed"
    # Nothing is timed after the first restart: the check's calls are the only ones.
    after = program.log[program.log.index("restart") :]
    assert after.count("step") == after.count("wait") == 2
    # The memory was measured in the training.
    assert program.log.count("reset") == 1
    assert "reset" not in after


@pytest.mark.parametrize("breaks", [False, True])
def test_what_fails_while_it_is_checked_loses_no_training(checked, clock, breaks):
    fault = None if breaks else MemoryError("no room\nfor two")
    found = checked(Restarting(clock, fault=fault, breaks=breaks))
    assert found.failure is None
    assert found.samples
    assert found.value("first_epoch_time") > 0
    assert found.value("host_peak_memory") > 0
    said = "RuntimeError: no state" if breaks else "MemoryError: no room"
    assert found.parity["check"] == {"reason": f"reading back what it computes failed: {said}"}


def test_what_the_datas_libraries_set_is_no_change_by_the_network(checked, monkeypatch, clock):
    monkeypatch.delenv("KMP_INIT_AT_FORK", raising=False)
    opened = []

    def open_data(*given, **named):
        # As scikit-learn does when it is imported.
        opened.append(monkeypatch.setenv("KMP_INIT_AT_FORK", "FALSE"))
        return FakeData(clock, {"train": 12})

    found = checked(Restarting(clock), opening=open_data)
    assert opened
    assert found.failure is None
    assert "caution" not in found.settings


def test_a_batch_that_cannot_be_had_again_loses_no_training(checked, clock):
    class Once(Restarting):
        def feed(self, images, labels):
            if self.log.count("feed") == 3:
                raise OSError("the disk is gone")
            super().feed(images, labels)

    found = checked(Once(clock))
    assert found.failure is None
    assert found.parity["check"] == {"reason": "reading back what it computes failed: OSError: the disk is gone"}


@pytest.mark.parametrize("changes", [{"smoke": True}, {"programs": True}])
def test_where_nothing_is_timed_nothing_is_read_back(checked, clock, changes):
    found = checked(program := Restarting(clock), **changes)
    assert found.failure is None
    assert "check" not in {*found.parity, *found.stages}
    assert "restart" not in program.log


def test_a_compiler_that_fails_in_a_training_is_told_from_the_network(monkeypatch, clock, protocol):
    """So that the fallback flags are tried there, too."""

    class Broken(FakeTrainer):
        def compile(self):
            raise OSError("ptxas died")

    splits = {"train": 8, "validation": 4, "test": 4}
    monkeypatch.setattr(measuring, "open_data", lambda *_, **__: FakeData(clock, splits))
    monkeypatch.setattr(frameworks, "load", lambda adapter: Failing(Broken(clock)))
    workload = Workload("noop", "noop", "fit", batch_size=4)
    failure = Measuring(workload, OWN["noop"], CATALOG["noop"], protocol, print, clock).run().failure
    assert (failure.kind, failure.stage, failure.compiler) == ("error", "training", True)


@pytest.fixture
def measure(monkeypatch, clock, protocol):
    def run(epochs=2, **changes):
        monkeypatch.setattr(frameworks, "load", lambda lane: FakeFramework(FakeTrainer(clock)))
        workload = Workload("noop", "mlp", "fit", 64, data="digits", epochs=epochs)
        announced = []
        amounts = dataclasses.replace(protocol, **changes)
        measuring = Measuring(workload, OWN["noop"], CATALOG["mlp"], amounts, announced.append, clock)
        return measuring.run(), announced

    return run


def test_a_fit_has_its_own_stages_and_a_round_an_epoch(measure):
    measurement, announced = measure()
    assert measurement.failure is None
    before = ["data", "build", "data", "build", "probe", "energy"]
    assert announced == [*before, "training", "training, epoch 1", "training, epoch 2", "test", "program"]
    # 22 batches of 64 among digits' 1,437 training samples at a second each, and 3 of validation; compiling takes 3 s.
    assert measurement.samples == (3 + 22 + 3 * 0.25, 22 + 3 * 0.25)
    assert measurement.value("compile_time") == 2.0
    assert len(measurement.training["losses"]) == 44
    assert len(measurement.training["batches"]) == 16
    assert measurement.value("host_peak_memory") >= measurement.value("host_initial_memory") > 0


def test_a_smoke_run_of_a_fit_makes_one_step(measure):
    measurement, _ = measure(smoke=True)
    assert measurement.failure is None
    assert measurement.samples == ()
