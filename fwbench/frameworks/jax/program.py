"""JAX programs: ahead-of-time compiled functions over flat leaves, which dispatch in tens of microseconds."""

import os
import platform
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from numpy.typing import NDArray

from fwbench.data.synthetic import batch
from fwbench.frameworks.contract import CompileTimes, Program
from fwbench.frameworks.jax.fingerprint import aliased, fusions, lowered
from fwbench.frameworks.jax.networks import export_weights, load_weights, network
from fwbench.frameworks.jax.rematerialise import rematerialise
from fwbench.machine import versions
from fwbench.models import Model
from fwbench.models.weights import Weights
from fwbench.record.fingerprint import Fingerprint
from fwbench.record.measurement import Metric, unavailable
from fwbench.record.workload import Workload

DTYPE = {"fp32": jnp.float32, "tf32": jnp.float32, "bf16": jnp.bfloat16}
_MATMUL_PRECISION = {"fp32": "highest", "tf32": "tensorfloat32", "bf16": "default"}

Leaves = list[jax.Array]

_COMPILED: list[float] = []  # seconds of each compilation in this process


def _note_compilation(event: str, duration_secs: float, **_: Any) -> None:
    if event == "/jax/core/compile/backend_compile_duration":
        _COMPILED.append(duration_secs)


jax.monitoring.register_event_duration_secs_listener(_note_compilation)


class Compiled(Program):
    """A module's leaves and a batch on the device, and a function of them that `compile` compiles.

    Args:
        dtype: of the weights and the batch.
        train: whether the module is in training mode.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]

    def __init__(self, workload: Workload, model: Model, weights: Weights, dtype: Any, *, train: bool) -> None:
        self.device = jax.devices(workload.device)[0]
        jax.config.update("jax_default_matmul_precision", _MATMUL_PRECISION[workload.precision])
        self.settings: dict[str, Any] = {
            "precision_mode": workload.precision,
            "jax_default_matmul_precision": _MATMUL_PRECISION[workload.precision],
            "memory_format": "NHWC",
            "compile_cache": "cold",
            "XLA_FLAGS": os.environ.get("XLA_FLAGS", ""),
        }
        module: Any = network(model, model.sizes(workload.axes))
        load_weights(module, weights)
        if workload.remat:
            rematerialise(module)
        if train:
            module.train()
        else:
            module.eval()
        self.graph, state = nnx.split(module)
        leaves, self.structure = jax.tree.flatten(state)
        self.leaves: Leaves = jax.device_put([jnp.asarray(leaf, dtype) for leaf in leaves], self.device)
        self.x = jax.device_put(jnp.asarray(batch(model, workload.batch_size, workload.seed), dtype), self.device)

    def merge(self, leaves: Leaves) -> Any:
        """The module with these leaves."""
        return nnx.merge(self.graph, jax.tree.unflatten(self.structure, leaves))

    def compile(self) -> CompileTimes:
        start = time.perf_counter()
        module = self.function.lower(*self.arguments)  # type: ignore[attr-defined]
        traced = time.perf_counter()
        self.compiled = module.compile()
        compiled = time.perf_counter()
        # Now, so that the module is not kept, which would count as the program's memory.
        self.lowered = lowered(module.as_text())
        return CompileTimes(traced - start, compiled - traced)

    def weights(self) -> Weights:
        return export_weights(self.merge(self.leaves))

    def relocate(self) -> None:
        self.leaves, self.x = copied((self.leaves, self.x))
        self.arguments = (self.leaves, self.x)

    def peak_memory(self) -> Metric:
        stats = self.device.memory_stats()
        if stats is None:
            return super().peak_memory()
        return Metric(
            float(stats["peak_bytes_in_use"]),
            "JAX memory_stats peak_bytes_in_use of a fresh process; includes XLA's autotuning",
        )

    def memory_in_use(self) -> Metric:
        stats = self.device.memory_stats()
        if stats is None:
            return super().memory_in_use()
        return Metric(float(stats["bytes_in_use"]), "JAX memory_stats bytes_in_use")

    def program_memory(self) -> Metric:
        analysis = self.compiled.memory_analysis()
        if analysis is None:
            return unavailable("compiler", "this XLA backend states no memory need")
        needed = (
            analysis.argument_size_in_bytes
            + analysis.output_size_in_bytes
            + analysis.temp_size_in_bytes
            - analysis.alias_size_in_bytes
        )
        return Metric(float(needed), "XLA memory analysis: arguments + outputs + temporaries - aliased")

    def compilations(self) -> int:
        return len(_COMPILED)

    def fingerprint(self) -> Fingerprint:
        optimised = self.compiled.as_text()
        costs = self.compiled.cost_analysis() or {}
        memory = self.program_memory()
        return Fingerprint(
            form="StableHLO",
            digest=self.lowered.digest,
            operators=self.lowered.operators,
            dtypes=self.lowered.dtypes,
            compiler={**versions(("jax", "jaxlib")), "XLA_FLAGS": _flags()},
            processor=f"{platform.machine()} {self.device.device_kind}",
            flops=costs.get("flops"),
            bytes_accessed=costs.get("bytes accessed"),
            fusions=fusions(optimised),
            memory=memory.value,
            aliased=aliased(optimised),
            absent={
                "graph_breaks": "a program traced by JAX is one graph",
                **({} if memory.reason is None else {"memory": memory.reason}),
            },
        )


def _flags() -> str:
    """XLA's flags but those that say where to put its dumps."""
    flags = os.environ.get("XLA_FLAGS", "").split()
    return " ".join(sorted(flag for flag in flags if not flag.startswith("--xla_dump")))


@jax.jit
def copied(tree: Any) -> Any:
    """The tree with a fresh buffer for every array."""
    return jax.tree.map(jnp.copy, tree)


class Forward(Compiled):
    """A forward pass."""

    def __init__(self, workload: Workload, model: Model, weights: Weights) -> None:
        super().__init__(workload, model, weights, DTYPE[workload.precision], train=False)
        self.function = jax.jit(lambda leaves, x: self.merge(leaves)(x))
        self.arguments = (self.leaves, self.x)
        # All of them on a CPU, whose client may run independent calls out of order; a GPU's come in order, and kept
        # outputs would count as the program's memory.
        self.pending: deque[jax.Array] = deque(maxlen=None if self.device.platform == "cpu" else 1)
        self.out = jnp.zeros(())

    def step(self) -> None:
        self.out = self.compiled(self.leaves, self.x)
        self.pending.append(self.out)

    def wait(self) -> None:
        jax.block_until_ready(list(self.pending))
        self.pending.clear()

    def output(self) -> NDArray[Any]:
        return np.asarray(self.out, dtype=np.float32)


class Dispatch(Forward):
    """Takes every leaf and computes nothing: what a call costs before any arithmetic."""

    def __init__(self, workload: Workload, model: Model, weights: Weights) -> None:
        super().__init__(workload, model, weights)
        self.function = jax.jit(lambda leaves, x: x.ravel()[:1], keep_unused=True)
