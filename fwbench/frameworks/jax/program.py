"""JAX programs: ahead-of-time compiled functions over flat leaves, which dispatch in tens of microseconds."""

import os
import platform
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from fwbench.frameworks.contract import CompileTimes, Program, Ranks
from fwbench.frameworks.hlo import lowered
from fwbench.frameworks.jax import convolutions, parallel
from fwbench.frameworks.jax import target as targets
from fwbench.frameworks.jax.fingerprint import flags, memory_parts, needed, told
from fwbench.frameworks.jax.flops import counted
from fwbench.frameworks.jax.kinds import Equinox, Nnx
from fwbench.frameworks.jax.networks import network
from fwbench.frameworks.jax.options import chosen
from fwbench.frameworks.jax.profile import recorded
from fwbench.machine import versions
from fwbench.models import Model, stateful
from fwbench.models.weights import Weights
from fwbench.record.fingerprint import Fingerprint
from fwbench.record.measurement import LEFT_OUT, Metric, unavailable
from fwbench.record.spans import Span
from fwbench.record.workload import Workload

DTYPE = {"fp64": jnp.float64, "fp32": jnp.float32, "tf32": jnp.float32, "bf16": jnp.bfloat16}
# XLA's default is TF32 on GPUs that have it, in every library. For "tensorfloat32", which means TF32 or better,
# Triton's kernels compute in IEEE float32.
_MATMUL_PRECISION = {"fp64": "highest", "fp32": "highest", "tf32": "default", "bf16": "default"}


def precision(workload: Workload) -> dict[str, Any]:
    """JAX's settings by which a program computes in the workload's precision."""
    # Without x64 JAX turns every float64 into float32. Other precisions leave the setting to the user.
    wide = {"jax_enable_x64": True} if workload.precision == "fp64" else {}
    return {**wide, "jax_default_matmul_precision": _MATMUL_PRECISION[workload.precision]}


Leaves = list[Any]  # arrays, and None for leaves that a program does without

_COMPILATION = "/jax/core/compile/backend_compile_duration"
_EVENTS: Counter[str] = Counter()  # of JAX's monitoring in this process, by name


def _count(event: str, duration_secs: float, **_: Any) -> None:
    _EVENTS[event] += 1


jax.monitoring.register_event_duration_secs_listener(_count)

# The libraries' jits that take modules apart at each call. A compiled program is called with arrays alone.
_JITS: dict[type, str] = {Nnx: "flax.nnx.jit", Equinox: "equinox.filter_jit"}


