"""ONNX Runtime lanes for fwbench: inference of every network in PyTorch, exported to ONNX, with its weights or int8."""

from dataclasses import replace
from importlib.metadata import distributions
from pathlib import Path
from tempfile import TemporaryDirectory

from fwbench.record.lanes import Lane

# The build for NVIDIA's GPUs is another distribution with the same module.
_RUNTIME = "onnxruntime-gpu" if any(found.name == "onnxruntime-gpu" for found in distributions()) else "onnxruntime"

_FLOAT = Lane(
    name="onnxruntime",
    framework="onnxruntime",
    title="ONNX Runtime",
    derived="torch",
    adapter="onnxruntime_lane.adapter:FRAMEWORK",
    distributions=(_RUNTIME, "onnx", "onnxscript", "torch"),
    recorded=("ORT_",),
)
LANE = [
    _FLOAT,
    replace(
        _FLOAT,
        name="onnxruntime-int8",
        title="ONNX Runtime (int8 weights)",
        adapter="onnxruntime_lane.adapter:INT8",
        quantised="int8",
    ),
]


def export(module, inputs, folder, workload):
    """Write the module as ONNX. The exporting process calls this."""
    import torch

    names = {"input_names": list(inputs), "output_names": ["output"]}
    program = torch.onnx.export(module, tuple(inputs.values()), **names, dynamo=True, verbose=False)
    program.save(folder / "model.onnx")


def export_int8(module, inputs, folder, workload):
    """Write the module as ONNX, with int8 weights in its matrix products, whose inputs each call rounds to int8, too.

    Convolutions keep float32, as with int8 weights they took fifteen times as long in the suite's CNN on a CPU.
    """
    from onnxruntime.quantization import quantize_dynamic

    with TemporaryDirectory() as unrounded:
        export(module, inputs, Path(unrounded), workload)
        given = Path(unrounded) / "model.onnx"
        quantize_dynamic(given, folder / given.name, op_types_to_quantize=["MatMul", "Gemm"])
