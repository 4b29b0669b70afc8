"""ONNX Runtime's lanes: their numbers beside PyTorch's, what they refuse, a whole run, and faults of the exporter."""

import re

import pytest

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

from onnxruntime_lane.adapter import FRAMEWORK, INT8

# A lane whose exporter changes the network by mistake before it exports it, and one that hides its int8 weights.
FAULTY = """
import dataclasses
import onnxruntime_lane
from onnxruntime_lane.adapter import OnnxRuntime

FLOAT, INT8 = onnxruntime_lane.LANE
LANE = [
    dataclasses.replace(FLOAT, name="faulty", framework="faulty", title="faulty", adapter="faulty_lane:FRAMEWORK"),
    dataclasses.replace(INT8, name="undeclared", title="undeclared", quantised=""),
]

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

LANES = ["torch", "onnxruntime", "onnxruntime-int8", "undeclared", "faulty"]

@fwbench.benchmark("cnn", modes=["inference"], batch_sizes=[4], lanes=LANES)
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


@pytest.mark.parametrize(("framework", "lane"), [(FRAMEWORK, "onnxruntime"), (INT8, "onnxruntime-int8")])
def test_it_has_only_inference_in_float32(only_inference_in_float32, framework, lane):
    only_inference_in_float32(framework, lane, {"precision": "tf32"})


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
        ("cnn", "onnxruntime-int8"): "quantised",
        ("cnn", "undeclared"): "different",
        ("cnn", "faulty"): "different",
        ("normed", "faulty"): "different",
    }, said
    proofs = {
        (record["workload"]["model"], record["workload"]["lane"]): record["parity"]["proof"] for record in records
    }
    assert {workload: proof["state"] for workload, proof in proofs.items()} == {
        ("cnn", "torch"): "reference",
        ("cnn", "onnxruntime"): "derived",
        ("cnn", "onnxruntime-int8"): "derived",
        ("cnn", "undeclared"): "derived",
        ("cnn", "faulty"): "derived",
        ("normed", "torch"): "alone",  # a model in one framework has no proof
        ("normed", "faulty"): "derived",
    }
    of_cnn = {record["workload"]["lane"]: record for record in records if record["workload"]["model"] == "cnn"}
    sizes = [of_cnn[lane]["metrics"]["exported_size"]["value"] for lane in ("onnxruntime", "onnxruntime-int8")]
    assert sizes[0] > sizes[1] > 100_000
    errors = {lane: record["metrics"]["output_error"]["value"] for lane, record in of_cnn.items()}
    assert max(errors["torch"], errors["onnxruntime"]) < 1e-5
    assert 1e-4 < errors["onnxruntime-int8"] == errors["undeclared"] < 0.1
    assert of_cnn["onnxruntime-int8"]["settings"]["quantised"] == "int8"
    assert re.search(r"torch: .* times the error", said)
    # Of the other model no lane's weights are quantised, so no row states an error.
    assert not any("output_error" in record["metrics"] for record in records if record["workload"]["model"] == "normed")
