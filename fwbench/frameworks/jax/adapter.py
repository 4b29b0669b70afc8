"""The JAX lane."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from fwbench.frameworks import extended
from fwbench.frameworks.contract import Framework, Offered, Program, Ranks
from fwbench.frameworks.definitions import lacking
from fwbench.frameworks.jax import parallel, plugins
from fwbench.frameworks.jax.networks import network
from fwbench.frameworks.jax.options import chosen
from fwbench.frameworks.jax.program import DTYPE, Dispatch, Forward, OfModule, precision
from fwbench.frameworks.jax.training import TrainStep
from fwbench.frameworks.precision import Operands, Products
from fwbench.frameworks.training import HORIZON
from fwbench.models import Model
from fwbench.models.weights import Shape, Weights
from fwbench.record.workload import STATEFUL, TRAINING, Workload

# JAX's settings that a network may change, and that change programs or their calls.
_SETTINGS = (
    *("jax_enable_x64", "jax_default_matmul_precision", "jax_numpy_dtype_promotion", "jax_default_device"),
    *("jax_disable_jit", "jax_debug_nans", "jax_debug_infs", "jax_enable_checks", "jax_check_tracer_leaks"),
    *("jax_default_prng_impl", "jax_threefry_partitionable", "jax_optimization_level", "jax_memory_fitting_level"),
)

_FORWARD = {"inference": Forward, "dispatch": Dispatch}


class Jax(Framework):
    """The lane `jax`; over several devices a process has one CPU device, or all GPUs of its host."""

    mixes = True

    def join(self, ranks: Ranks) -> None:
        self.ranks = ranks
        parallel.join(ranks)

    def leave(self) -> None:
        parallel.leave(self.ranks)

    def unavailable(self, workload: Workload, model: Model) -> str | None:
        if workload.device == "cpu" and not workload.target:
            # This comes before anything asks JAX for its devices.
            plugins.leave_out()
        if reason := lacking(model, workload, "jax", "JAX", (*_FORWARD, *STATEFUL, *TRAINING)):
            return reason
        if workload.call == "module" and (workload.mode != "inference" or workload.devices > 1 or workload.target):
            return "call=module is measured in inference, on one device"
        if workload.mode in TRAINING:
            leaves = network(model, model.sizes(workload.axes)).leaves
            if not any(leaf.kind == "parameter" for leaf in leaves):
                return f"{model.name} has no weights to train"
        if workload.device == "gpu" and (reason := plugins.no_gpu()):
            return f"this machine has a GPU, but jax {jax.__version__} cannot use it: {reason}"
        if workload.precision == "tf32" and not workload.target:
            device = _device(workload)
            capability = getattr(device, "compute_capability", "0.0" if device.platform == "cpu" else "8.0")
            if tuple(map(int, capability.split("."))) < (8, 0):
                name = "a CPU" if device.platform == "cpu" else device.device_kind
                return f"{name} has no TF32 arithmetic: ask for fp32 or bf16"
        return parallel.lacking(workload, self.ranks)

    def weight_shapes(self, model: Model, sizes: Mapping[str, int]) -> dict[str, Shape]:
        return network(model, sizes).shapes

    def initial(self, model: Model, sizes: Mapping[str, int], seed: int) -> Weights:
        return network(model, sizes).initial(seed)

    def build(self, workload: Workload, model: Model, weights: Weights, horizon: int = HORIZON) -> Program:
        if workload.call == "module":
            return OfModule(workload, model, weights)
        if kind := extended.kind_of(workload, model):
            return extended.build(kind, "jax", workload, model, weights)
        if workload.mode in _FORWARD:
            return _FORWARD[workload.mode](workload, model, weights, self.ranks)
        return TrainStep(workload, model, weights, horizon, ranks=self.ranks)

    def in_force(self, workload: Workload) -> Mapping[str, Any]:
        # Some values, such as a device, are no JSON.
        return {
            name: value if isinstance(value, bool | int | str | None) else str(value)
            for name in _SETTINGS
            if (value := getattr(jax.config, name, None)) is not None
        }

    def chosen(self, workload: Workload) -> Mapping[str, Any]:
        return precision(workload)

    def probe(self, workload: Workload, operands: Operands) -> Products:
        device = _device(workload)

        @functools.partial(jax.jit, compiler_options=chosen(workload, device.platform))
        def products(
            left: jax.Array, right: jax.Array, images: jax.Array, kernel: jax.Array, *attended: jax.Array
        ) -> list[jax.Array]:
            return [left @ right, _convolve(images, kernel), _attend(*attended)]

        arrays = products(*_placed(workload, *operands))
        return Products(*(np.asarray(array, dtype=np.float64) for array in arrays))

    def matrix_product(self, workload: Workload, left: NDArray[np.float32], right: NDArray[np.float32]) -> Offered:
        return _compiled(workload, jnp.matmul, *_placed(workload, left, right)), "XLA"

    def convolution(self, workload: Workload, images: NDArray[np.float32], kernel: NDArray[np.float32]) -> Offered:
        return _compiled(workload, _convolve, *_placed(workload, images, kernel)), "XLA"

    def copy(self, workload: Workload, numbers: int) -> Offered:
        # Negation, as XLA's own copy on a CPU uses one thread.
        return _compiled(workload, jnp.negative, jnp.ones(numbers, jnp.float32, device=_device(workload))), "XLA"

    def preload(self, lane: str) -> None:
        plugins.registered()

    def is_compilers_fault(self, error: BaseException) -> bool:
        # A network's own faults raise Python's exceptions while the network is traced. XLA raises only this exception,
        # also for a kernel that fails while it runs, as XLA has made or chosen the kernel.
        return isinstance(error, jax.errors.JaxRuntimeError) and not self.is_out_of_memory(error)

    def said(self, error: BaseException) -> str:
        said = super().said(error)
        if not self.is_out_of_memory(error):
            return said
        # The limit is three quarters of a GPU, even if XLA allocates them piece by piece.
        limit = (jax.local_devices()[0].memory_stats() or {}).get("bytes_limit")
        advice = "XLA_PYTHON_CLIENT_MEM_FRACTION=0.95 lets it take nearly all of the GPU"
        return f"{said}; XLA's pool takes {limit / 2**30:.1f} GiB at most, and {advice}" if limit else said


def _device(workload: Workload) -> jax.Device:
    """The first of this process's own devices. Each of several processes sees the devices of all."""
    return jax.local_devices(backend=workload.device)[0]


