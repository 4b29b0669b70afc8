"""JAX programs for a GPU that this machine lacks: XLA compiles them from a description of the device; nothing runs.

XLA then lacks the facts that it would measure on the device: the fastest kernels, and cuDNN's scratch memory.
"""

from collections.abc import Callable
from typing import Any

import jax
from jax.experimental import topologies

from fwbench.frameworks.hlo import lowered
from fwbench.frameworks.jax.fingerprint import flags, told
from fwbench.machine import targets, versions
from fwbench.record.fingerprint import Fingerprint

# On a device XLA times its own Triton kernels against cuBLAS's for each matrix product. Without a device it would
# choose an untried Triton kernel, and larger networks would not compile.
_OPTIONS = {"xla_gpu_enable_triton_gemm": False}

_NEEDED = "JAX compiles for a GPU that is not here with packages that are missing: install fwbench[target]"


def fingerprint(function: Callable[..., Any], arguments: tuple[Any, ...], target: str) -> Fingerprint | str:
    """The fingerprint of a jitted function, lowered and compiled for a device, or the reason why there is none.

    Args:
        arguments: arrays, which stay where they are.
        target: a name in `fwbench.machine.targets.NAMES`.
    """
    try:
        described = targets.description(target)
        topology: Any = topologies.get_topology_desc(platform="cuda", target_config=described, topology="1x1x1")
    except NotImplementedError:
        # JAX raises these if no plugin for CUDA is installed, or one that does not fit jaxlib's version.
        return f"{_NEEDED} (jax {jax.__version__} found no plugin of its version for CUDA)"
    device = topology.devices[0]
    sharding = jax.sharding.SingleDeviceSharding(device)
    shapes = jax.tree.map(
        lambda array: jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=sharding, weak_type=array.weak_type),
        arguments,
    )
    module = function.lower(*shapes)  # type: ignore[attr-defined]
    try:
        compiled = module.compile(compiler_options=_OPTIONS)
    except jax.errors.JaxRuntimeError as error:
        if "No PTX compilation provider" in str(error):
            return f"{_NEEDED} (XLA found no ptxas)"
        raise
    compiler = {
        **versions(("jax", "jaxlib", "jax-cuda13-plugin", "nvidia-cuda-nvcc")),
        "XLA_FLAGS": flags(),
        "options": " ".join(f"{name}={str(value).lower()}" for name, value in _OPTIONS.items()),
    }
    absent = dict.fromkeys(("flops", "bytes_accessed"), "XLA states no costs for a device that is not here")
    absent |= dict.fromkeys(
        ("compilations", "recompilations"), "it is compiled for a device that is not here, and not run"
    )
    return told(lowered(module.as_text()), compiled, compiler, device.device_kind, absent)
