"""A training step that `torch.compile` turns into one program: loss, gradients, learning rate and optimizer."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import functional_call, grad_and_value

from fwbench.frameworks.contract import Ranks
from fwbench.frameworks.torch.training import TrainStep
from fwbench.frameworks.training import MOMENTUM, learning_rate
from fwbench.models import Model
from fwbench.models.weights import Weights
from fwbench.record.workload import Workload

# Adam's constants, PyTorch's defaults.
_BETAS, _EPSILON = (0.9, 0.999), 1e-8


class WholeStep(TrainStep):
    """A training step by one call of compiled code, as in the lane `jax`. Arguments are those of `TrainStep`.

    `torch.func` makes the gradients, as Dynamo would break the graph at `backward`. The updates are written out here,
    as Dynamo would also break the graph at an optimizer that takes these gradients.
    """

    def __init__(
        self, workload: Workload, model: Model, weights: Weights, horizon: int, ranks: Ranks | None = None
    ) -> None:
        super().__init__(workload, model, weights, horizon, ranks)
        self.rate = learning_rate(workload)
        self.trained: dict[str, Tensor] = {
            name: parameter for name, parameter in self.module.named_parameters() if parameter.requires_grad
        }
        self.moments = ("exp_avg", "exp_avg_sq") if workload.optimizer == "adam" else ("momentum_buffer",)
        for tensor in self.trained.values():
            self.optimizer.state[tensor] = {name: torch.zeros_like(tensor) for name in self.moments}
        # float64, as 1 - 0.999 has few digits in float32.
        self.done = torch.zeros((), dtype=torch.float64, device=self.device)
        # CUDA graphs of a program that writes to its arguments are recorded only if these keep their addresses.
        for held in self._held():
            torch._dynamo.mark_static_address(held, guard=False)
        self.settings["optimizer"] = f"{workload.optimizer}, compiled with the rest of the step"
        self.call = self._compiled(self._whole)

    def step(self) -> None:
        batch = (*self.inputs.values(), *self.targets)
        try:
            self.loss, hits = self.call(*batch)
        except Exception as error:
            self._blame(error, self.call, *batch)
            raise
        if self.fits:
            # Stacking copies: with CUDA graphs the next call writes to the same memory.
            self._curve.append(torch.stack([self.loss, hits]))

    def restart(self, weights: Mapping[str, NDArray[Any]], draw: int = 0) -> None:
        super().restart(weights, draw)
        self.done.zero_()

    def _held(self) -> list[Tensor]:
        return [*super()._held(), self.done]

    def _whole(self, *batch: Tensor) -> tuple[Tensor, Tensor]:
        """Make a step; return its loss, and the hits that `_loss` counts."""

        def loss(weights: Mapping[str, Tensor]) -> tuple[Tensor, Any]:
            # `torch.func` lets a network write only to tensors that were made in this function.
            buffers = {name: tensor.clone() for name, tensor in self.module.named_buffers()}
            state = {**weights, **buffers}
            value, hits = self._loss(
                *batch, network=lambda *args, **named: functional_call(self.module, state, args, named)
            )
            return value, (hits, buffers)

        with torch.no_grad():
            gradients, (value, (hits, buffers)) = grad_and_value(loss, has_aux=True)(self.trained)
            for name, tensor in self.module.named_buffers():
                tensor.copy_(buffers[name])
            self._update(list(self.trained.values()), [gradients[name] for name in self.trained])
        return value, hits

    def _update(self, weights: list[Tensor], gradients: list[Tensor]) -> None:
        """Update the weights by operations on lists of tensors, for which Inductor makes few kernels."""
        rate = self.rate * 0.5 * (1 + torch.cos(math.pi * self.done.clamp(max=self.horizon) / self.horizon))
        self.done.add_(1)
        first, *second = ([self.optimizer.state[tensor][name] for tensor in weights] for name in self.moments)
        if not second:
            torch._foreach_mul_(first, MOMENTUM)
            torch._foreach_add_(first, gradients)
            moves = first
        else:
            (squares,) = second
            torch._foreach_lerp_(first, gradients, 1 - _BETAS[0])
            torch._foreach_mul_(squares, _BETAS[1])
            torch._foreach_addcmul_(squares, gradients, gradients, 1 - _BETAS[1])
            rate = rate / (1 - _BETAS[0] ** self.done)
            below = list(torch._foreach_sqrt(squares))
            torch._foreach_mul_(below, _each((1 - _BETAS[1] ** self.done) ** -0.5, below))
            torch._foreach_add_(below, _EPSILON)
            moves = list(torch._foreach_div(first, below))
        torch._foreach_sub_(weights, torch._foreach_mul(moves, _each(rate, weights)))


def _each(number: Tensor, of: list[Tensor]) -> list[Tensor]:
    """A number for each of these tensors, in its format."""
    return [number.to(tensor.dtype) for tensor in of]
