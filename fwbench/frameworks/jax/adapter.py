"""The JAX lane: an ahead-of-time compiled function over flat leaves, which dispatches in tens of microseconds."""

import os
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from numpy.typing import NDArray

from fwbench.data.synthetic import batch
from fwbench.frameworks.contract import CompileTimes, Framework, Program
from fwbench.frameworks.jax.networks import NETWORKS, export_weights, load_weights, network, shapes
from fwbench.measurement import Metric, unavailable
from fwbench.models import CATALOG, Model
from fwbench.models.weights import Shape, Weights
from fwbench.precision import Operands, Products
from fwbench.workload import Workload

_DTYPE = {"fp32": jnp.float32, "tf32": jnp.float32, "bf16": jnp.bfloat16}
_MATMUL_PRECISION = {"fp32": "highest", "tf32": "tensorfloat32", "bf16": "default"}


class Forward(Program):
    """A jitted function of the model's leaves and the batch."""

    def __init__(self, workload: Workload, weights: Weights) -> None:
        model = CATALOG[workload.model]
        self.device = jax.devices(workload.device)[0]
        jax.config.update("jax_default_matmul_precision", _MATMUL_PRECISION[workload.precision])
        dtype = _DTYPE[workload.precision]
        self.settings: dict[str, Any] = {
            "precision_mode": workload.precision,
            "jax_default_matmul_precision": _MATMUL_PRECISION[workload.precision],
            "memory_format": "NHWC",
            "compile_cache": "cold",
            "XLA_FLAGS": os.environ.get("XLA_FLAGS", ""),
        }
        module = network(model)
        load_weights(module, weights)
        module.eval()
        self.graph, state = nnx.split(module)
        leaves, self.structure = jax.tree.flatten(state)
        self.leaves = jax.device_put([jnp.asarray(leaf, dtype) for leaf in leaves], self.device)
        self.x = jax.device_put(jnp.asarray(batch(model, workload.batch_size, workload.seed), dtype), self.device)
        self.pending: list[jax.Array] = []
        self.out: jax.Array = self.x
        if workload.mode == "dispatch":
            # Takes every leaf and computes nothing: what a call costs before any arithmetic.
            self.function = jax.jit(lambda leaves, x: x.ravel()[:1], keep_unused=True)
        else:
            self.function = jax.jit(self._forward)

    def _forward(self, leaves: list[jax.Array], x: jax.Array) -> jax.Array:
        module: Any = nnx.merge(self.graph, jax.tree.unflatten(self.structure, leaves))
        logits: jax.Array = module(x)
        return logits

    def compile(self) -> CompileTimes:
        start = time.perf_counter()
        lowered = self.function.lower(self.leaves, self.x)
        traced = time.perf_counter()
        self.compiled = lowered.compile()
        return CompileTimes(traced - start, time.perf_counter() - traced)

    def step(self) -> None:
        self.out = self.compiled(self.leaves, self.x)
        self.pending.append(self.out)

    def wait(self) -> None:
        # All of them: a CPU client may run independent calls out of order.
        jax.block_until_ready(self.pending)
        self.pending.clear()

    def output(self) -> NDArray[Any]:
        return np.asarray(self.out, dtype=np.float32)

    def weights(self) -> Weights:
        return export_weights(nnx.merge(self.graph, jax.tree.unflatten(self.structure, self.leaves)))

    def peak_memory(self) -> Metric:
        stats = self.device.memory_stats()
        if stats is None:
            return super().peak_memory()
        return Metric(
            float(stats["peak_bytes_in_use"]),
            "B",
            "lower",
            "JAX memory_stats peak_bytes_in_use of a fresh process; includes XLA's autotuning",
        )

    def program_memory(self) -> Metric:
        analysis = self.compiled.memory_analysis()
        if analysis is None:
            return unavailable("B", "lower", "compiler", "this XLA backend states no memory need")
        needed = (
            analysis.argument_size_in_bytes
            + analysis.output_size_in_bytes
            + analysis.temp_size_in_bytes
            - analysis.alias_size_in_bytes
        )
        return Metric(float(needed), "B", "lower", "XLA memory analysis: arguments + outputs + temporaries - aliased")


class Jax(Framework):
    """The lane `jax`."""

    def unavailable(self, workload: Workload) -> str | None:
        if workload.model not in NETWORKS:
            return f"JAX has no network {workload.model!r}"
        if workload.mode not in ("inference", "dispatch"):
            return f"the JAX lane has no mode {workload.mode!r}"
        if workload.device == "gpu":
            try:
                jax.devices("gpu")
            except RuntimeError:
                return f"this machine has a GPU, but jax {jax.__version__} cannot use it: install fwbench[cuda]"
        if workload.precision == "tf32" and workload.device == "cpu":
            return "a CPU has no TF32 arithmetic: ask for fp32 or bf16"
        return None

    def weight_shapes(self, model: Model) -> dict[str, Shape]:
        return shapes(network(model))

    def build(self, workload: Workload, weights: Weights) -> Program:
        return Forward(workload, weights)

    def probe(self, workload: Workload, operands: Operands) -> Products:
        @jax.jit
        def products(left: jax.Array, right: jax.Array, images: jax.Array, kernel: jax.Array) -> list[jax.Array]:
            convolution = jax.lax.conv_general_dilated(
                images, kernel, (1, 1), [(1, 1), (1, 1)], dimension_numbers=("NHWC", "OIHW", "NHWC")
            )
            return [left @ right, convolution]

        arrays = (operands.left, operands.right, operands.images, operands.kernel)
        device = jax.devices(workload.device)[0]
        found = products(*jax.device_put([jnp.asarray(array, _DTYPE[workload.precision]) for array in arrays], device))
        return Products(*(np.asarray(array, dtype=np.float32) for array in found))

    def is_out_of_memory(self, error: BaseException) -> bool:
        return isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error)


FRAMEWORK = Jax()
