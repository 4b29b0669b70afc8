"""Data parallelism in PyTorch: one process per device, each with its slice of every batch; DDP averages gradients.

The terms are `torch.distributed`'s: DistributedDataParallel (DDP) runs the one-device program on each rank's slice and
averages the gradients by all-reduce while the backward pass goes on. Its options have their defaults, also for running
statistics: when a forward pass begins, every rank gets the first rank's.
"""

import contextlib
import datetime
import os
import re
import time
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, distributed
from torch.nn.parallel import DistributedDataParallel

from fwbench.frameworks.contract import Ranks

# The name of NCCL's kernels.
_KERNEL = re.compile(r"nccl(Dev)?Kernel")

# Seconds for the ranks' first exchange: nothing but this limit reveals that a port is closed to them.
_MEETING = 60.0

# Seconds for gloo's threads to note the end of the last operation, which they do after its result is ready. Ending the
# profiler earlier would crash the process.
_NOTED = 0.1


def join(ranks: Ranks) -> None:
    """Begin the ranks' process group: NCCL between GPUs, gloo between CPUs.

    Raises:
        OSError: the ranks do not find each other; one sentence.
    """
    backend = "gloo"
    if torch.cuda.is_available():
        torch.cuda.set_device(own_gpu(ranks))
        backend = "cpu:gloo,cuda:nccl"
    # torchrun sets this variable to say that another process listens at the address already.
    os.environ.pop("TORCHELASTIC_USE_AGENT_STORE", None)
    try:
        distributed.init_process_group(
            backend,
            init_method=f"tcp://{ranks.address}",
            rank=ranks.rank,
            world_size=ranks.size,
            timeout=datetime.timedelta(seconds=_MEETING),
        )
    except (distributed.DistError, RuntimeError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise OSError(f"PyTorch's process group does not come about at {ranks.address} ({reason})") from error


def own_gpu(ranks: Ranks) -> int:
    """The number of the rank's GPU among those that it sees: its own, or 0 if its launcher hides the others."""
    return ranks.local if torch.cuda.device_count() > 1 else 0


def leave() -> None:
    """End the process group."""
    if distributed.is_initialized():
        distributed.destroy_process_group()


def averaging(module: torch.nn.Module, ranks: Ranks | None, device: torch.device) -> torch.nn.Module:
    """The module whose backward pass averages gradients over the ranks; in a single process the module itself."""
    if ranks is None:
        return module
    return DistributedDataParallel(module, device_ids=[device.index] if device.type == "cuda" else None)


def apart(network: torch.nn.Module) -> contextlib.AbstractContextManager[None]:
    """A context in which a network's forward and backward pass do not communicate."""
    return network.no_sync() if isinstance(network, DistributedDataParallel) else contextlib.nullcontext()


def first(ranks: Ranks | None, tensors: Iterable[Tensor]) -> None:
    """Give every rank the first rank's values of these tensors."""
    if ranks is not None:
        for tensor in tensors:
            distributed.broadcast(tensor, 0)


def summed(ranks: Ranks | None, tensor: Tensor) -> Tensor:
    """The sum over all ranks, in every rank."""
    if ranks is not None:
        distributed.all_reduce(tensor)
    return tensor


def exchanged(
    step: Callable[[], None], wait: Callable[[], None], steps: int, device: torch.device
) -> tuple[float, str]:
    """Make steps under PyTorch's profiler; return the seconds in which ranks exchanged gradients, and the library.

    Counts the time of NCCL's kernels on a GPU, of gloo's operations on a CPU. Both include waits for the slowest rank.
    """
    kinds = [torch.profiler.ProfilerActivity.CPU]
    if device.type == "cuda":
        kinds.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=kinds) as profiled:
        for _ in range(steps):
            step()
            wait()
        time.sleep(_NOTED)
    if device.type == "cuda":
        spent = [event.self_device_time_total for event in profiled.events() or () if _KERNEL.match(event.name)]
        return sum(spent) / 1e6, "NCCL"
    spent = [event.time_range.elapsed_us() for event in profiled.events() or () if event.name.startswith("gloo:")]
    return sum(spent) / 1e6, "gloo"
