"""What fwbench's workers run: a network that OpenVINO has compiled for the CPU."""

import hashlib
import os
import platform
from collections import Counter
from typing import ClassVar

import numpy as np
import openvino
from openvino import opset13 as ops

from fwbench.ext.derived.adapter import Derived, Loaded
from fwbench.frameworks.precision import Products
from fwbench.record.fingerprint import Fingerprint

# OpenVINO's name of each precision. By default it computes in bf16 on CPUs with instructions for that.
_PRECISIONS = {"fp32": "f32", "bf16": "bf16"}


class Request(Loaded):
    """A compiled network and one request, which holds its batch."""

    def __init__(self, file, inputs, workload):
        self.compiled = _compiled(openvino.Core().read_model(file), workload)
        self.request = self.compiled.create_infer_request()
        # OpenVINO reads the batch from these arrays, so they must stay alive.
        self.inputs = inputs
        for port in self.compiled.inputs:
            tensor = openvino.Tensor(inputs[port.get_any_name()], shared_memory=True)
            self.request.set_tensor(port, tensor)
        self.settings = {"openvino_device": "CPU"} | {
            name: str(self.compiled.get_property(name)) for name in _settings(workload)
        }

    def run(self):
        self.request.infer()

    def output(self):
        return self.request.get_output_tensor().data.copy()

    def fingerprint(self):
        """The graph that OpenVINO runs: each node's primitive, its layout and its precision."""
        lines, kinds = [], Counter()
        for node in self.compiled.get_runtime_model().get_ordered_ops():
            told = {name: str(node.get_rt_info()[name].value) for name in _TOLD if name in node.get_rt_info()}
            kinds[told.get("layerType", node.get_type_name())] += 1
            shapes = [str(node.get_output_partial_shape(index)) for index in range(node.get_output_size())]
            lines.append(f"{told} {shapes}")
        return Fingerprint(
            form="OpenVINO's runtime graph",
            digest=hashlib.sha256("\n".join(lines).encode()).hexdigest(),
            operators=dict(kinds),
            compiler={"openvino": openvino.get_version()},
            processor=platform.machine(),
        )


class OpenVino(Derived):
    """The lane `openvino`: on a CPU."""

    title = "OpenVINO"
    exporter = "openvino_lane:export"
    precisions: ClassVar = {"cpu": tuple(_PRECISIONS)}

    def load(self, folder, inputs, workload):
        return Request(folder / "model.xml", inputs, workload)

    def unavailable(self, workload, model):
        reason = super().unavailable(workload, model)
        if reason is not None or workload.precision != "bf16":
            return reason
        capabilities = openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
        return None if "BF16" in capabilities else "OpenVINO does not compute in bf16 on this CPU"

    def probe(self, workload, operands):
        given = (operands.left, operands.right, operands.images.transpose(0, 3, 1, 2), operands.kernel)
        left, right, images, kernel = (ops.parameter(array.shape, np.float32) for array in given)
        matmul = ops.matmul(left, right, transpose_a=False, transpose_b=False)
        convolution = ops.convolution(images, kernel, [1, 1], [1, 1], [1, 1], [1, 1])
        model = openvino.Model([matmul, convolution], [left, right, images, kernel])
        results = _compiled(model, workload)([np.ascontiguousarray(array) for array in given])
        return Products(results[0], results[1].transpose(0, 2, 3, 1))


FRAMEWORK = OpenVino()

# Facts about a node of the runtime graph that do not change from call to call.
_TOLD = ("layerType", "primitiveType", "outputLayouts", "outputPrecisions", "runtimePrecision")


def _compiled(model, workload):
    return openvino.Core().compile_model(model, "CPU", _settings(workload))


def _settings(workload):
    """The documented settings for the least latency, with the lane's number of threads."""
    return {
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": "1",
        "INFERENCE_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
        "INFERENCE_PRECISION_HINT": _PRECISIONS[workload.precision],
    }
