"""What derived lanes share: the exporting process, its answers, and the program over what it wrote."""

import contextlib
import importlib
import os
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fwbench import Input, frameworks
from fwbench.errors import UnavailableError
from fwbench.ext.derived import adapter, exporting
from fwbench.ext.derived.adapter import EXPORTS
from fwbench.frameworks.torch.adapter import FRAMEWORK as TORCH
from fwbench.models import Model, ModelError
from fwbench.models.weights import draw
from fwbench.record.lanes import OWN, Lane
from fwbench.record.workload import Workload
from tests.ext.derived.graphs import Graphs

NETWORK = """
import torch

class Net(torch.nn.Module):
    def __init__(self, width=3):
        super().__init__()
        self.first = torch.nn.Linear(4, width)
        self.table = torch.nn.Embedding(5, width)
        self.norm = torch.nn.BatchNorm1d(width)

    def forward(self, x, *, token, keep):
        mixed = self.norm(self.first(x) + self.table(token))
        return {"scores": torch.where(keep, mixed, 0.0), "rest": x}

class Broken(Net):
    def forward(self, x, *, token, keep):
        raise RuntimeError("no such thing")
"""
INPUTS = {
    "x": Input((4,)),
    "token": Input((), dtype="int32", draw="integers", high=5),
    "keep": Input((3,), dtype="bool", draw="integers", high=2),
}
FRAMEWORK = Graphs()


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    (tmp_path / "odd_network.py").write_text(NETWORK)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.syspath_prepend(Path(__file__).parents[3])
    monkeypatch.setenv(EXPORTS, str(tmp_path / "exports"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


def described(network="Net"):
    return Model("odd", torch=f"odd_network:{network}", inputs=INPUTS, output="scores")


def workload(lane="graph"):
    return Workload(lane, "odd", "inference", 2, seed=3)


def called(program):
    program.compile()
    return again(program)


def again(program):
    with program.session():
        program.step()
        program.wait()
        return program.output()


@contextlib.contextmanager
def in_this_process():
    """Let the exporting process work in this one: a process of its own imports PyTorch first."""

    def run(command, **_):
        exporting.main(Path(command[-1]))
        return SimpleNamespace(returncode=0)

    threads = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adapter.subprocess, "run", run)
        yield
    torch.set_num_threads(threads)


@pytest.mark.slow
def test_it_computes_what_the_network_computes(tmp_path):
    model = described()
    with in_this_process():
        shapes = FRAMEWORK.weight_shapes(model, model.sizes())
    assert shapes == TORCH.weight_shapes(model, model.sizes())
    weights, moved = draw(model, shapes, 0), draw(model, shapes, 1)
    program = FRAMEWORK.build(workload(), model, weights)
    times = program.compile()
    # Exporting and loading are timed apart.
    assert times.trace == program.export_time > 0
    assert times.total == times.trace + times.compile
    expected = called(TORCH.build(workload("torch"), model, weights))
    assert np.array_equal(again(program), expected)
    assert program.settings == {"inputs": ["input_0", "input_1", "input_2"]}
    assert {name: array.dtype for name, array in program.inputs.items()} == {
        "input_0": np.float32,
        "input_1": np.int64,
        "input_2": bool,
    }
    assert program.exported_size().value == sum(
        file.stat().st_size for file in program.folder.glob("exported/*") if file.name == "module.pt2"
    )
    assert program.folder.parent == tmp_path / "exports"
    with in_this_process():
        program.restart(moved)
    other = again(program)
    assert np.array_equal(other, called(TORCH.build(workload("torch"), model, moved)))
    assert not np.array_equal(other, expected)
    program.relocate()
    assert np.array_equal(again(program), other)
    assert all(np.array_equal(array, moved[name]) for name, array in program.weights().items())
    assert program.fingerprint().digest is None


def test_the_lane_of_the_documents_runs_as_it_is_written_there(tmp_path, monkeypatch):
    page = Path(__file__).parents[3].joinpath("docs/adding-a-lane.md").read_text()
    files = re.findall(r"```python\n# (export_lane/\w+\.py)\n(.*?)```", page, re.DOTALL)
    assert [name for name, _ in files] == ["export_lane/__init__.py", "export_lane/adapter.py"]
    tmp_path.joinpath("export_lane").mkdir()
    for name, text in files:
        tmp_path.joinpath(name).write_text(text)
    lane = importlib.import_module("export_lane").LANE
    assert (lane.name, lane.derived) == ("export", "torch")
    model = described()
    weights = draw(model, TORCH.weight_shapes(model, model.sizes()), 0)
    with in_this_process():
        program = frameworks.load(lane.adapter).build(workload("export"), model, weights)
    assert np.array_equal(called(program), called(TORCH.build(workload("torch"), model, weights)))


@pytest.mark.parametrize(
    ("network", "wanted", "error", "sentence"),
    [
        ("Net", "refuse", UnavailableError, "the network in PyTorch cannot be exported: no operator for it (it is)"),
        ("Net", "die", UnavailableError, "the network in PyTorch cannot be exported: gone"),
        ("Broken", "", ModelError, "no such thing"),
        ("Missing", "", ModelError, "Missing"),
    ],
)
def test_what_fails_is_one_sentence(monkeypatch, network, wanted, error, sentence):
    monkeypatch.setenv("DERIVED_LANE", wanted)
    weights = draw(described(), TORCH.weight_shapes(described(), described().sizes()), 0)
    with in_this_process(), pytest.raises(error) as raised:
        FRAMEWORK.build(workload(), described(network), weights)
    assert sentence in str(raised.value)
    assert str(raised.value).isprintable()


def test_what_it_does_not_have():
    model = described()
    assert FRAMEWORK.unavailable(workload(), model) is None
    cases = {
        "inference alone": {"mode": "train_step"},
        "compute in bf16 on a CPU": {"precision": "bf16"},
        "compute in fp32 on a GPU": {"device": "gpu"},
    }
    for sentence, changes in cases.items():
        asked = Workload(**{"lane": "graph", "model": "odd", "mode": "inference", "batch_size": 2, **changes})
        assert sentence in FRAMEWORK.unavailable(asked, model)
    assert "no network in PyTorch" in FRAMEWORK.unavailable(workload(), Model("odd", jax="a:b", inputs=Input((4,))))


def test_the_worker_removes_what_was_exported():
    lane = Lane(name="a", framework="a", title="a", adapter="a:b", distributions=(), derived="torch")
    assert lane.cached(Path("folder")) == {EXPORTS: os.path.join("folder", "exports")}
    assert EXPORTS not in OWN["torch"].cached(Path("folder"))
