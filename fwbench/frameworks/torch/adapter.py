"""The PyTorch lanes: `torch` (eager) and the lanes of `torch.compile`, each on its recommended fast path."""

import importlib
import os
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from fwbench.frameworks import extended
from fwbench.frameworks.contract import Framework, Offered, Program, Ranks
from fwbench.frameworks.definitions import lacking
from fwbench.frameworks.faults import first_line
from fwbench.frameworks.precision import Operands, Products
from fwbench.frameworks.torch import compiling, parallel, target
from fwbench.frameworks.torch.networks import initial, network, shapes
from fwbench.frameworks.torch.program import DTYPE, Inference, compile_mode, device_of, memory_format
from fwbench.frameworks.torch.training import TrainStep
from fwbench.frameworks.training import HORIZON
from fwbench.models import Model
from fwbench.models.weights import Shape, Weights
from fwbench.record.workload import MODES, TRAINING, Workload


class Torch(Framework):
    """All PyTorch lanes. A workload over several devices has a process for each device."""

    mixes = True

    def join(self, ranks: Ranks) -> None:
        self.ranks = ranks
        parallel.join(ranks)

    def leave(self) -> None:
        parallel.leave()

    def unavailable(self, workload: Workload, model: Model) -> str | None:
        if reason := lacking(model, workload, "torch", "PyTorch", MODES):
            return reason
        if workload.device == "gpu" and (reason := _no_gpu()):
            return f"this machine has a GPU, but torch {torch.__version__} cannot use it: {reason}"
        if workload.devices > 1 and self.ranks is None:
            return "PyTorch runs a process for each device, and this one is alone: start the ranks together"
        if workload.device == "gpu" and self.ranks and self.ranks.local >= torch.cuda.device_count() > 1:
            return f"PyTorch sees {torch.cuda.device_count()} GPUs on this host, and one is needed for each rank"
        if workload.target and workload.mode in TRAINING:
            return target.TRAINING
        if workload.precision == "tf32" and not workload.target:
            if workload.device == "cpu":
                return "a CPU has no TF32 arithmetic: ask for fp32 or bf16"
            if torch.cuda.get_device_capability() < (8, 0):
                return f"{torch.cuda.get_device_name()} has no TF32 arithmetic: ask for fp32 or bf16"
        if workload.mode in TRAINING:
            parameters = network(model, model.sizes(workload.axes)).parameters()
            if not any(parameter.requires_grad for parameter in parameters):
                return f"{model.name} has no weights to train"
        return None

    def weight_shapes(self, model: Model, sizes: Mapping[str, int]) -> dict[str, Shape]:
        return shapes(network(model, sizes))

    def initial(self, model: Model, sizes: Mapping[str, int], seed: int) -> Weights:
        return initial(model, sizes, seed)

    def build(self, workload: Workload, model: Model, weights: Weights, horizon: int = HORIZON) -> Program:
        set_threads()
        if kind := extended.kind_of(workload, model):
            return extended.build(kind, "torch", workload, model, weights)
        if workload.mode == "inference":
            return Inference(workload, model, weights, self.ranks)
        return TrainStep(workload, model, weights, horizon, ranks=self.ranks)

    def in_force(self, workload: Workload) -> Mapping[str, Any]:
        readers = {**_SETTINGS, **(_OF_GPUS if workload.device == "gpu" else {})}
        return {name: _read(reader) for name, reader in readers.items()}

    def chosen(self, workload: Workload) -> Mapping[str, Any]:
        threads = os.environ.get("OMP_NUM_THREADS")
        return {
            "float32_matmul_precision": "high" if workload.precision == "tf32" else "highest",
            "backends.fp32_precision": "tf32" if workload.precision == "tf32" else "ieee",
            **({"num_threads": int(threads)} if threads else {}),
            **({"backends.cudnn.benchmark": True} if workload.device == "gpu" else {}),
        }

    def probe(self, workload: Workload, operands: Operands) -> Products:
        layout = memory_format(workload)

        def products(
            left: Tensor, right: Tensor, images: Tensor, kernel: Tensor, query: Tensor, key: Tensor, value: Tensor
        ) -> list[Tensor]:
            mixed = functional.scaled_dot_product_attention(query, key, value)
            return [left @ right, functional.conv2d(images, kernel, padding=1), mixed]

        mode = compile_mode(workload.runner, device_of(workload, self.ranks))
        call = torch.compile(products, mode=mode) if mode else products
        left, right, images, kernel, *attended = self._placed(workload, *operands)
        images = images.permute(0, 3, 1, 2).contiguous(memory_format=layout)
        found = call(left, right, images, kernel.contiguous(memory_format=layout), *attended)
        matmul, convolution, attention = (tensor.double().cpu().numpy() for tensor in found)
        return Products(matmul, convolution.transpose(0, 2, 3, 1), attention)

    def matrix_product(self, workload: Workload, left: NDArray[np.float32], right: NDArray[np.float32]) -> Offered:
        factors = self._placed(workload, left, right)
        return _waiting(workload, lambda: torch.mm(*factors)), _blas(workload)

    def convolution(self, workload: Workload, images: NDArray[np.float32], kernel: NDArray[np.float32]) -> Offered:
        given, weight = self._placed(workload, images, kernel)
        given, weight = given.permute(0, 3, 1, 2), weight.contiguous(memory_format=torch.channels_last)
        library = "cuDNN" if workload.device == "gpu" else "PyTorch"
        return _waiting(workload, lambda: functional.conv2d(given, weight, padding="same")), library

    def copy(self, workload: Workload, numbers: int) -> Offered:
        source = torch.ones(numbers, device=device_of(workload, self.ranks))
        target = torch.empty_like(source)
        return _waiting(workload, lambda: target.copy_(source)), "PyTorch"

    def _placed(self, workload: Workload, *arrays: NDArray[np.float32]) -> list[Tensor]:
        """Arrays in the workload's precision on its device, which each of several ranks on a host has for itself."""
        device = device_of(workload, self.ranks)
        return [torch.from_numpy(array).to(device, DTYPE[workload.precision]) for array in arrays]

    def preload(self, lane: str) -> None:
        if compile_mode(lane.partition(":")[0], torch.device("cpu")):
            # Imported now, so that compile time does not include the compiler's import.
            importlib.import_module("torch._dynamo")
            importlib.import_module("torch._inductor.compile_fx")

    def is_compilers_fault(self, error: BaseException) -> bool:
        return compiling.failed(error) and not self.is_out_of_memory(error)

    def said(self, error: BaseException) -> str:
        if self.is_compilers_fault(error):
            return f"torch.compile failed with {compiling.reason(error)}"
        return super().said(error)


