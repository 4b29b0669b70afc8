"""JAX programs: ahead-of-time compiled functions over flat leaves, which dispatch in tens of microseconds."""

import os
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from numpy.typing import NDArray

from fwbench.data.synthetic import batch
from fwbench.frameworks.contract import CompileTimes, Program
from fwbench.frameworks.jax.networks import export_weights, load_weights, network
from fwbench.measurement import Metric, unavailable
from fwbench.models import CATALOG
from fwbench.models.weights import Weights
from fwbench.training import HORIZON, LEARNING_RATE, MOMENTUM, labels
from fwbench.workload import Workload

DTYPE = {"fp32": jnp.float32, "tf32": jnp.float32, "bf16": jnp.bfloat16}
_MATMUL_PRECISION = {"fp32": "highest", "tf32": "tensorfloat32", "bf16": "default"}

Leaves = list[jax.Array]


class Compiled(Program):
    """A module's leaves and a batch on the device, and a function of them that `compile` compiles.

    Args:
        dtype: of the weights and the batch.
        train: whether the module is in training mode.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]

    def __init__(self, workload: Workload, weights: Weights, dtype: Any, *, train: bool) -> None:
        model = CATALOG[workload.model]
        self.device = jax.devices(workload.device)[0]
        jax.config.update("jax_default_matmul_precision", _MATMUL_PRECISION[workload.precision])
        self.settings: dict[str, Any] = {
            "precision_mode": workload.precision,
            "jax_default_matmul_precision": _MATMUL_PRECISION[workload.precision],
            "memory_format": "NHWC",
            "compile_cache": "cold",
            "XLA_FLAGS": os.environ.get("XLA_FLAGS", ""),
        }
        module: Any = network(model)
        load_weights(module, weights)
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
        lowered = self.function.lower(*self.arguments)  # type: ignore[attr-defined]
        traced = time.perf_counter()
        self.compiled = lowered.compile()
        return CompileTimes(traced - start, time.perf_counter() - traced)

    def weights(self) -> Weights:
        return export_weights(self.merge(self.leaves))

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


class Forward(Compiled):
    """A forward pass."""

    def __init__(self, workload: Workload, weights: Weights) -> None:
        super().__init__(workload, weights, DTYPE[workload.precision], train=False)
        self.function = jax.jit(lambda leaves, x: self.merge(leaves)(x))
        self.arguments = (self.leaves, self.x)
        self.pending: list[jax.Array] = []
        self.out = self.x

    def step(self) -> None:
        self.out = self.compiled(self.leaves, self.x)
        self.pending.append(self.out)

    def wait(self) -> None:
        # All of them: a CPU client may run independent calls out of order.
        jax.block_until_ready(self.pending)
        self.pending.clear()

    def output(self) -> NDArray[Any]:
        return np.asarray(self.out, dtype=np.float32)


class Dispatch(Forward):
    """Takes every leaf and computes nothing: what a call costs before any arithmetic."""

    def __init__(self, workload: Workload, weights: Weights) -> None:
        super().__init__(workload, weights)
        self.function = jax.jit(lambda leaves, x: x.ravel()[:1], keep_unused=True)


class TrainStep(Compiled):
    """One optimizer step on a batch that lies on the device; `output` is its loss.

    Parameters, running statistics, optimizer state and the step's number are one flat list of leaves that each call
    takes, gives up (donation) and returns, so nothing of it passes through the host.
    """

    def __init__(self, workload: Workload, weights: Weights) -> None:
        # Weights stay float32 while training; bf16 is mixed precision.
        super().__init__(workload, weights, jnp.float32, train=True)
        compute = DTYPE[workload.precision]
        rate = optax.cosine_decay_schedule(LEARNING_RATE[workload.optimizer], HORIZON)
        optimizer = optax.adam(rate) if workload.optimizer == "adam" else optax.sgd(rate, momentum=MOMENTUM)
        self.settings |= {"optimizer": workload.optimizer, "mixed_precision": compute == jnp.bfloat16}

        graph, parameters, rest = nnx.split(self.merge(self.leaves), nnx.Param, ...)
        started = (parameters, rest, optimizer.init(parameters), jnp.zeros((), jnp.int32))
        leaves, structure = jax.tree.flatten(started)
        # Copies: two leaves must not share a buffer that is given up.
        self.state: Leaves = [jax.device_put(jnp.array(leaf, copy=True), self.device) for leaf in leaves]
        self._parts = lambda state: jax.tree.unflatten(structure, state)
        self._graph = graph
        del self.leaves
        target = jnp.asarray(labels(workload))
        key = jax.random.key(workload.seed)

        def step(state: Leaves, x: jax.Array) -> tuple[Leaves, jax.Array]:
            parameters, rest, memory, number = self._parts(state)

            def loss_of(parameters: Any) -> tuple[jax.Array, Any]:
                cast = jax.tree.map(lambda leaf: leaf.astype(compute), parameters)
                module: Any = nnx.merge(graph, cast, rest, copy=True)
                logits = module(x.astype(compute), rngs=nnx.Rngs(dropout=jax.random.fold_in(key, number)))
                loss = optax.softmax_cross_entropy_with_integer_labels(logits.astype(jnp.float32), target).mean()
                return loss, nnx.split(module, nnx.Param, ...)[2]

            (loss, rest), gradients = jax.value_and_grad(loss_of, has_aux=True)(parameters)
            updates, memory = optimizer.update(gradients, memory, parameters)
            parameters = optax.apply_updates(parameters, updates)
            return jax.tree.leaves((parameters, rest, memory, number + 1)), loss

        self.function = jax.jit(step, donate_argnums=0)
        self.arguments = (self.state, self.x)
        self.loss = jnp.zeros(())

    def step(self) -> None:
        self.state, self.loss = self.compiled(self.state, self.x)

    def wait(self) -> None:
        jax.block_until_ready((self.state, self.loss))

    def output(self) -> NDArray[Any]:
        return np.asarray(self.loss).reshape(1)

    def weights(self) -> Weights:
        parameters, rest, *_ = self._parts(self.state)
        return export_weights(nnx.merge(self._graph, parameters, rest))
