"""PyTorch programs: a module with its weights and a batch on the device, eager or compiled, and the forward pass."""

import platform
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import cycle
from typing import Any, ParamSpec, TypeVar

import torch
from numpy.typing import NDArray
from torch import Tensor

from fwbench.frameworks.contract import CompileTimes, Program, Ranks
from fwbench.frameworks.faults import faults, is_out_of_memory
from fwbench.frameworks.torch import graphs
from fwbench.frameworks.torch import target as targets
from fwbench.frameworks.torch.convolutions import Convolutions
from fwbench.frameworks.torch.fingerprint import Operators
from fwbench.frameworks.torch.networks import (
    called_with,
    export_weights,
    load_weights,
    network,
    place_inputs,
    select_output,
)
from fwbench.frameworks.torch.parallel import exchanged, own_gpu
from fwbench.frameworks.torch.profile import recorded
from fwbench.models import Model, stateful
from fwbench.models.inputs import too_large
from fwbench.models.weights import Weights
from fwbench.record.fingerprint import Fingerprint
from fwbench.record.measurement import Metric, unavailable
from fwbench.record.spans import Span
from fwbench.record.workload import Workload

P = ParamSpec("P")
T = TypeVar("T")

# Steps that the profiler records.
_PROFILED = 3

DTYPE = {"fp64": torch.float64, "fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16}


class Placed(Program):
    """A module and a batch on the device, on the lane's fast path.

    Args:
        dtype: number format of the weights and of floating-point inputs.
        ranks: the processes that each run the program on their own slice of the batch; None: this one alone.
    """

    # True if a step exchanges data between ranks.
    communicates = False
    # The name in messages of the user's code that a step calls.
    blamed = "network"

    def __init__(
        self, workload: Workload, model: Model, weights: Weights, dtype: torch.dtype, ranks: Ranks | None = None
    ) -> None:
        self.ranks = ranks
        self.device = device_of(workload, ranks)
        self.lane = workload.runner
        set_precision(workload.precision)
        self.settings: dict[str, Any] = {"precision_mode": workload.precision}
        self.memory_format = memory_format(workload)
        if any(given.image for given in model.inputs.values()):
            self.settings["memory_format"] = str(self.memory_format).removeprefix("torch.").removesuffix("_format")
        if self.device.type == "cuda":
            torch.backends.cudnn.benchmark = True
            self.settings["cudnn.benchmark"] = True
        self.dtype = dtype
        self.model = model
        self.sizes = stateful.sizes(model, workload)
        self.module = self._module(weights)
        # This process's slice.
        self.batch_size = workload.batch_size // (ranks.size if ranks else 1)
        self.inputs = self._placed(stateful.called(model, workload))
        self.kernels: int | None = None

    def _module(self, weights: Mapping[str, NDArray[Any]]) -> torch.nn.Module:
        """A module with these weights on the device, in the program's number format and memory format."""
        module = network(self.model, self.sizes)
        load_weights(module, weights)
        if self.dtype is torch.bfloat16:
            module = module.bfloat16()
        elif self.dtype is torch.float64:
            module = module.double()
        module = module.to(self.device)
        if any(given.image for given in self.model.inputs.values()):
            module = module.to(memory_format=self.memory_format)
        return module

    def _placed(self, batch: Mapping[str, NDArray[Any]]) -> dict[str, Tensor]:
        """This rank's slice of a batch of inputs, on the device."""
        return self._on_device({name: self.share(array) for name, array in batch.items()})

    def _on_device(self, arrays: Mapping[str, NDArray[Any]]) -> dict[str, Tensor]:
        placed = place_inputs(self.model, arrays, self.device, self.dtype)
        return {
            name: tensor.contiguous(memory_format=self.memory_format) if self.model.inputs[name].image else tensor
            for name, tensor in placed.items()
        }

    def _blame(self, error: Exception, call: Callable[P, Any], *args: P.args, **kwargs: P.kwargs) -> None:
        """Blame the network or its compiler, after a call with these arguments raised an error.

        Returns if the compiler failed, memory ran out, or CUDA failed: after a failure of CUDA every call fails.

        Raises:
            ModelError: the network fails without the compiler, too; the sentence says where.
        """
        if isinstance(error, torch.AcceleratorError) or is_out_of_memory(error):
            return
        with faults(f"the {self.blamed} of {self.model.name}", too_large(self.model.inputs)):
            if not self.compiles:
                raise error
            with torch.compiler.set_stance("force_eager"):
                call(*args, **kwargs)

    def _compiled(self, call: Callable[P, T]) -> Callable[P, T]:
        """The call as the lane makes it: compiled, or unchanged."""
        mode = compile_mode(self.lane, self.device)
        if mode is None:
            return call
        self.settings |= {"compile_mode": mode, "compile_cache": "cold"}
        return torch.compile(call, mode=mode)

    def compile(self) -> CompileTimes:
        if not self.compiles:
            return CompileTimes(None, None, "eager mode runs operator by operator; nothing is compiled")
        from torch._dynamo.utils import calculate_time_spent
        from torch._inductor import metrics

        kernels = metrics.generated_kernel_count
        start = time.perf_counter()
        self.call_and_wait()
        total = time.perf_counter() - start
        self.kernels = metrics.generated_kernel_count - kernels
        spent = calculate_time_spent()
        if "entire_frame_compile" not in spent or "backend_compile" not in spent:
            return CompileTimes(None, total)
        trace = spent["entire_frame_compile"] - spent["backend_compile"]
        # Executing the first step is left out, with an uncompiled optimizer's part: JAX executes none here either.
        return CompileTimes(trace, spent["total_wall_time"] - trace)

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def weights(self) -> Weights:
        return export_weights(self.module)

    def restart(self, weights: Mapping[str, NDArray[Any]], draw: int = 0) -> None:
        tensors = {**dict(self.module.named_parameters()), **dict(self.module.named_buffers())}
        for name, array in weights.items():
            # Copied in place, as CUDA graphs read and write this memory.
            tensors[name].data.copy_(torch.as_tensor(array))

    def relocate(self) -> None:
        tensors = self._held()
        # All copies are made before the first move, or a tensor could take the memory of an earlier one.
        for tensor, copy in zip(tensors, [tensor.data.clone() for tensor in tensors], strict=True):
            tensor.data = copy

    def _held(self) -> list[Tensor]:
        """All tensors of the program on the device."""
        return [*self.inputs.values(), *self.module.parameters(), *self.module.buffers()]

    @property
    def compiles(self) -> bool:
        """True if the lane compiles anything."""
        return compile_mode(self.lane, self.device) is not None

    @property
    def may_replay(self) -> bool:
        """True if Inductor is asked for CUDA graphs, which it may still skip."""
        return self.settings.get("compile_mode") in (_USUAL["cuda"], _MOST["cuda"])

    def reset_peak_memory(self) -> None:
        if self.device.type != "cuda":
            return
        if self.may_replay:
            # Otherwise memory that the build and the compiler have freed would count as reserved.
            torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(self.device)

    def peak_memory(self) -> Metric:
        return self._memory("max_memory") if self.device.type == "cuda" else super().peak_memory()

    def memory_in_use(self) -> Metric:
        return self._memory("memory") if self.device.type == "cuda" else super().memory_in_use()

    def _memory(self, figure: str) -> Metric:
        # Replayed CUDA graphs allocate nothing: they compute in a pool reserved for them.
        replays = self.may_replay and graphs.recorded() > 0
        name, pool = ("reserved", ", CUDA graphs' pool included") if replays else ("allocated", "")
        number = getattr(torch.cuda, f"{figure}_{name}")(self.device)
        return Metric(float(number), f"torch.cuda.{figure}_{name}{pool}")

    def program_memory(self) -> Metric:
        return unavailable("compiler", "PyTorch states no memory need of a program")

    def communication(self) -> Metric:
        source = f"torch.profiler over {_PROFILED} steps"
        if self.ranks is None or not self.communicates:
            return unavailable(source, "a forward pass exchanges nothing")
        seconds, library = exchanged(self.step, self.wait, _PROFILED, self.device)
        return Metric(seconds / _PROFILED, f"{source}: {library}'s all-reduces, some during the backward pass")

    def compilations(self) -> int | None:
        if not self.compiles:
            return None
        from torch._dynamo.utils import counters

        return counters["stats"]["unique_graphs"]

    def spans(self, calls: int) -> list[Span]:
        return recorded(self.call_and_wait, calls, self.device)

    def fingerprint(self) -> Fingerprint:
        compiled = self.compiles
        if self.may_replay:
            self.settings["cudagraphs"] = graphs.outcome()
        # The step runs eagerly, as compiled code dispatches nothing: this is the code that Dynamo traces.
        eager = torch.compiler.set_stance("force_eager") if compiled else nullcontext()
        with eager, Convolutions() as convolutions, Operators() as operators:
            self.call_and_wait()
        self.settings |= convolutions.settings
        self._forward_flops = operators.forward_flops
        facts: dict[str, Any]
        if compiled:
            from torch._dynamo.utils import counters

            facts = {"graph_breaks": sum(counters["graph_break"].values()), "fusions": self.kernels}
            absent = {
                "bytes_accessed": "Inductor does not state what its kernels move",
                "memory": self.program_memory().reason or "",
                "aliased": "Inductor does not state which buffers it uses again",
            }
            if self.kernels is None:
                absent["fusions"] = "training over epochs compiles the evaluation in between"
        else:
            facts = {"bytes_accessed": operators.bytes}
            absent = dict.fromkeys(
                ("memory", "fusions", "aliased", "graph_breaks", "compilations", "recompilations"),
                "eager mode runs operator by operator; nothing is compiled",
            )
        if self.device.type == "cuda":
            processor = torch.cuda.get_device_name(self.device)
        else:
            processor = f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}"
        return operators.told(processor, absent, **facts)

    def forward_flops(self) -> float:
        return self._forward_flops


