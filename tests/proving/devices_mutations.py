"""Mistakes planted in programs over several devices, which their proof must find (`tests.proving.devices`).

Each function takes the lane, `torch` or `jax`, and a patch that lasts as long as the program is built and runs.
"""

from typing import Any

import numpy as np
import pytest

Patch = pytest.MonkeyPatch


def sum_for_mean(lane: str, patch: Patch) -> None:
    if lane == "jax":
        from fwbench.frameworks.jax import parallel

        patch.setattr(parallel.Several, "mean", parallel.Several.sum)
    else:
        # Of a named function DistributedDataParallel checks the annotations.
        hook = lambda state, bucket: _sum(bucket)  # noqa: E731
        _around_ddp(patch, after=lambda network, ranks: network.register_comm_hook(None, hook))


def first_slice_everywhere(lane: str, patch: Patch) -> None:
    if lane == "jax":
        mine = "fwbench.frameworks.jax.parallel.Several._mine"
        patch.setattr(mine, lambda self: [(0, device) for device in self.local])
    else:
        placed = "fwbench.frameworks.torch.program.Placed.share"
        patch.setattr(placed, lambda self, array: array[: len(array) // self.ranks.size])


def synchronised_batch_statistics(lane: str, patch: Patch) -> None:
    if lane == "jax":
        from flax import nnx

        own = nnx.BatchNorm.__call__

        def everywhere(self: Any, *args: Any, **kwargs: Any) -> Any:
            self.axis_name = "devices"
            return own(self, *args, **kwargs)

        patch.setattr(nnx.BatchNorm, "__call__", everywhere)
    else:
        patch.setattr("torch.nn.BatchNorm2d.forward", _synchronised)


def one_parameter_forgotten(lane: str, patch: Patch) -> None:
    """One parameter's gradient stays each device's own."""
    if lane == "jax":
        from fwbench.frameworks.jax import parallel

        own = parallel.Several.mean

        def mean(self: Any, tree: Any) -> Any:
            loss, gradients = own(self, tree)
            return loss, [tree[1][0], *gradients[1:]]

        patch.setattr(parallel.Several, "mean", mean)
    else:
        import torch

        ddp: Any = torch.nn.parallel.DistributedDataParallel

        def forget(module: Any) -> None:
            name, _ = next(iter(module.named_parameters()))
            ddp._set_params_and_buffers_to_ignore_for_model(module, [name])

        _around_ddp(patch, before=forget)


def other_weights_on_a_rank(lane: str, patch: Patch) -> None:
    """Devices but the first start from slightly other weights."""
    if lane == "jax":
        import jax

        from fwbench.frameworks.jax import parallel

        own = parallel.Several.everywhere

        def everywhere(self: Any, tree: Any) -> Any:
            if 0 in self._numbers:
                return own(self, tree)
            return own(self, jax.tree.map(lambda a: a * (1 + 1e-3) if a.dtype == np.float64 else a, tree))

        patch.setattr(parallel.Several, "everywhere", everywhere)
    else:

        def spoil(network: Any, ranks: Any) -> None:
            # Afterwards, for DistributedDataParallel begins with the first rank's.
            for parameter in network.parameters():
                parameter.data.mul_(1 + 1e-3 * ranks.rank)

        _around_ddp(patch, after=spoil)


def averaged_running_statistics(lane: str, patch: Patch) -> None:
    if lane == "jax":
        from fwbench.frameworks.jax import parallel

        patch.setattr(parallel.Several, "first", parallel.Several.mean)
    else:
        from torch import distributed

        from fwbench.frameworks.torch.training import TrainStep

        own = TrainStep.step

        def step(self: Any) -> None:
            own(self)
            for buffer in self.module.buffers():
                if buffer.is_floating_point():
                    distributed.all_reduce(buffer)
                    buffer /= distributed.get_world_size()

        patch.setattr(TrainStep, "step", step)


MISTAKES = (
    sum_for_mean,
    first_slice_everywhere,
    one_parameter_forgotten,
    other_weights_on_a_rank,
)
# Of networks with batch normalisation.
STATISTICAL = (synchronised_batch_statistics, averaged_running_statistics)


def _around_ddp(patch: Patch, before: Any = None, after: Any = None) -> None:
    """Do something to a module before it is wrapped, or to what wraps it."""
    from fwbench.frameworks.torch import parallel, training

    own = parallel.averaging

    def averaging(module: Any, ranks: Any, device: Any) -> Any:
        if before and ranks:
            before(module)
        network = own(module, ranks, device)
        if after and ranks:
            after(network, ranks)
        return network

    patch.setattr(training, "averaging", averaging)


def _sum(bucket: Any) -> Any:
    """A hook of DistributedDataParallel's that leaves the gradients' sum."""
    from torch import distributed

    future = distributed.all_reduce(bucket.buffer(), async_op=True).get_future()
    return future.then(lambda done: done.value()[0])


def _synchronised(self: Any, x: Any) -> Any:
    """Batch normalisation in training mode over all ranks."""
    from torch import distributed
    from torch.distributed.nn import functional

    together: Any = functional

    def mean(of: Any) -> Any:
        return together.all_reduce(of.mean((0, 2, 3))) / distributed.get_world_size()

    def along(of: Any) -> Any:
        return of[None, :, None, None]

    centre = mean(x)
    variance = mean((x - along(centre)) ** 2)
    count = x.numel() // x.shape[1] * distributed.get_world_size()
    self.running_mean.lerp_(centre.detach(), self.momentum)
    self.running_var.lerp_(variance.detach() * count / (count - 1), self.momentum)
    return (x - along(centre)) / along(variance + self.eps).sqrt() * along(self.weight) + along(self.bias)
