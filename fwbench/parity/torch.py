"""PyTorch's side of a proof."""

import contextlib
import copy
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from fwbench.frameworks.torch.networks import (
    called_with,
    load_weights,
    network,
    place,
    place_inputs,
    select_output,
    shapes,
)
from fwbench.frameworks.torch.program import set_precision
from fwbench.frameworks.torch.training import criterion
from fwbench.models import Model
from fwbench.models.weights import Shape
from fwbench.parity.case import ADAM, SGD, STEPS, Array, Backward, Case, Forward, Optimizer, Side, is_statistic

_DTYPE = {"float64": torch.float64, "float32": torch.float32}


class Hardsigmoid(torch.nn.Module):
    """The hard-sigmoid from its definition: relu6(x + 3) / 6.

    PyTorch's own computes the same, but its derivative is 1/6 rounded to float32 whatever the input (3e-8 off), which
    would be the largest error of a float64 proof.
    """

    def forward(self, x: Tensor) -> Tensor:
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
        device, dtype = torch.device("cuda" if case.device == "gpu" else "cpu"), _DTYPE[case.dtype]
        module = network(case.model, case.sizes)
        load_weights(module, case.weights(shapes(module)))
        if case.dtype == "float64":
            # Buffers of a function without weights too.
            module.double()
        inputs = place_inputs(case.model, case.inputs(), device, dtype)
        if any(given.image for given in case.model.inputs.values()):
            layout = torch.channels_last if channels_last else torch.contiguous_format
            module = module.to(memory_format=layout)
            for name, given in case.model.inputs.items():
                if given.image:
                    inputs[name] = inputs[name].contiguous(memory_format=layout)
        # Batch normalisation alone trains. All else that computes otherwise while training is random: dropout,
        # stochastic depth.
        for layer in module.eval().modules():
            if any(is_statistic(name) for name, _ in layer.named_buffers(recurse=False)):
                layer.training = case.mode == "train"
            for name, child in layer.named_children():
                if isinstance(child, torch.nn.Hardsigmoid) and case.dtype == "float64":
                    setattr(layer, name, Hardsigmoid())
        self._module = module.to(device)
        self._positional, self._named = called_with(inputs)
        self._criterion = criterion(case.model)
        self._dtype = dtype
        self._compiled = compiled

    @staticmethod
    def shapes(model: Model, sizes: Mapping[str, int]) -> dict[str, Shape]:
        return shapes(network(model, sizes))

    def losses(self, optimizer: Optimizer) -> Array:
        with self._arithmetic():
            return self._losses(optimizer)

    def _losses(self, optimizer: Optimizer) -> Array:
        module, call = self._fresh()
        descent: torch.optim.Optimizer
        if optimizer == "sgd":
            descent = torch.optim.SGD(module.parameters(), lr=SGD["learning_rate"], momentum=SGD["momentum"])
        else:
            descent = torch.optim.Adam(module.parameters(), lr=ADAM["learning_rate"])
        losses = []
        for step in range(1, STEPS + 1):
            loss = self._loss(self._output(call))
            losses.append(loss.item())
            if step < STEPS:
                descent.zero_grad()
                _backward(loss)
                descent.step()
        return np.array(losses)

    def _forward(self) -> Forward:
        module, call = self._fresh()
        with torch.inference_mode(), self._arithmetic():
            found = self._output(call)
            loss = self._loss(found).item() if shapes(module) else float("nan")
        statistics = {name: _numpy(value) for name, value in module.named_buffers() if is_statistic(name)}
        return Forward(_numpy(found), loss, statistics)

    def _backward(self) -> Backward:
        module, call = self._fresh()
        with self._arithmetic():
            loss = self._loss(self._output(call))
            _backward(loss)
        gradients = {
            # None of what is frozen, or takes no part in the output.
            name: _numpy(torch.zeros_like(value) if value.grad is None else value.grad)
            for name, value in module.named_parameters()
            if value.is_floating_point()
        }
        return Backward(loss.item(), gradients)

    def _output(self, call: Any) -> Tensor:
        found: Tensor = select_output(self.case.model, call(*self._positional, **self._named), self.case.batch_size)
        return found

    def _loss(self, found: Tensor) -> Tensor:
        wanted = self.case.targets(tuple(found.shape))
        return self._criterion(found, *(() if wanted is None else (place(wanted, found.device, self._dtype),)))

    @contextlib.contextmanager
    def _arithmetic(self) -> Iterator[None]:
        """The number format of what the network makes itself while it runs, such as numbers of positions."""
        before = torch.get_default_dtype()
        torch.set_default_dtype(self._dtype)
        try:
            yield
        finally:
            torch.set_default_dtype(before)

    def _fresh(self) -> tuple[torch.nn.Module, Any]:
        """A copy of the module to run and change, and the function that calls it."""
        module = copy.deepcopy(self._module)
        return module, torch.compile(module) if self._compiled else module


def _backward(loss: Tensor) -> None:
    """Differentiate, unless every parameter is frozen."""
    if loss.requires_grad:
        torch.autograd.backward(loss)


def _numpy(tensor: Tensor) -> Array:
    array: Array = tensor.detach().cpu().numpy()
    return array
