"""The values that a user's network starts from: written once by its reference, moved where they are constant."""

import sys
from pathlib import Path

import numpy as np
import pytest

import fwbench
from fwbench import frameworks
from fwbench.errors import UnavailableError
from fwbench.machine import machine
from fwbench.models import CATALOG, ModelError, inputs
from fwbench.models.project import Project
from fwbench.models.weights import canonical, draw
from fwbench.record.lanes import OWN
from fwbench.record.measurement import Failure
from fwbench.record.workload import Workload
from fwbench.worker.client.workers import Workers
from fwbench.worker.process.writing import write as write_file
from tests.unit.fakes import FakeFramework

MINE = fwbench.Model("mine", torch="nets:Torch", jax="nets:Jax", inputs=inputs.normal(3), axes={"width": (4, 8)})
SHAPES = {"rates": (16,), "scale": (64,), "shift": (500,), "norm.running_var": (500,), "gain": (1,), "head": (4, 8)}
VALUES = {
    "rates": np.log(np.arange(1.0, 17.0)),
    "scale": np.full(64, 3.0),
    "shift": np.zeros(500),
    "norm.running_var": np.ones(500),
    "gain": np.array([2.0]),
    "head": np.eye(4, 8),
}


@pytest.fixture
def started(tmp_path):
    """The canonical weights from a file with these values."""

    def start(values=VALUES, seed=0, source="drawn"):
        np.savez(tmp_path / "initial.npz", **values)
        return canonical(source, MINE, SHAPES, seed, str(tmp_path / "initial.npz"))

    return start


def test_what_the_constructor_sets_is_where_every_lane_starts(started):
    weights = started()
    assert weights.keys() == SHAPES.keys()
    assert {array.dtype for array in weights.values()} == {np.dtype(np.float32)}
    for name in ("rates", "head"):
        np.testing.assert_array_equal(weights[name], VALUES[name].astype(np.float32))


def test_constants_are_moved_so_that_no_part_is_without_effect(started):
    weights = started()
    for name, mean, deviation in (("scale", 3.0, 0.3), ("shift", 0.0, 0.02), ("norm.running_var", 1.0, 0.4 / 12**0.5)):
        assert weights[name].std() == pytest.approx(deviation, rel=0.3), name
        assert weights[name].mean() == pytest.approx(mean, abs=deviation / 3), name
    assert (np.abs(weights["norm.running_var"] - 1) <= 0.2 + 1e-6).all()
    assert weights["gain"] != 2.0
    # The same in every process, and others with another seed.
    again, other = started(), started(seed=1)
    np.testing.assert_array_equal(again["scale"], weights["scale"])
    assert (other["scale"] != weights["scale"]).any()


def test_what_the_reference_does_not_name_or_has_in_another_shape_is_drawn(started):
    values = {"rates": VALUES["rates"], "head": np.eye(8, 4), "further": np.ones(3)}
    weights, drawn = started(values), draw(MINE, SHAPES, 0)
    np.testing.assert_array_equal(weights["rates"], values["rates"].astype(np.float32))
    for name in SHAPES.keys() - {"rates"}:
        np.testing.assert_array_equal(weights[name], drawn[name])
    assert list(weights) == list(SHAPES)


def test_without_a_file_weights_are_drawn_by_rule():
    weights, drawn = canonical("drawn", MINE, SHAPES, 0), draw(MINE, SHAPES, 0)
    assert all(np.array_equal(weights[name], drawn[name]) for name in SHAPES)


class Telling(FakeFramework):
    def initial(self, model, sizes, seed):
        if self.error:
            raise self.error
        return {"rates": VALUES["rates"], "of": np.array([sizes["width"], seed])}


@pytest.fixture
def saved(monkeypatch, tmp_path):
    """Let a framework write its network's initial values: the measurement, and the file."""
    monkeypatch.setattr(sys, "path", sys.path[:])

    def write(framework, **fields):
        monkeypatch.setattr(frameworks, "load", lambda adapter: framework)
        workload = Workload("torch", "mine", **fields)
        file = tmp_path / "initial.npz"
        job = {"workload": workload.to_json(), "model": MINE.to_json(), "path": [str(tmp_path)], "save": str(file)}
        return write_file(OWN["torch"], job), file

    return write


