"""Options of XLA's compiler with which fwbench's own networks run faster on a CPU than with its defaults."""

import functools
import os
from collections.abc import Mapping
from typing import Any

import jax

from fwbench.record.workload import TRAINING, Workload

# Switches YNNPACK off, which XLA otherwise uses for single products and convolutions on some processors. Inference in
# fp32 of these networks is as fast without it or faster: ResNet-50 takes 1.1 to 1.4 times as long with it (jax 0.10.2
# to 0.12.0, Xeons; docs/evidence/lanes.md). All else keeps it. Without it the small CNN takes 1.3 times as long, a
# training step of ResNet-50 1.5 times, and ViT-B/16 in bf16 three times, as YNNPACK uses the processor's products in
# bf16. The decoder is slower without it, too (docs/xla-cpu.md), and convolutions in fp64 would be a scalar loop.
_FASTER = {"xla_cpu_experimental_ynn_fusion_type": ""}
_FASTER_WITHOUT = frozenset({"resnet50", "vit_b_16", "mobilenet_v3_small", "efficientnet_b0"})


def chosen(workload: Workload, platform: str) -> dict[str, Any]:
    """The compiler options of a workload's programs on a platform, as JAX names it."""
    slower = workload.mode in TRAINING or workload.precision != "fp32"
    return {} if workload.plain or slower else faster(workload.model, platform)


def faster(model: str, platform: str) -> dict[str, Any]:
    """The options that speed up a forward pass of a model in fp32; a flag that the user has set in `XLA_FLAGS` stays.

    A user's own model gets none: it is compiled as `jax.jit` compiles it in the user's program.
    """
    if platform != "cpu" or model not in _FASTER_WITHOUT:
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
