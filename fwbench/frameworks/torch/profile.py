"""Spans of a PyTorch program, from `torch.profiler`."""

import re
from collections.abc import Callable, Sequence

import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, record_function

from fwbench.record.spans import Span

_CALL = "fwbench: a call"

# On a CPU nothing shows what Inductor's kernels take, but all of a graph's together; its name is a digest.
_GRAPH = re.compile(r"## Call CompiledFxGraph \w+ ##$")


def recorded(step: Callable[[], None], wait: Callable[[], None], calls: int, device: torch.device) -> list[Span]:
    """Make calls under the profiler; on a GPU its kernels are the operators, on a CPU what PyTorch dispatches."""
    on_gpu = device.type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with torch.profiler.profile(activities=activities, record_shapes=True) as profiled:
        for _ in range(calls):
            with record_function(_CALL):
                step()
                wait()
    spans = []
    for event in profiled.events() or ():
        by_gpu = event.device_type == DeviceType.CUDA
        marks = event.name == _CALL
        if marks and by_gpu:
            # The mark again, as long as the GPU worked within it.
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
    """8x128, 128: the shapes of the tensors among the arguments."""
    return ", ".join("x".join(map(str, shape)) for shape in shapes if shape and all(isinstance(n, int) for n in shape))
