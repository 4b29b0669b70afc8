"""Spans of a PyTorch program, from `torch.profiler`."""

import re
from collections.abc import Callable, Sequence

import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, record_function

from fwbench.record.spans import CALL, Span

# On a CPU the profiler times the kernels of a compiled graph together. The name has a digest, which differs between
# sides.
_GRAPH = re.compile(r"## Call CompiledFxGraph \w+ ##$")


def recorded(call: Callable[[], None], calls: int, device: torch.device) -> list[Span]:
    """Make calls under the profiler; on a GPU its kernels are the operators, on a CPU what PyTorch dispatches."""
    on_gpu = device.type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with torch.profiler.profile(activities=activities, record_shapes=True) as profiled:
        for _ in range(calls):
            with record_function(CALL):
                call()
    spans = []
    for event in profiled.events() or ():
        by_gpu = event.device_type == DeviceType.CUDA
        marks = event.name == CALL
        if marks and by_gpu:
            # The profiler repeats the mark on the GPU.
            continue
        spans.append(
            Span(
                "call" if marks else "operator" if by_gpu == on_gpu else "other",
                f"GPU stream {event.device_resource_id}" if by_gpu else f"thread {event.thread}",
                _GRAPH.sub("Inductor's kernels", event.name).removeprefix("aten::"),
                event.time_range.start / 1e6,
                event.time_range.elapsed_us() / 1e6,
                _text(event.input_shapes or ()),
            )
        )
    return spans


def _text(shapes: Sequence[Sequence[int]]) -> str:
    """The shapes of the tensors among the arguments, as in `8x128, 128`."""
    return ", ".join("x".join(map(str, shape)) for shape in shapes if shape and all(isinstance(n, int) for n in shape))