class Compiled(Program):
    """A network's leaves and a batch on its devices, and a function of them that `compile` compiles.

    Args:
        dtype: number format of floating-point leaves and inputs.
    """

    function: Callable[..., Any]

    def __init__(
        self, workload: Workload, model: Model, weights: Weights, dtype: Any, ranks: Ranks | None = None
    ) -> None:
        self.ranks = ranks
        self.devices = parallel.devices(workload, ranks)
        self.device = self.devices.local[0]
        self.network = network(model, stateful.sizes(model, workload))
        if workload.remat:
            # This module imports the suite's own networks, which need a newer Flax than others' networks do.
            from fwbench.frameworks.jax.rematerialise import rematerialised

            self.network = rematerialised(self.network)
        platform = "cuda" if workload.target else self.device.platform
        convolutions.choose(convolutions.Choice(platform, workload.plain))
        self.options = chosen(workload, platform)
        for name, value in precision(workload).items():
            jax.config.update(name, value)
        leaves_out = workload.call != "module" and type(self.network) in _JITS
        self.settings: dict[str, Any] = {
            "precision_mode": workload.precision,
            "jax_default_matmul_precision": _MATMUL_PRECISION[workload.precision],
            "memory_format": self.network.images,
            "compile_cache": "cold",
            "XLA_FLAGS": os.environ.get("XLA_FLAGS", ""),
            **({"compiler_options": self.options} if self.options else {}),
            **({LEFT_OUT: _JITS[type(self.network)]} if leaves_out else {}),
            **({"data_parallel": f"shard_map over {workload.devices} devices"} if workload.devices > 1 else {}),
        }
        self.dtype = dtype
        self.leaves = self._loaded(weights)
        self.inputs = self._placed(stateful.called(model, workload))

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The arguments of the next call."""
        return self.leaves, self.inputs

    def _loaded(self, weights: Mapping[str, Any]) -> Leaves:
        """The network's leaves on all devices, with these weights among them."""
        return self.devices.everywhere([cast(leaf, self.dtype) for leaf in self.network.load(weights)])

    def _placed(self, batch: Mapping[str, NDArray[Any]]) -> dict[str, jax.Array]:
        """The network's inputs, each device with its slice."""
        return self.devices.divided(dict(batch), lambda part, device: self.network.place(part, self.dtype, device))

    def compile(self) -> CompileTimes:
        start = time.perf_counter()
        module = self.function.lower(*self.arguments)  # type: ignore[attr-defined]
        traced = time.perf_counter()
        self.compiled = module.compile(compiler_options=self.options)
        compiled = time.perf_counter()
        # Read now, so that the module is not stored: it would count as the program's memory.
        self.lowered = lowered(module.as_text())
        if self.device.platform == "cpu":
            self.settings["convolutions"] = convolutions.used()
        return CompileTimes(traced - start, compiled - traced, total=compiled - start)

    def weights(self) -> Weights:
        return self.network.export(self.leaves)

    def reset_peak_memory(self) -> None:
        for device in self.devices.local:
            # Older versions cannot (jax PR 38373).
            if device.memory_stats() is not None and hasattr(device, "clear_memory_stats"):
                device.clear_memory_stats()

    def peak_memories(self) -> list[Metric]:
        if self.device.memory_stats() is None:
            return super().peak_memories()
        clears = hasattr(self.device, "clear_memory_stats")
        since = "since clear_memory_stats" if clears else "of a fresh process; includes XLA's autotuning"
        limit = self.device.memory_stats().get("bytes_limit")
        pool = f"; of a pool of {limit / 2**30:.1f} GiB at most" if limit else ""
        source = f"JAX memory_stats peak_bytes_in_use {since}{pool}"
        return [Metric(float(device.memory_stats()["peak_bytes_in_use"]), source) for device in self.devices.local]

    def peak_memory(self) -> Metric:
        if self.device.memory_stats() is None:
            return super().peak_memory()
        return max(self.peak_memories(), key=lambda peak: peak.value or 0.0)

    def memory_in_use(self) -> Metric:
        if self.device.memory_stats() is None:
            return super().memory_in_use()
        used = [float(device.memory_stats()["bytes_in_use"]) for device in self.devices.local]
        return Metric(max(used), "JAX memory_stats bytes_in_use")

    def program_memory(self) -> Metric:
        parts = memory_parts(self.compiled)
        if parts is None:
            return unavailable("compiler", "this XLA backend states no memory need")
        return Metric(needed(parts), "XLA memory analysis: arguments + outputs + temporaries - aliased")

    def compilations(self) -> int:
        return _EVENTS[_COMPILATION]

    def spans(self, calls: int) -> list[Span]:
        return recorded(self.call_and_wait, calls, self.compiled.as_text() or "")

    def fingerprint(self) -> Fingerprint:
        compiler = {**versions(("jax", "jaxlib")), "XLA_FLAGS": flags(), **self.options}
        return told(self.lowered, self.compiled, compiler, f"{platform.machine()} {self.device.device_kind}")

    def fingerprint_for(self, target: str) -> Fingerprint | str:
        return targets.fingerprint(self.function, self.arguments, target)


def cast(leaf: Any, dtype: Any) -> Any:
    """Cast a floating-point leaf to a number format, and leave others alone."""
    return jnp.asarray(leaf, dtype if jnp.issubdtype(leaf.dtype, jnp.floating) else None)


