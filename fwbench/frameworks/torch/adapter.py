"""The PyTorch lanes: `torch` (eager) and `torch-compile`, each on its recommended fast path."""

import importlib
import os
import time
from contextlib import AbstractContextManager
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from fwbench.data.synthetic import batch
from fwbench.frameworks.contract import CompileTimes, Framework, Program
from fwbench.frameworks.torch.networks import export_weights, has_network, load_weights, network, shapes
from fwbench.measurement import Metric, unavailable
from fwbench.models import CATALOG, Model
from fwbench.models.weights import Shape, Weights
from fwbench.precision import Operands, Products
from fwbench.workload import Workload

_DTYPE = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16}


class Inference(Program):
    """A forward pass under `torch.inference_mode`."""

    def __init__(self, workload: Workload, weights: Weights) -> None:
        model = CATALOG[workload.model]
        self.device = _device(workload)
        self.compiled = workload.framework == "torch-compile"
        set_precision(workload.precision)
        dtype = _DTYPE[workload.precision]
        image = len(model.input_shape) == 3
        self.settings: dict[str, Any] = {"precision_mode": workload.precision}

        module = network(model)
        load_weights(module, weights)
        module = module.eval().to(self.device, dtype)
        x = torch.from_numpy(batch(model, workload.batch_size, workload.seed)).to(self.device, dtype)
        if image:
            # channels_last: cuDNN's and oneDNN's own layout. The batch arrives in it, so this is a view.
            x = x.permute(0, 3, 1, 2)
            module = module.to(memory_format=torch.channels_last)
            self.settings["memory_format"] = "channels_last"
        if self.device.type == "cuda":
            torch.backends.cudnn.benchmark = True
            self.settings["cudnn.benchmark"] = True
        self.module = module
        self.x = x
        self.call: Any = module
        if self.compiled:
            mode = _compile_mode(self.device)
            self.settings["compile_mode"] = mode
            self.settings["compile_cache"] = "cold"
            self.call = torch.compile(module, mode=mode)
        self.out = torch.empty(0)

    def session(self) -> AbstractContextManager[None]:
        return torch.inference_mode()

    def compile(self) -> CompileTimes:
        if not self.compiled:
            return CompileTimes(None, None, "eager mode runs operator by operator; nothing is compiled")
        from torch._dynamo.utils import calculate_time_spent

        start = time.perf_counter()
        self.step()
        self.wait()
        total = time.perf_counter() - start
        spent = calculate_time_spent()
        if "entire_frame_compile" not in spent or "backend_compile" not in spent:
            return CompileTimes(None, total)
        trace = spent["entire_frame_compile"] - spent["backend_compile"]
        return CompileTimes(trace, total - trace)

    def step(self) -> None:
        self.out = self.call(self.x)

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def output(self) -> NDArray[Any]:
        return self.out.float().cpu().numpy()

    def weights(self) -> Weights:
        return export_weights(self.module)

    def reset_peak_memory(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)

    def peak_memory(self) -> Metric:
        if self.device.type != "cuda":
            return super().peak_memory()
        return Metric(
            float(torch.cuda.max_memory_allocated(self.device)), "B", "lower", "torch.cuda.max_memory_allocated"
        )

    def program_memory(self) -> Metric:
        return unavailable("B", "lower", "compiler", "PyTorch states no memory need of a program")


def set_precision(precision: str) -> None:
    """Choose the arithmetic of float32 tensors everywhere at once.

    Uses only the `fp32_precision` settings; mixing them with the older `allow_tf32` ones is an error in PyTorch.
    """
    value = "tf32" if precision == "tf32" else "ieee"
    backends: Any = torch.backends
    backends.fp32_precision = value
    backends.cuda.matmul.fp32_precision = value
    backends.cudnn.fp32_precision = value
    backends.cudnn.conv.fp32_precision = value
    backends.mkldnn.fp32_precision = "ieee"


def _device(workload: Workload) -> torch.device:
    return torch.device("cuda" if workload.device == "gpu" else "cpu")


def _compile_mode(device: torch.device) -> str:
    # reduce-overhead records CUDA graphs; on a CPU there are none to record.
    return "reduce-overhead" if device.type == "cuda" else "default"


class Torch(Framework):
    """Both lanes."""

    def unavailable(self, workload: Workload) -> str | None:
        if not has_network(CATALOG[workload.model]):
            return f"PyTorch has no network {workload.model!r}"
        if workload.mode != "inference":
            return f"the PyTorch lanes have no mode {workload.mode!r}"
        if workload.device == "gpu" and not torch.cuda.is_available():
            return f"this machine has a GPU, but torch {torch.__version__} cannot use it: install a CUDA build of torch"
        if workload.precision == "tf32":
            if workload.device == "cpu":
                return "a CPU has no TF32 arithmetic: ask for fp32 or bf16"
            if torch.cuda.get_device_capability() < (8, 0):
                return f"{torch.cuda.get_device_name()} has no TF32 arithmetic: ask for fp32 or bf16"
        return None

    def weight_shapes(self, model: Model) -> dict[str, Shape]:
        return shapes(network(model))

    def build(self, workload: Workload, weights: Weights) -> Program:
        threads = os.environ.get("OMP_NUM_THREADS")
        if threads:
            torch.set_num_threads(int(threads))
        return Inference(workload, weights)

    def probe(self, workload: Workload, operands: Operands) -> Products:
        device, dtype = _device(workload), _DTYPE[workload.precision]

        def products(left: Tensor, right: Tensor, images: Tensor, kernel: Tensor) -> tuple[Tensor, Tensor]:
            return left @ right, functional.conv2d(images, kernel, padding=1)

        call = (
            torch.compile(products, mode=_compile_mode(device)) if workload.framework == "torch-compile" else products
        )
        left, right, images, kernel = (
            torch.from_numpy(array).to(device, dtype)
            for array in (operands.left, operands.right, operands.images, operands.kernel)
        )
        matmul, convolution = call(
            left, right, images.permute(0, 3, 1, 2), kernel.contiguous(memory_format=torch.channels_last)
        )
        return Products(matmul.float().cpu().numpy(), convolution.permute(0, 2, 3, 1).float().cpu().numpy())

    def preload(self, lane: str) -> None:
        if lane == "torch-compile":
            # So that compile time is the compiler's, not its import's.
            importlib.import_module("torch._dynamo")
            importlib.import_module("torch._inductor.compile_fx")

    def is_out_of_memory(self, error: BaseException) -> bool:
        return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "can't allocate memory" in str(error)


FRAMEWORK = Torch()
