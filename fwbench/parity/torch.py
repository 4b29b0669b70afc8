"""PyTorch's side of a proof."""

import copy
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F
from torchvision.ops import StochasticDepth

from fwbench.frameworks.torch.networks import load_weights, network, shapes
from fwbench.frameworks.torch.program import set_precision
from fwbench.parity.case import ADAM, SGD, STEPS, Array, Backward, Case, Forward, Optimizer, Side, is_statistic


class Hardsigmoid(torch.nn.Module):
    """The hard-sigmoid from its definition: relu6(x + 3) / 6.

    PyTorch's own computes the same, but its derivative is 1/6 rounded to float32 whatever the input (3e-8 off), which
    would be the largest error of a float64 proof.
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu6(x + 3) / 6


class TorchSide(Side):
    """PyTorch's module, run eagerly or through `torch.compile`."""

    def __init__(self, case: Case, *, compiled: bool = False, channels_last: bool = True) -> None:
        """
        Args:
            compiled: run through `torch.compile`.
            channels_last: the memory layout of images and their kernels; else PyTorch's older default.
        """
        super().__init__(case)
        set_precision("fp32")
        device = torch.device("cuda" if case.device == "gpu" else "cpu")
        module = network(case.row, case.sizes)
        load_weights(module, case.weights(shapes(module)))
        x = torch.from_numpy(case.inputs()).to(device)
        if x.ndim == 4:
            layout = torch.channels_last if channels_last else torch.contiguous_format
            x = x.permute(0, 3, 1, 2).contiguous(memory_format=layout)
            module = module.to(memory_format=layout)
        for layer in list(module.modules()):
            if isinstance(layer, (torch.nn.Dropout, StochasticDepth)):
                layer.p = 0.0
            for name, child in layer.named_children():
                if isinstance(child, torch.nn.Hardsigmoid) and case.dtype == "float64":
                    setattr(layer, name, Hardsigmoid())
        self._module = module.to(device).train(case.mode == "train")
        self._x = x
        self._labels = torch.from_numpy(case.labels()).long().to(device)
        self._compiled = compiled

    def losses(self, optimizer: Optimizer) -> Array:
        module, call = self._fresh()
        descent: torch.optim.Optimizer
        if optimizer == "sgd":
            descent = torch.optim.SGD(module.parameters(), lr=SGD["learning_rate"], momentum=SGD["momentum"])
        else:
            descent = torch.optim.Adam(module.parameters(), lr=ADAM["learning_rate"])
        losses = []
        for step in range(1, STEPS + 1):
            loss = F.cross_entropy(call(self._x), self._labels)
            losses.append(loss.item())
            if step < STEPS:
                descent.zero_grad()
                torch.autograd.backward(loss)
                descent.step()
        return np.array(losses)

    def _forward(self) -> Forward:
        module, call = self._fresh()
        with torch.inference_mode():
            logits = call(self._x)
            loss = F.cross_entropy(logits, self._labels)
        statistics = {name: _numpy(value) for name, value in module.state_dict().items() if is_statistic(name)}
        return Forward(_numpy(logits), loss.item(), statistics)

    def _backward(self) -> Backward:
        module, call = self._fresh()
        loss = F.cross_entropy(call(self._x), self._labels)
        torch.autograd.backward(loss)
        return Backward(loss.item(), {name: _numpy(value.grad) for name, value in module.named_parameters()})

    def _fresh(self) -> tuple[torch.nn.Module, Any]:
        """A copy of the module to run and change, and the function that calls it."""
        module = copy.deepcopy(self._module)
        return module, torch.compile(module) if self._compiled else module


def _numpy(tensor: torch.Tensor | None) -> Array:
    if tensor is None:
        raise AssertionError("a parameter took no part in the loss, so it has no gradient")
    array: Array = tensor.detach().cpu().numpy()
    return array
