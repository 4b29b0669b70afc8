"""Options of XLA's compiler with which fwbench's own networks run faster on a CPU than with its defaults."""

import functools
import os
from collections.abc import Mapping
from typing import Any

import jax

from fwbench.models import CATALOG
from fwbench.record.workload import TRAINING, Workload

# Switches YNNPACK off, which XLA otherwise uses for single products and convolutions on some processors: with YNNPACK
# inference of ResNet-50 takes 1.2 to 1.4 times as long, of ViT-B/16 1.07 to 1.17 (jax 0.10.2 and 0.12.0, one Xeon).
# Training keeps YNNPACK: it speeds up the gradients of ResNet-50's convolutions, and a step is 1.5 times as fast. fp64
# keeps it, too: without it XLA computes convolutions by a scalar loop, and the small CNN takes 40 times as long. A
# model with a state keeps it as well: the decoder's step at batch 8 would take 1.4 to 1.5 times as long (jax 0.12.0).
_FASTER = {"xla_cpu_experimental_ynn_fusion_type": ""}


def chosen(workload: Workload, platform: str) -> dict[str, Any]:
    """The compiler options of a workload's programs on a platform, as JAX names it."""
    slower = workload.mode in TRAINING or workload.precision == "fp64"
    return {} if workload.plain or slower else faster(workload.model, platform)


def faster(model: str, platform: str) -> dict[str, Any]:
    """The options that speed up a forward pass of a model; a flag that the user has set in `XLA_FLAGS` stays.

    A user's own model, which is compiled as `jax.jit` compiles it in the user's program, and one with a state get none.
    """
    if platform != "cpu" or model not in CATALOG or CATALOG[model].state:
        return {}
    given = os.environ.get("XLA_FLAGS", "")
    return known({name: value for name, value in _FASTER.items() if name not in given})


def known(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that this version of XLA knows; it refuses to compile with any other."""
    return {name: value for name, value in options.items() if _is_known(name, value)}


@functools.cache
def _is_known(name: str, value: Any) -> bool:
    try:
        jax.jit(lambda: 0, compiler_options={name: value})()
    except jax.errors.JaxRuntimeError:
        return False
    return True