class Forward(Compiled):
    """A forward pass; each of several devices computes its slice, and nothing is exchanged."""

    def __init__(self, workload: Workload, model: Model, weights: Weights, ranks: Ranks | None = None) -> None:
        super().__init__(workload, model, weights, DTYPE[workload.precision], ranks)
        # Random streams do not advance without training, so they need not be passed at every call.
        chosen = list(zip(self.network.leaves, self.leaves, strict=True))
        self.fixed = [self.devices.own(array) if leaf.kind == "random" else None for leaf, array in chosen]
        self.leaves = [None if leaf.kind == "random" else array for leaf, array in chosen]

        def forward(leaves: Leaves, inputs: dict[str, jax.Array]) -> tuple[jax.Array, list[jax.Array]]:
            return self.network.everything(self._complete(leaves), inputs)

        self.function = jax.jit(self.devices.spread(forward, "own"))
        self._take([self.inputs])
        # A CPU may run independent calls out of order, so all outputs are held. A GPU runs calls in order, and held
        # outputs would count as the program's memory.
        self.pending: deque[Any] = deque(maxlen=None if self.device.platform == "cpu" else 1)
        self.out: Any = (jnp.zeros(()), [])

    def _complete(self, leaves: Leaves) -> Leaves:
        return [own if leaf is None else leaf for leaf, own in zip(leaves, self.fixed, strict=True)]

    def restart(self, weights: Mapping[str, NDArray[Any]], draw: int = 0) -> None:
        present = [None if leaf is None else self.devices.own(leaf) for leaf in self.leaves]
        self.leaves = list(map(self.devices.everywhere, self.network.replaced_weights(present, weights)))

    def _take(self, ring: list[dict[str, jax.Array]]) -> None:
        self.ring, self.inputs = ring, ring[0]
        self.batches = cycle(ring)

    def rotate(self, batches: Sequence[Mapping[str, NDArray[Any]]]) -> None:
        self._take(jax.block_until_ready([self._placed(batch) for batch in batches]))

    def relocate(self) -> None:
        self.leaves, ring = self.devices.copied((self.leaves, self.ring))
        self._take(ring)

    def step(self) -> None:
        self.out = self.compiled(self.leaves, next(self.batches))
        self.pending.append(self.out)

    def wait(self) -> None:
        jax.block_until_ready(list(self.pending))
        self.pending.clear()

    def output(self) -> NDArray[Any]:
        return self.devices.rows(self.out[0]).astype(np.float32, copy=False)

    def forward_flops(self) -> float:
        return counted(self.function, *self.arguments)


class OfModule(Forward):
    """A forward pass called as users of the network's library call it: its jit takes the module apart at each call.

    The record describes the compiled program beside it.
    """

    def __init__(self, workload: Workload, model: Model, weights: Weights) -> None:
        super().__init__(workload, model, weights)
        network = self.network
        self._jitted = network.jit(lambda held, inputs: network.everything(network.taken_apart(held), inputs))
        self._hold()

    def _hold(self) -> None:
        self._held = self.network.assembled(self._complete(self.leaves))

    def compile(self) -> CompileTimes:
        times = super().compile()
        # The same program once more, by the library's jit.
        self.call_and_wait()
        return times

    def step(self) -> None:
        self.out = self._jitted(self._held, next(self.batches))
        self.pending.append(self.out)

    def restart(self, weights: Mapping[str, NDArray[Any]], draw: int = 0) -> None:
        super().restart(weights, draw)
        self._hold()

    def relocate(self) -> None:
        super().relocate()
        self._hold()


class Dispatch(Forward):
    """A program that takes every leaf and computes nothing: the cost of a call before any arithmetic."""

    def __init__(self, workload: Workload, model: Model, weights: Weights, ranks: Ranks | None = None) -> None:
        super().__init__(workload, model, weights, ranks)
        nothing = self.devices.spread(lambda leaves, inputs: (jax.tree.leaves(inputs)[0].ravel()[:1],), "own")
        self.function = jax.jit(nothing, keep_unused=True)
