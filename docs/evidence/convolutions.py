# ruff: noqa: E402 (the threads are fixed before anything is imported that starts some)
"""What depthwise and 1x1 convolutions cost on one CPU core: XLA's own, fwbench's forms of them, and PyTorch's.

    python docs/evidence/convolutions.py        # writes the table in ../xla-cpu.md

CPU time of the fastest of many calls, in one process, candidates by turns; float32, batch 2.
"""

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

# Before anything starts a thread.
os.environ |= {"NPROC": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"}
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import lax

from fwbench.frameworks.jax.convolutions import convolution

PAGE = Path(__file__).resolve().parents[1] / "xla-cpu.md"
BEGIN, END = "<!-- convolutions: begin -->", "<!-- convolutions: end -->"

BATCH = 2
# Edge of the images, channels, features, kernel, stride; those of MobileNetV3, EfficientNet and, 1x1, ResNet-50.
DEPTHWISE = (
    *((112, 16, 3, 2), (56, 72, 3, 2), (28, 88, 3, 1), (28, 96, 5, 2), (14, 240, 5, 1), (7, 576, 5, 1)),
    *((112, 32, 3, 1), (112, 96, 3, 2), (56, 144, 3, 1), (28, 240, 5, 1), (14, 480, 3, 1), (7, 1152, 3, 1)),
)
POINTWISE = (
    *((56, 64, 256, 1), (56, 256, 64, 1), (56, 256, 512, 2)),
    *((28, 512, 128, 1), (14, 1024, 256, 1), (7, 512, 2048, 1)),
)
SECONDS = 0.5  # for each candidate

Calls = Mapping[str, Callable[[], Any]]


def fastest(candidates: Calls) -> dict[str, float]:
    """Seconds of CPU time of each one's fastest call."""
    found = dict.fromkeys(candidates, float("inf"))
    for call in candidates.values():
        call()
    until = time.perf_counter() + SECONDS * len(candidates)
    while time.perf_counter() < until:
        for name, call in candidates.items():
            begun = time.process_time()
            call()
            found[name] = min(found[name], time.process_time() - begun)
    return found


def in_jax(convolve: Callable[..., Any], x: Any, kernel: Any, weight: Any, stride: int, groups: int) -> dict[str, Any]:
    """The forward pass and both gradients as compiled calls."""
    pad = (kernel.shape[0] - 1) // 2

    def forward(x: Any, kernel: Any) -> Any:
        numbers = ("NHWC", "HWIO", "NHWC")
        pads = ((pad, pad), (pad, pad))
        return convolve(x, kernel, (stride, stride), pads, dimension_numbers=numbers, feature_group_count=groups)

    def compiled(function: Callable[..., Any]) -> Callable[[], Any]:
        made = jax.jit(function).lower(x, kernel, weight).compile()
        return lambda: jax.block_until_ready(made(x, kernel, weight))

    return {
        "forward": compiled(lambda x, kernel, weight: forward(x, kernel)),
        "input": compiled(lambda x, kernel, weight: jax.vjp(lambda x: forward(x, kernel), x)[1](weight)),
        "kernel": compiled(lambda x, kernel, weight: jax.vjp(lambda kernel: forward(x, kernel), kernel)[1](weight)),
    }


def in_torch(x: Any, kernel: Any, weight: Any, stride: int, groups: int) -> dict[str, Any]:
    """The same of PyTorch, images in memory as they are in JAX."""
    pad = (kernel.shape[0] - 1) // 2
    images, cotangent = (torch.from_numpy(np.asarray(a).copy()).permute(0, 3, 1, 2) for a in (x, weight))
    weights = torch.from_numpy(np.asarray(kernel).transpose(3, 2, 0, 1).copy())

    def backward(*wanted: bool) -> Any:
        return torch.ops.aten.convolution_backward(
            *(cotangent, images, weights, None, [stride] * 2, [pad] * 2, [1, 1], False, [0, 0], groups, list(wanted))
        )

    return {
        "forward": lambda: torch.nn.functional.conv2d(images, weights, stride=stride, padding=pad, groups=groups),
        "input": lambda: backward(True, False, False),
        "kernel": lambda: backward(False, True, False),
    }


def row(edge: int, channels: int, features: int, kernel: int, stride: int, groups: int) -> str:
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> Any:
        return jnp.asarray(rng.standard_normal(shape, dtype=np.float32))

    out = (edge - 1) // stride + 1
    x, weights = normal(BATCH, edge, edge, channels), normal(kernel, kernel, channels // groups, features)
    given = (x, weights, normal(BATCH, out, out, features), stride, groups)
    sides = {"ours": in_jax(convolution, *given), "XLA": in_jax(lax.conv_general_dilated, *given)}
    sides["PyTorch"] = in_torch(*given)
    cells = []
    for part in ("forward", "input", "kernel"):
        seconds = fastest({name: side[part] for name, side in sides.items()})
        cells.append(f"{seconds['ours'] / seconds['XLA']:.2g} | {seconds['ours'] / seconds['PyTorch']:.2g}")
    name = f"{kernel}x{kernel}, {edge} x {edge} x {channels}" + (f" to {features}" if groups == 1 else "")
    return f"| {name}{', stride 2' if stride == 2 else ''} | {' | '.join(cells)} |"


def table() -> list[str]:
    lines = [
        "| convolution | forward, ours / XLA | / PyTorch | gradient of the input, ours / XLA | / PyTorch "
        "| gradient of the kernel, ours / XLA | / PyTorch |",
        f"|---|{'--:|' * 6}",
    ]
    for edge, channels, kernel, stride in DEPTHWISE:
        lines.append(row(edge, channels, channels, kernel, stride, channels))
        print(lines[-1], flush=True)
    for edge, channels, features, stride in POINTWISE:
        lines.append(row(edge, channels, features, 1, stride, 1))
        print(lines[-1], flush=True)
    return lines


if __name__ == "__main__":
    torch.set_num_threads(1)
    made = "\n".join((BEGIN, f"jax {jax.__version__}, torch {torch.__version__}.", "", *table(), END))
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(before + made + rest.partition(END)[2])
