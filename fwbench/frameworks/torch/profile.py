"""Spans of a PyTorch program, from `torch.profiler`."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, record_function

from fwbench.record.spans import CALL, Span

# On a CPU the profiler times the kernels of a compiled graph together. The graph's name has a digest, which differs
# between the two sides of a comparison.
_GRAPH = re.compile(r"## Call CompiledFxGraph \w+ ##$")


def recorded(call: Callable[[], None], calls: int, device: torch.device) -> list[Span]:
    """Make calls under the profiler. The operators are kernels on a GPU, and what PyTorch dispatches on a CPU."""
    on_gpu = device.type == "cuda"
    # Shapes come from a call of their own: recording them moves large tensors to fresh memory at every call, which
    # doubled the time of element-wise operators on a CPU. An operator is found by its number among those of its name.
    shapes: dict[str, list[str]] = defaultdict(list)
    for event in _events(call, 1, on_gpu, record_shapes=True):
        shapes[event.name].append(_text(event.input_shapes or ()))
    seen: Counter[str] = Counter()
    spans = []
    for event in _events(call, calls, on_gpu):
        by_gpu = event.device_type == DeviceType.CUDA
        marks = event.name == CALL
        if marks and by_gpu:
            # The profiler repeats the mark on the GPU.
            continue
        if marks:
            seen.clear()
        known, number = shapes[event.name], seen[event.name]
        seen[event.name] += 1
        spans.append(
            Span(
                "call" if marks else "operator" if by_gpu == on_gpu else "other",
                f"GPU stream {event.device_resource_id}" if by_gpu else f"thread {event.thread}",
                _GRAPH.sub("Inductor's kernels", event.name).removeprefix("aten::"),
                event.time_range.start / 1e6,
                event.time_range.elapsed_us() / 1e6,
                known[number] if number < len(known) else "",
            )
        )
    return spans


def _events(call: Callable[[], None], calls: int, on_gpu: bool, record_shapes: bool = False) -> list[Any]:
    """The events of some calls, in the order in which they began."""
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with torch.profiler.profile(activities=activities, record_shapes=record_shapes) as profiled:
        for _ in range(calls):
            with record_function(CALL):
                call()
    return sorted(profiled.events() or (), key=lambda event: event.time_range.start)


def _text(shapes: Sequence[Sequence[int]]) -> str:
    """The shapes of the tensors among the arguments, as in `8x128, 128`."""
    return ", ".join("x".join(map(str, shape)) for shape in shapes if shape and all(isinstance(n, int) for n in shape))
