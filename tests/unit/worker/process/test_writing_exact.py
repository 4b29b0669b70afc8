"""What float64 makes of a workload: who computes it, once for all, and what its errors become on a record."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

import fwbench
from fwbench import frameworks
from fwbench.machine import machine
from fwbench.meters import sketching
from fwbench.models import CATALOG
from fwbench.models.project import Project
from fwbench.record.lanes import LANES
from fwbench.record.measurement import Failure, Measurement
from fwbench.record.metrics import ERRORS
from fwbench.record.workload import Workload
from fwbench.suite import selection
from fwbench.suite.profiles import PROFILES
from fwbench.suite.selection import Selection
from fwbench.suite.studies import Part
from fwbench.worker.client import workers as module
from fwbench.worker.client.workers import Workers
from fwbench.worker.process.run import Measuring
from fwbench.worker.process.writing import write as write_file
from tests.unit.fakes import FakeFramework, FakeProgram
from tests.unit.worker.process.test_run import Restarting

JAX_ALONE = fwbench.Model("mine", inputs=fwbench.normal(3), jax="mine.net:Net")
LOW = Workload("jax", "mlp", batch_size=4, precision="bf16")


class Calculators(Workers):
    """Workers of which some lanes can compute in float64; `asked` has what was asked of them."""

    def __init__(self, *able, lowers=False):
        models = {**CATALOG, "mine": JAX_ALONE}
        super().__init__(machine(), "cpu", {}, Project(Path(), (), models), lowers=lambda workload: lowers)
        self.able, self.asked, self.jobs = able, [], []

    def _write(self, workload, job):
        self.asked.append(workload)
        return None if workload.lane in self.able else Failure("unavailable", "it cannot")

    def _once(self, workload, job, tell):
        self.jobs.append(job)
        return super()._once(workload, {**job, "exact": None}, tell)

    def exact(self, workload=LOW, **changes):
        return self._exact(dataclasses.replace(workload, **changes), {}, lambda stage: None)

    def states(self, workload=LOW, protocol=PROFILES["quick"], **changes):
        return self._states_errors(dataclasses.replace(workload, **changes), protocol)


@pytest.fixture
def workers():
    made = []

    def make(*able, **given):
        made.append(Calculators(*able, **given))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_the_reference_computes_once_for_all_lanes_and_precisions(workers):
    made = workers("torch", "jax")
    for lane in ("jax", "torch", "torch-compile"):
        for precision in ("fp32", "bf16", "tf32"):
            told = made.exact(lane=lane, precision=precision)
    assert told["lane"] == "torch"
    assert made.asked == [dataclasses.replace(LOW, lane="torch", precision="fp64")]
    # Another batch, seed or mode is another thing to compute.
    files = [made.exact(**change)["file"] for change in ({"batch_size": 8}, {"seed": 1}, {"mode": "train_step"})]
    assert len({told["file"], *files}) == 4


def test_another_framework_of_the_model_does_where_the_reference_cannot(workers):
    made = workers("jax")
    assert made.exact()["lane"] == "jax"
    assert [each.lane for each in made.asked] == ["torch", "jax"]
    assert made.exact(model="mine")["lane"] == "jax"
    assert [each.lane for each in made.asked][2:] == ["jax"]


def test_a_lane_that_rounds_its_weights_is_not_asked(workers, monkeypatch):
    rounded = {name: dataclasses.replace(LANES[name], quantised="int8") for name in ("torch", "torch-compile")}
    monkeypatch.setattr(module, "LANES", {**dict(LANES), **rounded})
    made = workers("torch", "torch-compile", "jax")
    assert made.exact()["lane"] not in rounded
    assert not {each.lane for each in made.asked} & set(rounded)


def test_where_none_can_the_reason_names_each(workers):
    made = workers()
    assert made.exact(model="mine") == {"reason": "nothing computes it in float64 (jax: it cannot)"}
    made.exact(model="mine")
    assert len(made.asked) == 1


@pytest.mark.parametrize(
    ("changes", "lowers", "expected"),
    [
        ({}, False, True),
        ({"precision": "tf32"}, False, True),
        ({"mode": "train_step"}, False, True),
        ({"precision": "fp32"}, False, False),
        ({"precision": "fp32"}, True, True),
        ({"precision": "fp64"}, True, False),
        ({"mode": "fit"}, True, False),
        ({"mode": "dispatch"}, True, False),
        ({"devices": 2}, True, False),
    ],
)
def test_a_lower_precision_states_errors_and_fp32_where_it_stands_beside_one(workers, changes, lowers, expected):
    assert workers(lowers=lowers).states(**changes) is expected


@pytest.mark.parametrize("change", [{"smoke": True}, {"programs": True}])
def test_a_run_that_measures_nothing_states_none(workers, change):
    assert not workers().states(protocol=dataclasses.replace(PROFILES["quick"], **change))


def test_a_run_lowers_what_its_options_or_its_suite_have_in_a_lower_precision():
    parts = (
        Part("inference", ("torch",), ("mlp", "cnn"), (1,)),
        Part("inference", ("torch",), ("cnn",), (1,), {"precision": ("tf32", "bf16")}),
    )
    plain = Selection(PROFILES["quick"], parts, {}, {}, None, {}, "cpu", 1, 0.0)
    lowers = [
        plain.lowers(Workload("torch", model, mode)) for model, mode in (("mlp", "inference"), ("cnn", "inference"))
    ]
    assert lowers == [False, True]
    assert not plain.lowers(Workload("torch", "cnn", "train_step"))
    for asked, expected in ((("fp32", "bf16"), True), (("fp32",), False), (("fp64", "fp32"), False)):
        chosen = dataclasses.replace(plain, settings={"precision": asked})
        assert chosen.lowers(Workload("torch", "mlp")) is expected
        # What the options say takes the place of what the suite says.
        assert chosen.lowers(Workload("torch", "cnn")) is expected


@pytest.mark.parametrize(("quantised", "expected"), [("int8", True), ("", False)])
def test_fp32_states_its_errors_beside_quantised_weights_that_a_test_or_the_suite_measures(
    monkeypatch, quantised, expected
):
    monkeypatch.setattr(
        selection, "LANES", {**dict(LANES), "torch-compile": dataclasses.replace(LANES["jax"], quantised=quantised)}
    )
    part = Part("inference", ("torch", "torch-compile"), ("mlp",), (1,))
    for make in (
        lambda chosen: chosen.workloads("inference", CATALOG),
        lambda chosen: chosen.of_test(CATALOG["mlp"], "inference", [1], ["torch", "torch-compile"]),
    ):
        chosen = Selection(PROFILES["quick"], (part,), {}, {}, None, {}, "cpu", 1, 0.0)
        assert len(make(chosen)) == 2
        assert chosen.lowers(Workload("torch", "mlp")) is expected
        assert not chosen.lowers(Workload("torch", "cnn"))
        assert not chosen.lowers(Workload("torch", "mlp", "train_step"))


@pytest.fixture
def written(monkeypatch, tmp_path):
    """Let a fake framework write; returns the measurement and what was written, or None."""

    def write(framework, mode="inference"):
        monkeypatch.setattr(frameworks, "load", lambda adapter: framework)
        file = tmp_path / "exact.npz"
        workload = Workload("noop", "noop", mode, batch_size=4, precision="fp64")
        job = {"workload": workload.to_json(), "path": [], "model": CATALOG["noop"].to_json(), "start": None}
        made = write_file(LANES["noop"], {**job, "write_exact": str(file)})
        return made, sketching.read(str(file)) if file.exists() else None

    return write


def test_a_worker_writes_an_output_or_the_first_steps_loss(written, clock):
    made, folded = written(FakeFramework(FakeProgram(clock, output=2.0)))
    assert (made.failure, folded.keys()) == (None, {"output"})
    assert np.abs(folded["output"].slots).sum() == 8.0
    made, folded = written(FakeFramework(Restarting(clock)), "train_step")
    assert (made.failure, folded.keys()) == (None, {"loss"})
    assert folded["loss"].norms == [1.0]


@pytest.mark.parametrize(
    ("framework", "kind", "message"),
    [
        (FakeFramework(reason="no float64 here"), "unavailable", "no float64 here"),
        (FakeFramework(error=MemoryError("no room")), "out_of_memory", "no room"),
    ],
)
def test_what_keeps_a_worker_from_it_is_a_failure(written, framework, kind, message):
    made, folded = written(framework)
    assert (made.failure.kind, folded) == (kind, None)
    assert message in made.failure.message


@pytest.fixture
def measured(monkeypatch, clock, protocol, tmp_path):
    """Measure a fake program that is told what float64 makes of its workload."""

    def measure(program, told, mode="inference"):
        monkeypatch.setattr(frameworks, "load", lambda adapter: FakeFramework(program))
        if isinstance(told, dict) and "reason" not in told:
            file = str(tmp_path / "exact.npz")
            sketching.write(file, sketching._all_folded(told, lengths=True))
            told = {"file": file, "lane": "torch"}
        workload = Workload("noop", "noop", mode, batch_size=4)
        given = workload, LANES["torch"], CATALOG["noop"], protocol, lambda stage: None, clock
        return Measuring(*given, exact=told).run()

    return measure


def errors(measurement):
    return {name: measurement.metrics[name] for name in ERRORS.values() if name in measurement.metrics}


def test_a_record_has_its_errors_with_their_source_and_the_check_has_none(measured, clock):
    found = measured(FakeProgram(clock, output=1.5), {"output": np.ones(4)})
    (error,) = errors(found).values()
    assert (error.value, error.source) == (0.5, "relative L2, against float64 in torch")
    assert found.parity["check"].keys() == {"output"}


def test_what_a_lane_cannot_tell_or_nothing_computes_has_its_reason(measured, clock):
    found = measured(Restarting(clock), {"loss": np.ones(1), "gradients": {"w": np.ones(3)}}, "train_step")
    assert errors(found)["loss_error"].value == 0.0
    assert errors(found)["gradient_error"].reason == "the lane torch tells no gradients of the reference's names"
    found = measured(FakeProgram(clock), {"reason": "nothing computes it"})
    assert errors(found)["output_error"].reason == "nothing computes it"
    found = measured(FakeProgram(clock), {"output": np.zeros(4)})
    assert errors(found)["output_error"].reason == "it is not finite, or zero in float64"
    assert errors(measured(FakeProgram(clock), None)) == {}


def test_a_reference_of_another_shape_loses_nothing_but_the_error(measured, clock):
    found = measured(FakeProgram(clock, output=1.0), {"output": np.ones(5)})
    assert (found.failure, found.parity["check"].keys()) == (None, {"output"})
    assert errors(found)["output_error"].reason == "the lane torch tells no output of the reference's names"


def test_what_every_lane_takes_over_is_of_the_first_of_several_networks(monkeypatch):
    networks = {"eager": "mine.net:Net", "fused": "mine.net:Fused"}
    two = fwbench.Model("two", inputs=fwbench.normal(3), torch=networks)
    jobs = []

    def served(self, workload, job, tell):
        jobs.append((workload.lane, job["workload"]["lane"], job["model"]["networks"]["torch"]))
        return Measurement(workload)

    monkeypatch.setattr(Workers, "_served", served)
    made = Workers(machine(), "cpu", {}, Project(Path(), (), {"two": two}))
    try:
        low = Workload("torch:fused", "two", precision="bf16")
        made.measure(low, PROFILES["quick"], lambda stage: None)
    finally:
        made.close()
    writing, measuring = ("torch", "torch", "mine.net:Net"), ("torch:fused", "torch:fused", "mine.net:Fused")
    assert jobs == [writing, writing, measuring]