def test_a_worker_writes_what_its_network_is_built_with(saved):
    measurement, file = saved(Telling(), seed=3, axes=(("width", 8),))
    assert (measurement.failure, measurement.samples) == (None, ())
    with np.load(file) as stored:
        np.testing.assert_array_equal(stored["rates"], VALUES["rates"])
        assert stored["of"].tolist() == [8, 3]


@pytest.mark.parametrize(
    ("framework", "kind", "message"),
    [
        (FakeFramework(), "error", "the framework does not tell a network's initial values"),
        (Telling(error=ModelError("no such network")), "error", "no such network"),
        (Telling(error=UnavailableError("no module")), "unavailable", "no module"),
        (Telling(error=ZeroDivisionError("by zero")), "error", "by zero"),
    ],
)
def test_what_keeps_a_worker_from_it_is_a_failure(saved, framework, kind, message):
    measurement, file = saved(framework)
    assert measurement.failure.kind == kind
    assert message in measurement.failure.message
    assert not file.exists()


class Writers(Workers):
    """Workers of which some lanes can write; `asked` has what was asked of them."""

    def __init__(self, *able):
        models = {**CATALOG, "mine": MINE, "bare": fwbench.Model("bare", inputs=MINE.inputs)}
        super().__init__(machine(), "cpu", {}, Project(Path(), (), models))
        self.able, self.asked = able, []

    def _write(self, workload, job):
        self.asked.append((workload.lane, workload.seed, workload.axes))
        if workload.lane not in self.able:
            return Failure("unavailable", "no")
        Path(job["save"]).write_text("written")
        return None

    def start(self, lane="jax", model="mine", **fields):
        return self._start(Workload(lane, model, **fields), {})


@pytest.fixture
def writers(monkeypatch):
    for name in ("SLURM_JOB_ID", "SLURM_JOBID", "SLURM_PROCID", "SLURM_NTASKS"):
        monkeypatch.delenv(name, raising=False)
    made = []

    def make(*able):
        made.append(Writers(*able))
        return made[-1]

    yield make
    for workers in made:
        workers.close()


def test_the_reference_writes_once_for_every_lane_mode_precision_and_batch(writers):
    workers = writers("torch", "jax")
    files = {
        workers.start(lane, mode=mode, precision=precision, batch_size=batch_size)
        for lane in ("torch", "jax", "torch-compile")
        for mode in ("inference", "train_step")
        for precision, batch_size in (("fp32", 1), ("bf16", 8))
    }
    assert workers.asked == [("torch", 0, ())]
    (file,) = files
    assert Path(file).read_text() == "written"
    workers.close()
    assert not Path(file).exists()


def test_another_seed_and_another_size_have_their_own_file(writers):
    workers = writers("torch")
    files = {workers.start(), workers.start(seed=1), workers.start(axes=(("width", 8),))}
    assert len(files) == 3
    assert workers.asked == [("torch", 0, ()), ("torch", 1, ()), ("torch", 0, (("width", 8),))]


def test_where_the_reference_cannot_the_next_framework_writes(writers):
    workers = writers("jax")
    file = workers.start("torch")
    assert Path(file).read_text() == "written"
    assert [lane for lane, *_ in workers.asked] == ["torch", "jax"]


def test_where_none_can_weights_are_drawn_and_nobody_is_asked_twice(writers):
    workers = writers()
    assert (workers.start(), workers.start("torch")) == (None, None)
    assert [lane for lane, *_ in workers.asked] == ["torch", "jax"]


@pytest.mark.parametrize("fields", [{"model": "mlp"}, {"model": "bare"}, {"weights": "pretrained"}])
def test_the_suites_own_models_and_published_weights_need_none(writers, fields):
    workers = writers("torch")
    assert workers.start(**fields) is None
    assert workers.asked == []