def _placed(workload: Workload, *arrays: NDArray[np.float32]) -> list[jax.Array]:
    """Arrays in the workload's precision on its device."""
    cast = [jnp.asarray(array, DTYPE[workload.precision]) for array in arrays]
    return jax.device_put(cast, _device(workload))


def _convolve(images: jax.Array, kernel: jax.Array) -> jax.Array:
    """Convolve at stride 1 and keep the size."""
    return jax.lax.conv_general_dilated(
        images, kernel, (1, 1), [(1, 1), (1, 1)], dimension_numbers=("NHWC", "OIHW", "NHWC")
    )


def _attend(query: jax.Array, key: jax.Array, value: jax.Array) -> jax.Array:
    """Attention, written as in the suite's own network."""
    scores = jnp.einsum("bhqd,bhkd->bhqk", query / query.shape[-1] ** 0.5, key)
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores, axis=-1), value)


def _compiled(workload: Workload, function: Callable[..., jax.Array], *arrays: jax.Array) -> Callable[[], jax.Array]:
    """A function, compiled as the workload's programs are, whose calls wait for the result."""
    options = chosen(workload, _device(workload).platform)
    compiled = jax.jit(function, compiler_options=options).lower(*arrays).compile()
    return lambda: compiled(*arrays).block_until_ready()


FRAMEWORK = Jax()
