# ruff: noqa: E402 (threads and memory are set up before anything is imported that takes some)
"""What XLA's own convolutions cost on a CPU, fwbench's forms of them, and PyTorch's: of layers and of whole networks.

    python docs/evidence/convolutions.py             # writes both tables in ../xla-cpu.md
    python docs/evidence/convolutions.py layers      # one of them
    python docs/evidence/convolutions.py networks

Layers: CPU time of the fastest of many calls on one core. Networks: median time of a call on all cores, in the
environment of fwbench's workers. Each in one process, candidates by turns; float32.
"""

import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fwbench.machine import machine
from fwbench.record.lanes import LANES
from fwbench.record.workload import Workload
from fwbench.worker.client.starting import environment

CORES = {"layers": 1, "networks": len(os.sched_getaffinity(0))}
HEADERS = {
    "layers": "| convolution | forward, ours / XLA | / PyTorch | gradient of the input, ours / XLA | / PyTorch "
    f"| gradient of the kernel, ours / XLA | / PyTorch |\n|---|{'--:|' * 6}",
    "networks": "| network | JAX plain / fast | JAX plain / PyTorch | JAX fast / PyTorch |\n|---|--:|--:|--:|",
}
NETWORKS = ("mobilenet_v3_small", "efficientnet_b0", "resnet50")
PAGE = Path(__file__).parents[1] / "xla-cpu.md"
PART, NETWORK = os.environ.get("PART", ""), os.environ.get("NETWORK", "")


def rows(part: str, network: str) -> str:
    """What a process of its own finds: memory, threads and JAX's devices are set up when it starts."""
    variables = environment(os.environ, CORES[part], "cpu", LANES["jax"]) | {"PART": part, "NETWORK": network}
    return subprocess.run(
        [sys.executable, __file__], env=variables, stdout=subprocess.PIPE, text=True, check=True
    ).stdout


if __name__ == "__main__" and not PART:
    for part in sys.argv[1:] or CORES:
        found = "".join(rows(part, network) for network in (NETWORKS if part == "networks" else ("",)))
        print(found)
        begin, end = f"<!-- {part}: begin -->", f"<!-- {part}: end -->"
        made_with = ", ".join(f"{name} {version(name)}" for name in ("jax", "torch"))
        before, _, rest = PAGE.read_text().partition(begin)
        made = f"{begin}\n{machine().cpu}, {made_with}.\n\n{HEADERS[part]}\n{found}{end}"
        PAGE.write_text(before + made + rest.partition(end)[2])
    sys.exit()
if PART == "layers":
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import lax

from fwbench.frameworks.contract import Program
from fwbench.frameworks.jax.adapter import Jax
from fwbench.frameworks.jax.convolutions import convolution
from fwbench.frameworks.torch.adapter import Torch
from fwbench.models import CATALOG
from fwbench.models.weights import canonical

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

CALLS = (("inference", 1), ("inference", 8), ("train_step", 2), ("train_step", 8))
ROUNDS, ROUNDS_SECONDS = 3, 4.0  # at least

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


def layers() -> None:
    for edge, channels, kernel, stride in DEPTHWISE:
        print(row(edge, channels, channels, kernel, stride, channels))
    for edge, channels, features, stride in POINTWISE:
        print(row(edge, channels, features, 1, stride, 1))


def compiled(framework: Jax | Torch, lane: str, name: str, mode: str, batch_size: int, plain: bool = False) -> Program:
    workload, model = Workload(lane, name, mode, batch_size, plain=plain), CATALOG[name]
    shapes = framework.weight_shapes(model, model.sizes(workload.axes))
    program = framework.build(workload, model, canonical(workload.weights, model, shapes, workload.seed))
    with program.session():
        program.compile()
    return program


def call(program: Program) -> float:
    """Seconds of one."""
    time.sleep(0.02)  # PyTorch's threads spin for a while after a call, which would slow down the next candidate's.
    with program.session():
        begun = time.perf_counter()
        program.step()
        program.wait()
        return time.perf_counter() - begun


def medians(programs: Sequence[Program]) -> list[float]:
    """Seconds of each one's median call, in a new order every round: each finds the caches as the last left them."""
    for program in programs:
        call(program)
    found: list[list[float]] = [[] for _ in programs]
    until = time.perf_counter() + ROUNDS_SECONDS
    while len(found[0]) < ROUNDS or time.perf_counter() < until:
        for which in random.sample(range(len(programs)), len(programs)):
            found[which].append(call(programs[which]))
    return [statistics.median(calls) for calls in found]


def network(name: str) -> None:
    for mode, batch_size in CALLS:
        given = (name, mode, batch_size)
        plain, fast, other = medians(
            [
                compiled(Jax(), "jax", *given, plain=True),
                compiled(Jax(), "jax", *given),
                compiled(Torch(), "torch", *given),
            ]
        )
        what = f"{name}, {mode.replace('_', ' ')}, batch {batch_size}"
        print(f"| {what} | {plain / fast:.2g} | {plain / other:.2g} | {fast / other:.2g} |")


if __name__ == "__main__":
    torch.set_num_threads(CORES[PART])
    network(NETWORK) if NETWORK else layers()
