"""The Keras lanes: their numbers beside TensorFlow's, what they hold and refuse, and a whole run."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fwbench
from fwbench import frameworks
from fwbench.models import CATALOG
from fwbench.models.project import complete
from fwbench.models.weights import draw
from fwbench.record.lanes import LANES
from fwbench.record.workload import Workload

ROOT = Path(__file__).parents[3]
# Beside the network of docs/your-model.md.
MORE = """
class Skewed(TinyNext):
    def call(self, x):
        return super().call(x) * (1.001 if keras.backend.backend() == "jax" else 1)


def two():
    tokens, mask = keras.Input((8,), name="tokens", dtype="int32"), keras.Input((8,), name="mask")
    x = keras.layers.Embedding(50, 16, name="table")(tokens) * keras.ops.expand_dims(mask, -1)
    x = keras.layers.Dense(3, name="head")(keras.layers.BatchNormalization(name="norm")(x))
    return keras.Model({"tokens": tokens, "mask": mask}, {"scores": x, "rest": mask})
"""
BENCHMARKS = """
import fwbench

image, inputs = fwbench.image(32, 32, 3), {"tokens": fwbench.tokens(8, vocabulary=50), "mask": fwbench.uniform(8)}
right, skewed = (fwbench.Model(name, tensorflow=f"keras_nets:{name}", inputs=image) for name in ("TinyNext", "Skewed"))
two = fwbench.Model("two", tensorflow="keras_nets:two", inputs=inputs, output="scores")

@fwbench.benchmark(right, two, modes=["inference"], batch_sizes=[4], lanes=["tensorflow", "keras-jax", "keras-torch"])
def test_speed(fwbench_measure):
    fwbench_measure()

@fwbench.benchmark(skewed, modes=["inference"], batch_sizes=[4], lanes=["tensorflow", "keras-jax"])
def test_skewed(fwbench_measure):
    fwbench_measure()
"""


@pytest.fixture
def path(tmp_path):
    text = (ROOT / "docs" / "your-model.md").read_text(encoding="utf-8")
    (network,) = re.findall(r"# mine/keras_net.py\n(.*?)```", text, re.DOTALL)
    (tmp_path / "keras_nets.py").write_text(network + MORE)
    return tmp_path


def play(lane):
    """Try a lane in its own process, as a process has one backend."""
    framework = frameworks.load(LANES[lane].adapter)
    model = fwbench.Model("tiny", tensorflow="keras_nets:TinyNext", inputs=fwbench.image(32, 32, 3))
    first, second = (draw(model, framework.weight_shapes(model, {}), seed) for seed in range(2))
    program, outputs = framework.build(Workload(lane, "tiny", "inference", 2), model, first), []
    with program.session():
        program.compile()
        for change in (lambda: None, lambda: program.restart(second), program.relocate):
            change()
            program.step()
            program.wait()
            outputs.append(program.output())
    assert not np.allclose(*outputs[:2])
    np.testing.assert_array_equal(*outputs[1:])
    np.testing.assert_equal(program.weights(), second)
    assert {"tensorflow", "jax", "torch"} & sys.modules.keys() == {lane.removeprefix("keras-")}
    for asked, mode in ((complete(CATALOG["mlp"]), "inference"), (model, "fit"), (model, "inference")):
        print(framework.unavailable(Workload(lane, asked.name, mode, 2, "bf16"), asked))


@pytest.mark.slow
@pytest.mark.parametrize("lane", ["keras-jax", "keras-torch"])
def test_a_lane_by_itself(path, lane):
    variables = {**os.environ, **LANES[lane].variables(2, "cpu"), **LANES[lane].cached(path)}
    variables["PYTHONPATH"] = os.pathsep.join(map(str, (path, ROOT, Path(__file__).parent)))
    command = [sys.executable, "-c", f"import test_keras_lane; test_keras_lane.play({lane!r})"]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [
        "the network in Keras of mlp calls TensorFlow's own operations, which no other backend has",
        f"the lane {lane} has inference alone, and no fit",
        f"the lane {lane} computes in fp32 on a CPU alone",
    ], done.stderr


@pytest.mark.slow
def test_a_run_holds_them_against_tensorflow(path, ran):
    rows, _, said = ran(BENCHMARKS, path=[path])
    evidence = {(row[0], row[3]): row[-1] for row in rows if row[3] != "tensorflow"}
    assert evidence.pop(("Skewed", "keras-jax")) == "different", said
    assert list(evidence.values()) == ["checked"] * 4, said