def set_threads() -> None:
    """Let PyTorch compute with as many threads as the process may use."""
    if threads := os.environ.get("OMP_NUM_THREADS"):
        torch.set_num_threads(int(threads))


# PyTorch's settings that a network may change, by name.
_SETTINGS: Mapping[str, Callable[[], Any]] = {
    "num_threads": torch.get_num_threads,
    "num_interop_threads": torch.get_num_interop_threads,
    "default_dtype": lambda: str(torch.get_default_dtype()),
    "float32_matmul_precision": torch.get_float32_matmul_precision,
    "backends.fp32_precision": lambda: torch.backends.fp32_precision,  # type: ignore[attr-defined, unused-ignore]
    "backends.mkldnn.enabled": lambda: torch.backends.mkldnn.enabled,  # type: ignore[attr-defined, unused-ignore]
    "deterministic_algorithms": torch.are_deterministic_algorithms_enabled,
    "anomaly_detection": torch.is_anomaly_enabled,
    "autocast": lambda: torch.is_autocast_enabled("cpu"),
}
_OF_GPUS: Mapping[str, Callable[[], Any]] = {
    "autocast": lambda: torch.is_autocast_enabled("cuda"),
    "backends.cudnn.enabled": lambda: torch.backends.cudnn.enabled,
    "backends.cudnn.benchmark": lambda: torch.backends.cudnn.benchmark,
    "backends.cudnn.deterministic": lambda: torch.backends.cudnn.deterministic,
    "backends.cuda.flash_sdp": torch.backends.cuda.flash_sdp_enabled,
    "backends.cuda.mem_efficient_sdp": torch.backends.cuda.mem_efficient_sdp_enabled,
}


def _read(reader: Callable[[], Any]) -> Any:
    """A setting; PyTorch's error message if a network has set it in two ways that contradict each other."""
    try:
        return reader()
    except RuntimeError as error:
        return first_line(error)


def _blas(workload: Workload) -> str:
    """The library that multiplies matrices."""
    if workload.device == "gpu":
        return "cuBLAS"
    # The build prints many lines, such as BLAS_INFO=mkl or BLAS_INFO=open.
    told = re.search(r"BLAS_INFO=(\w+)", torch.__config__.show())
    return "PyTorch's BLAS" if not told or workload.precision != "fp32" else told[1].upper()


def _waiting(workload: Workload, call: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """A call that returns when the device is done."""
    if workload.device == "cpu":
        return call

    def waiting() -> Tensor:
        output = call()
        torch.cuda.synchronize()
        return output

    return waiting


def _no_gpu() -> str | None:
    """The reason why PyTorch cannot use the GPU, in its own words if its build supports GPUs; None if it can."""
    if torch.cuda.is_available():
        return None
    if torch.version.cuda is None:
        return "it is a build for CPUs alone; install a CUDA build of torch"
    try:
        torch.cuda.init()
    except Exception as error:
        return first_line(error)
    return "it finds none"


FRAMEWORK = Torch()
