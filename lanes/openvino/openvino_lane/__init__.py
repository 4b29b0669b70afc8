"""An OpenVINO lane for fwbench: inference of every network in PyTorch on a CPU."""

from fwbench.record.lanes import Lane

LANE = Lane(
    name="openvino",
    framework="openvino",
    title="OpenVINO",
    derived="torch",
    adapter="openvino_lane.adapter:FRAMEWORK",
    distributions=("openvino", "torch"),
    recorded=("OV_", "OPENVINO_"),
)


def export(module, inputs, folder, workload):
    """Write the module in OpenVINO's own format, with weights in float32. The exporting process calls this."""
    import openvino
    import torch

    program = torch.export.export(module, tuple(inputs.values()))
    model = openvino.convert_model(program)
    for port, name in zip(model.inputs, inputs, strict=True):
        port.get_tensor().set_names({name})
    openvino.save_model(model, folder / "model.xml", compress_to_fp16=False)
