"""What the tests of all derived lanes share: a lane's output beside PyTorch's, and a whole run of a lane."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fwbench.frameworks.precision import check, operands
from fwbench.frameworks.torch.adapter import FRAMEWORK as TORCH
from fwbench.models import CATALOG
from fwbench.models.weights import draw
from fwbench.record.lanes import EXPORTS
from fwbench.record.workload import Workload

ROOT = Path(__file__).parents[1]
# How far rounding in float32 carries fifty layers. The check of a run measures a bound for each model instead.
NEAR = 1e-4


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Export networks into the test's folder, with which they are removed."""
    monkeypatch.setenv(EXPORTS, str(tmp_path / "exports"))
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    # These tests are for the CPU.
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


def apart(one, other):
    return float(np.linalg.norm(one - other) / np.linalg.norm(other))


def output(framework, lane, model, weights, axes=()):
    """A program of a lane and its output."""
    program = framework.build(Workload(lane, model.name, "inference", 2, axes=axes), model, weights)
    program.compile()
    return program, called(program)


def called(program):
    with program.session():
        program.step()
        program.wait()
        return program.output()


@pytest.fixture
def agrees():
    """Check that a lane computes a model's output as PyTorch does, also after it has got other weights."""

    def check(framework, lane, name):
        model = CATALOG[name]
        axes = (("image_size", 64),) if "image_size" in model.sizes() else ()
        shapes = TORCH.weight_shapes(model, model.sizes(axes))
        right, other = draw(model, shapes, 0), draw(model, shapes, 1)
        _, expected = output(TORCH, "torch", model, right, axes)
        program, found = output(framework, lane, model, right, axes)
        assert apart(found, expected) < NEAR
        assert program.exported_size().value > sum(4 * array.size for array in right.values()) / 2
        if name == "cnn":
            first, second = program.fingerprint(), program.fingerprint()
            assert first.digest == second.digest
            assert sum(count for kind, count in first.operators.items() if "conv" in kind.lower()) == 3
            program.restart(other)
            assert apart(called(program), expected) > 100 * NEAR
            program.relocate()
            assert apart(called(program), output(TORCH, "torch", model, other, axes)[1]) < NEAR
            assert program.fingerprint().digest == first.digest

    return check


@pytest.fixture
def only_inference_in_float32():
    """Check that a lane has that, and refuses training, bf16 and one more change of the workload in a sentence."""

    def refuses(framework, lane, more):
        workload, model = Workload(lane, "mlp", "inference", 2), CATALOG["mlp"]
        for changes in ({"mode": "train_step"}, {"precision": "bf16"}, more):
            assert f"the lane {lane} " in framework.unavailable(dataclasses.replace(workload, **changes), model)
        assert framework.unavailable(workload, model) is None
        verdicts = check("fp32", operands(), framework.probe(workload, operands()))
        assert {verdict["arithmetic"] for verdict in verdicts.values()} == {"fp32"}

    return refuses


@pytest.fixture
def ran(tmp_path):
    """Measure a file of benchmarks as a user does; return the rows of lanes, the saved records and what was printed."""

    def run(benchmarks, *options, path=()):
        project = tmp_path / "project"
        project.mkdir()
        (project / "test_speed.py").write_text(benchmarks)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        environment |= {"PYTHONPATH": os.pathsep.join(map(str, (*path, ROOT)))}
        fast = ["--benchmark-only", "--benchmark-max-time=0.1", "--benchmark-min-rounds=5", "--benchmark-save-data"]
        fast += ["-v", "--fwbench-set=patience=0", "--fwbench-minutes=0", "--benchmark-save=base"]
        command = [sys.executable, "-m", "pytest", *fast, *options]
        done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        # The table of lanes comes after that of answers.
        _, _, table = done.stdout.rpartition("throughput/s")
        rows = [line.split() for line in table.splitlines()]
        (saved,) = project.glob(".benchmarks/*/*_base.json")
        records = [record["extra_info"] for record in json.loads(saved.read_text())["benchmarks"]]
        return [row for row in rows if row[1:2] == ["inference"]], records, done.stdout

    return run
