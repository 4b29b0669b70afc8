# ruff: noqa: E402 (the threads are fixed before anything is imported that starts some)
"""What PyTorch's settings change on a CPU: time of a forward pass with each of them over that of the lane as it is.

    python docs/evidence/torch_cpu.py [--threads 2] [--compiled] [MODEL ...]
                                                                      # writes the table in lanes.md

The fastest of many calls, all candidates of a network in one process, by turns; float32. With one thread it is CPU
time, which other load changes little; with more it is time on the clock, and needs a machine with nothing else to do.
`--compiled` is of `torch.compile`, which takes half a minute for each candidate.
"""

import argparse
import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

PARSER = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
PARSER.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
PARSER.add_argument("--compiled", action="store_true")
PARSER.add_argument("models", nargs="*", metavar="MODEL")
OPTIONS = PARSER.parse_args()

# Before anything starts a thread, and as a worker of the lane has it.
os.environ["OMP_NUM_THREADS"] = str(OPTIONS.threads)

import torch
from torch import Tensor, nn

from fwbench.frameworks.torch.networks import load_weights, network, shapes
from fwbench.frameworks.torch.program import set_precision
from fwbench.machine import machine
from fwbench.models import CATALOG
from fwbench.models.weights import draw

PAGE = Path(__file__).resolve().with_name("lanes.md")
KIND = "compiled" if OPTIONS.compiled else "eager"
BEGIN, END = f"<!-- torch on a CPU, {KIND}: begin -->", f"<!-- torch on a CPU, {KIND}: end -->"

MODELS = ("resnet50", "mobilenet_v3_small", "efficientnet_b0", "vit_b_16")
# Beside the suite's: PyTorch's own encoder, as language models have it.
ENCODER = "nn.TransformerEncoder"
BATCHES = (1, 8)
ROUNDS, SECONDS = 7, 0.5  # at least so many calls of each candidate, and so long

clock = time.process_time if OPTIONS.threads == 1 else time.perf_counter

Call = Callable[[Tensor], Any]


@contextlib.contextmanager
def inference(x: Tensor) -> Iterator[Tensor]:
    """As the lane runs."""
    with torch.inference_mode():
        yield x


@contextlib.contextmanager
def no_grad(x: Tensor) -> Iterator[Tensor]:
    with torch.no_grad():
        yield x


@contextlib.contextmanager
def flushed(x: Tensor) -> Iterator[Tensor]:
    torch.set_flush_denormal(True)
    with torch.inference_mode():
        yield x
    torch.set_flush_denormal(False)


@contextlib.contextmanager
def without_onednn(x: Tensor) -> Iterator[Tensor]:
    with torch.inference_mode(), torch.backends.mkldnn.flags(enabled=False):
        yield x


@contextlib.contextmanager
def other_attention(x: Tensor) -> Iterator[Tensor]:
    torch.backends.mha.set_fastpath_enabled(not torch.backends.mha.get_fastpath_enabled())
    with torch.inference_mode():
        yield x
    torch.backends.mha.set_fastpath_enabled(not torch.backends.mha.get_fastpath_enabled())


def build(model: str) -> nn.Module:
    if model == ENCODER:
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(256, 4, 1024, activation="gelu", batch_first=True)
        return nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).eval()
    module = network(CATALOG[model], CATALOG[model].sizes())
    load_weights(module, draw(CATALOG[model], shapes(module), 0))
    return module.to(memory_format=torch.channels_last).eval()


def batch(model: str, size: int) -> Tensor:
    torch.manual_seed(0)
    if model == ENCODER:
        return torch.randn(size, 128, 256)
    return torch.randn(size, 3, 224, 224).to(memory_format=torch.channels_last)


def folded(module: nn.Module) -> nn.Module:
    """With batch normalisation folded into the convolutions before it: what freezing does."""
    from torch.fx.experimental.optimization import fuse

    return fuse(module)


def eager(model: str) -> dict[str, tuple[Any, Call]]:
    module = build(model)
    candidates: dict[str, tuple[Any, Call]] = {"as it is": (inference, module)}
    if model in MODELS:
        nchw = build(model).to(memory_format=torch.contiguous_format)
        candidates["without channels_last"] = (inference, lambda x: nchw(x.contiguous()))
    candidates["no_grad for inference_mode"] = (no_grad, module)
    candidates["flush_denormal"] = (flushed, module)
    candidates["without oneDNN"] = (without_onednn, module)
    if any(isinstance(part, nn.MultiheadAttention) for part in module.modules()):
        candidates["other attention path"] = (other_attention, module)
    if any(isinstance(part, nn.BatchNorm2d) for part in module.modules()):
        candidates["batch norms folded"] = (inference, folded(build(model)))
    return candidates


def compiled(model: str) -> dict[str, tuple[Any, Call]]:
    from torch._inductor import config

    module = build(model)

    def made(**options: Any) -> tuple[Any, Call]:
        torch._dynamo.reset()
        call = torch.compile(module, **options)
        x = {size: batch(model, size) for size in BATCHES}
        with torch.inference_mode():
            for size in BATCHES:
                call(x[size])
        return inference, call

    found = {"eager": (inference, module), "as it is": made(dynamic=False)}
    # Inductor's own matrix products are tried for frozen weights alone.
    for name, options in {
        "freezing": {"freezing": True},
        "freezing, max-autotune": {"freezing": True, "max_autotune": True},
    }.items():
        with config.patch(options):
            found[name] = made(dynamic=False)
    return found


def fastest(candidates: Mapping[str, tuple[Any, Call]], x: Tensor) -> dict[str, float]:
    """Seconds of each one's fastest call."""
    found = dict.fromkeys(candidates, float("inf"))
    until, rounds = time.perf_counter() + SECONDS * len(candidates), 0
    while rounds < ROUNDS or time.perf_counter() < until:
        for name, (context, call) in candidates.items():
            with context(x) as given:
                begun = clock()
                call(given)
                # The first round warms up.
                if rounds:
                    found[name] = min(found[name], clock() - begun)
        rounds += 1
    return found


def measure() -> dict[str, dict[str, float]]:
    """Seconds by network and batch, and candidate."""
    set_precision("fp32")
    torch.set_num_threads(OPTIONS.threads)
    found = {}
    for model in OPTIONS.models or (*MODELS, ENCODER):
        candidates = compiled(model) if OPTIONS.compiled else eager(model)
        for size in BATCHES:
            seconds = found[f"{model} b{size}"] = fastest(candidates, batch(model, size))
            print(json.dumps({f"{model} b{size}": seconds}), flush=True)
    return found


def table(found: Mapping[str, Mapping[str, float]]) -> list[str]:
    names = dict.fromkeys(name for row in found.values() for name in row if name != "as it is")
    lines = [f"| forward pass | as it is | {' | '.join(names)} |", f"|---|{'--:|' * (len(names) + 1)}"]
    for title, seconds in found.items():
        base = seconds["as it is"]
        ratios = [f"{seconds[name] / base:.2f}" if name in seconds else "" for name in names]
        lines.append(f"| {title} | {base * 1e3:.3g} ms | {' | '.join(ratios)} |")
    return lines


if __name__ == "__main__":
    title = f"torch {torch.__version__} on {machine().cpu}, threads: {OPTIONS.threads}."
    made = "\n".join((BEGIN, title, "", *table(measure()), END))
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(before + made + rest.partition(END)[2], encoding="utf-8")
