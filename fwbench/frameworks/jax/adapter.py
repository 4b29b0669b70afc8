"""The JAX lane."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from fwbench.frameworks.contract import Framework, Program, Ranks
from fwbench.frameworks.faults import first_line
from fwbench.frameworks.jax import parallel, plugins
from fwbench.frameworks.jax.networks import network
from fwbench.frameworks.jax.options import chosen
from fwbench.frameworks.jax.program import DTYPE, Dispatch, Forward
from fwbench.frameworks.jax.training import TrainStep
from fwbench.frameworks.precision import Operands, Products
from fwbench.frameworks.training import HORIZON, classifies
from fwbench.models import Model
from fwbench.models.weights import Shape, Weights
from fwbench.record.workload import TRAINING, Workload

_FORWARD = {"inference": Forward, "dispatch": Dispatch}


class Jax(Framework):
    """The lane `jax`; of several devices a process has one (CPUs) or all of its host (GPUs)."""

    def join(self, ranks: Ranks) -> None:
        self.ranks = ranks
        parallel.join(ranks)

    def leave(self) -> None:
        parallel.leave(self.ranks)

    def unavailable(self, workload: Workload, model: Model) -> str | None:
        if workload.device == "cpu" and not workload.target:
            # Here, before anything asks JAX for its devices.
            plugins.leave_out()
        if "jax" not in model.networks:
            return f"{model.name} names no network in JAX"
        if workload.mode not in (*_FORWARD, *TRAINING):
            return f"the JAX lane has no mode {workload.mode!r}"
        if workload.mode == "fit" and not classifies(model):
            return f"fit trains a network that makes logits of one input of floating point, and {model.name} is none"
        if workload.mode in TRAINING and isinstance(model.loss, dict) and "jax" not in model.loss:
            return f"{model.name} names no loss in JAX"
        if workload.mode in TRAINING:
            leaves = network(model, model.sizes(workload.axes)).leaves
            if not any(leaf.kind == "parameter" for leaf in leaves):
                return f"{model.name} has no weights to train"
        if workload.device == "gpu":
            try:
                jax.devices("gpu")
            # JAX asserts that a platform that JAX_PLATFORMS names has a plugin.
            except (RuntimeError, AssertionError) as error:
                reason = first_line(error) if plugins.has_cuda() else "it has no CUDA plugin; install fwbench[cuda]"
                return f"this machine has a GPU, but jax {jax.__version__} cannot use it: {reason}"
        if workload.precision == "tf32" and workload.device == "cpu" and not workload.target:
            return "a CPU has no TF32 arithmetic: ask for fp32 or bf16"
        return parallel.lacking(workload, self.ranks)

    def weight_shapes(self, model: Model, sizes: Mapping[str, int]) -> dict[str, Shape]:
        return network(model, sizes).shapes

    def build(self, workload: Workload, model: Model, weights: Weights, horizon: int = HORIZON) -> Program:
        if workload.mode in _FORWARD:
            return _FORWARD[workload.mode](workload, model, weights, self.ranks)
        return TrainStep(workload, model, weights, horizon, ranks=self.ranks)

    def probe(self, workload: Workload, operands: Operands) -> Products:
        device = jax.local_devices(backend=workload.device)[0]

        @functools.partial(jax.jit, compiler_options=chosen(workload, device.platform))
        def products(left: jax.Array, right: jax.Array, images: jax.Array, kernel: jax.Array) -> list[jax.Array]:
            convolution = jax.lax.conv_general_dilated(
                images, kernel, (1, 1), [(1, 1), (1, 1)], dimension_numbers=("NHWC", "OIHW", "NHWC")
            )
            return [left @ right, convolution]

        arrays = (operands.left, operands.right, operands.images, operands.kernel)
        found = products(*jax.device_put([jnp.asarray(array, DTYPE[workload.precision]) for array in arrays], device))
        return Products(*(np.asarray(array, dtype=np.float32) for array in found))

    def matrix_product(
        self, workload: Workload, left: NDArray[np.float32], right: NDArray[np.float32]
    ) -> tuple[Callable[[], Any], str]:
        device = jax.local_devices(backend=workload.device)[0]
        factors = jax.device_put((left, right), device)
        multiply = jax.jit(jnp.matmul, compiler_options=chosen(workload, device.platform)).lower(*factors).compile()
        return lambda: multiply(*factors).block_until_ready(), "XLA"

    def preload(self, lane: str) -> None:
        plugins.registered()

    def is_compilers_fault(self, error: BaseException) -> bool:
        # What Python raises while it is traced is the network's own; XLA raises this alone, and a kernel that fails
        # when it runs was made or chosen by XLA too.
        return isinstance(error, jax.errors.JaxRuntimeError) and not self.is_out_of_memory(error)


FRAMEWORK = Jax()
