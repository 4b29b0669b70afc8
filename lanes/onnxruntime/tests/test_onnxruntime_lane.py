"""The ONNX Runtime lane: its numbers beside PyTorch's, what it refuses, a whole run, and faults of the exporter."""

import pytest

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

from onnxruntime_lane.adapter import FRAMEWORK

# A lane whose exporter changes the network by mistake before it exports it.
FAULTY = """
import dataclasses
import onnxruntime_lane
from onnxruntime_lane.adapter import OnnxRuntime

LANE = dataclasses.replace(
    onnxruntime_lane.LANE, name="faulty", framework="faulty", title="faulty", adapter="faulty_lane:FRAMEWORK"
)

def export(module, inputs, folder, workload):
    import torch

    for layer in module.modules():
        if workload.model == "cnn" and isinstance(layer, torch.nn.Conv2d):
            layer.weight.data = layer.weight.data.transpose(2, 3).contiguous()
        if isinstance(layer, torch.nn.BatchNorm2d):
            layer.eps = 1e-5
    onnxruntime_lane.export(module, inputs, folder, workload)

class Faulty(OnnxRuntime):
    exporter = "faulty_lane:export"

FRAMEWORK = Faulty()
"""

# A mistake in how it is normalised moves few digits.
NETWORK = """
import torch

class Normed(torch.nn.Sequential):
    def __init__(self):
        super().__init__(
            torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8, eps=1e-3), torch.nn.Flatten(), torch.nn.Linear(288, 5)
        )
"""
BENCHMARKS = """
import fwbench

normed = fwbench.Model("normed", torch="normed:Normed", inputs=fwbench.image(8, 8, 3))

@fwbench.benchmark("cnn", modes=["inference"], batch_sizes=[4], lanes=["torch", "onnxruntime", "faulty"])
def test_speed(fwbench_measure):
    fwbench_measure()

@fwbench.benchmark(normed, modes=["inference"], batch_sizes=[4], lanes=["torch", "faulty"])
def test_faulty(fwbench_measure):
    fwbench_measure()
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cnn", "mobilenet_v3_small"])
def test_outputs_are_pytorchs(agrees, name):
    agrees(FRAMEWORK, "onnxruntime", name)


def test_it_has_only_inference_in_float32(only_inference_in_float32):
    only_inference_in_float32(FRAMEWORK, "onnxruntime", {"precision": "tf32"})


@pytest.mark.slow
def test_a_run_checks_it_and_a_fault_of_the_exporter_is_different(ran, tmp_path):
    (tmp_path / "faulty_lane.py").write_text(FAULTY)
    (tmp_path / "normed.py").write_text(NETWORK)
    (tmp_path / "faulty-1.dist-info").mkdir()
    (tmp_path / "faulty-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: faulty\nVersion: 1\n")
    (tmp_path / "faulty-1.dist-info" / "entry_points.txt").write_text("[fwbench.lanes]\nfaulty = faulty_lane:LANE\n")
    rows, records, said = ran(BENCHMARKS, path=[tmp_path])
    evidence = {(row[0], row[3]): row[-1] for row in rows if row[3] != "torch"}
    assert evidence == {
        ("cnn", "onnxruntime"): "checked",
        ("cnn", "faulty"): "different",
        ("normed", "faulty"): "different",
    }, said
    proofs = {
        (record["workload"]["model"], record["workload"]["lane"]): record["parity"]["proof"] for record in records
    }
    assert {workload: proof["state"] for workload, proof in proofs.items()} == {
        ("cnn", "torch"): "reference",
        ("cnn", "onnxruntime"): "derived",
        ("cnn", "faulty"): "derived",
        ("normed", "torch"): "alone",  # a model in one framework has no proof
        ("normed", "faulty"): "derived",
    }
    (size,) = (
        record["metrics"]["exported_size"]["value"] for record in records if record["workload"]["lane"] == "onnxruntime"
    )
    assert size > 100_000