class Inference(Placed):
    """A forward pass under `torch.inference_mode`; its calls can take several batches in turn.

    Each of several ranks makes its own.
    """

    def __init__(self, workload: Workload, model: Model, weights: Weights, ranks: Ranks | None = None) -> None:
        super().__init__(workload, model, weights, DTYPE[workload.precision], ranks)
        self.module.eval()
        self.call = self._compiled(self.module)
        self.returned: Any = None
        self._take([self.inputs])

    def _take(self, ring: list[dict[str, Tensor]]) -> None:
        self.ring, self.inputs = ring, ring[0]
        self.arguments = cycle([called_with(inputs) for inputs in ring])

    def rotate(self, batches: Sequence[Mapping[str, NDArray[Any]]]) -> None:
        """The method of `fwbench.frameworks.contract.Rotating`."""
        # Outside of inference mode, as the batch of the build: compiled code distinguishes tensors of that mode.
        with torch.inference_mode(mode=False):
            self._take([self._placed(batch) for batch in batches])
        self.wait()

    def _held(self) -> list[Tensor]:
        return [*super()._held(), *(tensor for inputs in self.ring[1:] for tensor in inputs.values())]

    def session(self) -> AbstractContextManager[None]:
        return torch.inference_mode()

    def step(self) -> None:
        positional, named = next(self.arguments)
        try:
            self.returned = self.call(*positional, **named)
        except Exception as error:
            self._blame(error, self.call, *positional, **named)
            raise

    def output(self) -> NDArray[Any]:
        return select_output(self.model, self.returned, self.batch_size).float().cpu().numpy()

    def fingerprint_for(self, target: str) -> Fingerprint | str:
        return targets.fingerprint(self.module, self.inputs, target)


