"""An ONNX Runtime lane for fwbench: inference of every network in PyTorch, exported to ONNX."""

from importlib.metadata import distributions

from fwbench.record.lanes import Lane

# The build for NVIDIA's GPUs is another distribution with the same module.
_RUNTIME = "onnxruntime-gpu" if any(found.name == "onnxruntime-gpu" for found in distributions()) else "onnxruntime"

LANE = Lane(
    name="onnxruntime",
    framework="onnxruntime",
    title="ONNX Runtime",
    derived="torch",
    adapter="onnxruntime_lane.adapter:FRAMEWORK",
    distributions=(_RUNTIME, "onnx", "onnxscript", "torch"),
    recorded=("ORT_",),
)


def export(module, inputs, folder, workload):
    """Write the module as ONNX. The exporting process calls this."""
    import torch

    names = {"input_names": list(inputs), "output_names": ["output"]}
    program = torch.onnx.export(module, tuple(inputs.values()), **names, dynamo=True, verbose=False)
    program.save(folder / "model.onnx")
