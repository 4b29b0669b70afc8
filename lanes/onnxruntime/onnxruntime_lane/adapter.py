"""What fwbench's workers run: an ONNX Runtime session over the network that PyTorch has exported."""

import hashlib
import os
import platform
from collections import Counter
from typing import ClassVar

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

from fwbench.ext.derived.adapter import Derived, Loaded
from fwbench.frameworks.precision import Products
from fwbench.record.fingerprint import Fingerprint

# The opset of the probe, which every supported version of ONNX Runtime knows.
_OPSET, _IR = 18, 8

# ONNX Runtime's defaults, except for the threads between operators. Records state them, as they change timings.
_SETTINGS = {
    "graph_optimization_level": "ORT_ENABLE_ALL",
    "execution_mode": "ORT_SEQUENTIAL",
    "inter_op_num_threads": 1,
    "session.intra_op.allow_spinning": "1",
    "enable_cpu_mem_arena": True,
    "enable_mem_pattern": True,
}


class Session(Loaded):
    """A session with its inputs and its output bound to memory on the device."""

    def __init__(self, file, inputs, workload):
        self.file, self.workload = str(file), workload
        self.session = _session(self.file, workload)
        device = "cuda" if workload.device == "gpu" else "cpu"
        # The graph has no inputs that the network does not read.
        used = [given.name for given in self.session.get_inputs()]
        self.placed = [onnxruntime.OrtValue.ortvalue_from_numpy(inputs[name], device, 0) for name in used]
        self.binding = self.session.io_binding()
        for name, value in zip(used, self.placed, strict=True):
            self.binding.bind_ortvalue_input(name, value)
        self.binding.bind_output("output", device)
        own = {"execution_provider": _provider(workload), "intra_op_num_threads": _threads()}
        self.settings = {**_SETTINGS, **own}

    def run(self):
        self.session.run_with_iobinding(self.binding)

    def output(self):
        return self.binding.copy_outputs_to_cpu()[0]

    def fingerprint(self):
        """The exported graph as ONNX Runtime has optimised it for this processor."""
        file = f"{self.file}.optimised"
        _session(self.file, self.workload, optimised=file)
        graph = onnx.load(file, load_external_data=False).graph
        return Fingerprint(
            form="optimised ONNX graph",
            digest=hashlib.sha256("\n".join(_lines(graph)).encode()).hexdigest(),
            operators=dict(Counter(node.op_type for node in graph.node)),
            compiler={"onnxruntime": onnxruntime.__version__, "onnx": onnx.__version__},
            processor=f"{platform.machine()} {_provider(self.workload)}",
        )


class OnnxRuntime(Derived):
    """The lane `onnxruntime`: on a CPU in float32, by CUDA also in TF32."""

    title = "ONNX Runtime"
    exporter = "onnxruntime_lane:export"
    precisions: ClassVar = {"cpu": ("fp32",), "gpu": ("fp32", "tf32")}

    def load(self, folder, inputs, workload):
        return Session(folder / "model.onnx", inputs, workload)

    def unavailable(self, workload, model):
        if reason := super().unavailable(workload, model):
            return reason
        if _provider(workload) not in onnxruntime.get_available_providers():
            return f"this build of ONNX Runtime has no {_provider(workload)}: install onnxruntime-gpu"
        return None

    def probe(self, workload, operands):
        given = {
            "left": operands.left,
            "right": operands.right,
            "images": np.ascontiguousarray(operands.images.transpose(0, 3, 1, 2)),
            "kernel": operands.kernel,
        }
        nodes = [
            helper.make_node("MatMul", ["left", "right"], ["matmul"]),
            helper.make_node("Conv", ["images", "kernel"], ["convolution"], pads=[1, 1, 1, 1]),
        ]
        inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape) for name, array in given.items()]
        names = ["matmul", "convolution"]
        outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names]
        graph = helper.make_graph(nodes, "probe", inputs, outputs)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR)
        matmul, convolution = _session(model.SerializeToString(), workload).run(names, given)
        return Products(matmul, convolution.transpose(0, 2, 3, 1))


class OnnxRuntimeInt8(OnnxRuntime):
    """The lane `onnxruntime-int8`: ONNX Runtime's dynamic quantisation. Its probe computes what is not quantised."""

    exporter = "onnxruntime_lane:export_int8"
    precisions: ClassVar = {"cpu": ("fp32",)}


FRAMEWORK, INT8 = OnnxRuntime(), OnnxRuntimeInt8()


def _session(model, workload, optimised=""):
    """A session over a file or a model's bytes.

    Args:
        optimised: a file to which the optimised graph is written.

    Raises:
        RuntimeError: ONNX Runtime does not use the provider that was asked for.
    """
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.intra_op_num_threads, options.inter_op_num_threads = _threads(), 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "1")
    options.enable_cpu_mem_arena = options.enable_mem_pattern = True
    # Hides the warning that an optimised graph is for this processor alone.
    options.log_severity_level = 3
    if optimised:
        options.optimized_model_filepath = optimised
    provider = _provider(workload)
    # Unless `use_tf32` says otherwise, CUDA's provider computes in TF32.
    cuda = [(provider, {"use_tf32": int(workload.precision == "tf32")}), "CPUExecutionProvider"]
    session = onnxruntime.InferenceSession(model, options, providers=cuda if workload.device == "gpu" else [provider])
    # If CUDA's libraries do not load, ONNX Runtime falls back to the CPU.
    if session.get_providers()[0] != provider:
        raise RuntimeError(f"ONNX Runtime computes by {session.get_providers()[0]} in place of {provider}")
    return session


def _provider(workload):
    return "CUDAExecutionProvider" if workload.device == "gpu" else "CPUExecutionProvider"


def _threads():
    return int(os.environ.get("OMP_NUM_THREADS", "1"))


def _lines(graph):
    """A graph's nodes as lines; values are numbered in order, so that their names and the weights do not count."""
    numbers = {}
    lines = [f"{tensor.data_type} {list(tensor.dims)}" for tensor in graph.initializer]
    for value in (*graph.initializer, *graph.input):
        numbers[value.name] = len(numbers)
    for node in graph.node:
        given = [numbers.setdefault(name, len(numbers)) for name in node.input]
        made = [numbers.setdefault(name, len(numbers)) for name in node.output]
        attributes = sorted(str(attribute) for attribute in node.attribute)
        lines.append(f"{node.domain} {node.op_type} {given} {made} {attributes}")
    return lines