def set_precision(precision: str) -> None:
    """Choose the arithmetic of float32 tensors in all of PyTorch's settings."""
    value = "tf32" if precision == "tf32" else "ieee"
    # The older settings first, with the same values: PyTorch refuses to read them if they contradict the new ones, and
    # Inductor and `torch.backends.cudnn.flags()`, which a network may use, read them.
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    backends: Any = torch.backends
    backends.cudnn.allow_tf32 = precision == "tf32"
    for part in (backends, backends.cuda.matmul, backends.cudnn, backends.cudnn.conv):
        part.fp32_precision = value
    backends.mkldnn.fp32_precision = "ieee"


def device_of(workload: Workload, ranks: Ranks | None = None) -> torch.device:
    """The device that computes. Each of several ranks on a host has its own."""
    if workload.device == "cpu":
        return torch.device("cpu")
    return torch.device("cuda", own_gpu(ranks)) if ranks else torch.device("cuda")


def memory_format(workload: Workload) -> torch.memory_format:
    """The layout of images and of convolutions' weights.

    channels_last is the layout of oneDNN and of a GPU's tensor cores. IEEE float32 and float64 do not run on tensor
    cores, and cuDNN computes them faster in PyTorch's own layout.
    """
    on_gpu = workload.device == "gpu" or bool(workload.target)
    slow = on_gpu and workload.precision in ("fp64", "fp32")
    return torch.contiguous_format if slow else torch.channels_last


# Mode of `torch.compile`: on a GPU with CUDA graphs, on a CPU without.
_USUAL = {"cuda": "reduce-overhead", "cpu": "default"}
_MOST = {"cuda": "max-autotune", "cpu": "max-autotune-no-cudagraphs"}


def compile_mode(lane: str, device: torch.device) -> str | None:
    """The mode in which a lane compiles; None if it does not compile: those that do are named `torch-compile...`."""
    if not lane.startswith("torch-compile"):
        return None
    return (_MOST if lane == "torch-compile-max" else _USUAL)[device.type]
