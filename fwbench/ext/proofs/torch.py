"""PyTorch's side of a proof."""

import contextlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.utils import clip_grad
from torch.utils._python_dispatch import _disable_current_modes

from fwbench.ext.proofs import changes
from fwbench.ext.proofs.case import (
    ADAM,
    CHANCE,
    MAIN,
    SGD,
    STEPS,
    Array,
    Backward,
    Case,
    Forward,
    Optimizer,
    Point,
    Side,
    Stepped,
)
from fwbench.ext.proofs.lengths import relative
from fwbench.ext.proofs.torch_modes import Draws, Expected, Rounded, Widened
from fwbench.ext.proofs.where.calls import Call, Module, recording
from fwbench.frameworks.faults import faults
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
from fwbench.frameworks.torch.stateful import named_leaves, placed_state
from fwbench.frameworks.torch.training import criterion
from fwbench.models import Model, stateful
from fwbench.models.weights import Shape, is_statistic

# A program's random draws have no effect if it gives the same output for this many keys.
_STEADY_KEYS = 128


class Hardsigmoid(torch.nn.Module):
    """The hard-sigmoid from its definition: relu6(x + 3) / 6.

    PyTorch's own layer computes the same, but its derivative is 1/6 rounded to float32 for every input (3e-8 off). That
    would be the largest error of a float64 proof.
    """

    def forward(self, x: Tensor) -> Tensor:
        return F.relu6(x + 3) / 6


class TorchSide(Side):
    """PyTorch's module, run eagerly."""

    def __init__(self, case: Case, *, channels_last: bool = True) -> None:
        """
        Args:
            channels_last: store images and their kernels as channels-last, and not in PyTorch's older default layout.
        """
        super().__init__(case)
        set_precision("fp32")
        self._device = torch.device("cuda" if case.device == "gpu" else "cpu")
        self._dtype: torch.dtype = getattr(torch, case.dtype)
        self._layout = torch.channels_last if channels_last else torch.contiguous_format
        self._images = {name for name, given in case.model.inputs.items() if given.image}
        self._criterion = case.amplified(criterion(case.model))

    @staticmethod
    def shapes(model: Model, sizes: Mapping[str, int]) -> dict[str, Shape]:
        return shapes(network(model, sizes))

    @staticmethod
    def buffers(model: Model, sizes: Mapping[str, int]) -> frozenset[str]:
        module = network(model, sizes)
        return frozenset(name for name, _ in module.named_buffers()) - shapes(module).keys()

    def losses(self, optimizer: Optimizer) -> Array:
        module, inputs = self._at(MAIN)
        descent: torch.optim.Optimizer
        if optimizer == "sgd":
            descent = torch.optim.SGD(module.parameters(), lr=SGD["learning_rate"], momentum=SGD["momentum"])
        else:
            descent = torch.optim.Adam(module.parameters(), lr=ADAM["learning_rate"])
        losses = []
        with self._arithmetic():
            for step in range(1, STEPS + 1):
                loss = self._loss(self._output(module, inputs))
                losses.append(loss.item())
                if step < STEPS:
                    descent.zero_grad()
                    _differentiate(loss)
                    descent.step()
        return np.array(losses)

    @staticmethod
    @contextlib.contextmanager
    def widened() -> Iterator[dict[str, None]]:
        changed: dict[str, None] = {}
        before, clipping = torch.get_default_dtype(), clip_grad._clip_grads_with_norm_

        def clip(parameters: Any, max_norm: float, total_norm: Tensor, foreach: bool | None = None) -> None:
            changed["clips in torch without the 1e-6 that clip_grad_norm_ adds to the norm"] = None
            gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
            torch._foreach_mul_(gradients, torch.clamp(max_norm / total_norm, max=1.0))

        torch.set_default_dtype(torch.float64)
        clip_grad._clip_grads_with_norm_ = clip  # type: ignore[assignment, unused-ignore]
        try:
            with Widened(changed):
                yield changed
        finally:
            torch.set_default_dtype(before)
            clip_grad._clip_grads_with_norm_ = clipping

    def may_draw(self, *, randomness: bool = True) -> bool:
        """True if a forward pass draws random numbers from PyTorch's generator, Python's or NumPy's."""
        before = _own_generators()
        with Draws() as drawing:  # type: ignore[no-untyped-call, unused-ignore]
            self.draws(1, randomness=randomness)
        return drawing.any or _own_generators() != before

    def is_steady(self) -> bool:
        if not self.may_draw(randomness=False):
            return True
        first, *others = self.draws(_STEADY_KEYS, randomness=False)
        return all(relative(first, other) <= CHANCE for other in others)

    def draws(self, keys: int, *, randomness: bool = True) -> Array:
        outputs = []
        module, inputs = self._at(MAIN, randomness=randomness)
        with torch.no_grad(), self._arithmetic(randomness=randomness):
            for key in range(keys):
                torch.manual_seed(key)
                outputs.append(_numpy(self._output(module, inputs)).ravel())
        return np.stack(outputs)

    def calls(self, point: Point = MAIN) -> list[Call]:
        module, inputs = self._at(point)
        canonical = shapes(module)
        named = (*module.named_parameters(), *module.named_buffers())
        names = {id(tensor): name for name, tensor in named if name in canonical}

        def weights(part: torch.nn.Module) -> frozenset[str]:
            return frozenset(
                names[id(tensor)] for tensor in (*part.parameters(), *part.buffers()) if id(tensor) in names
            )

        def modules(root: torch.nn.Module) -> dict[int, Module]:
            return {id(part): Module(path, weights(part)) for path, part in root.named_modules()}

        with torch.no_grad(), self._arithmetic(), recording(torch.nn.Module, modules, _on_host) as calls:
            self._output(module, inputs)
        return calls

    def stepped(self, calls: Sequence[int], point: Point = MAIN) -> Stepped:
        model, (module, inputs) = self.case.model, self._at(point)
        outputs, begin, program = [], 0, self._program(module)
        with torch.no_grad(), self._arithmetic():
            made = stateful.empty(model, "torch", self.case.batch_size, self.case.sizes)
            state = placed_state(model, made, self._device, self._dtype)
            for steps in calls:
                taken = stateful.part(model, inputs, slice(begin, begin + steps))
                positional, named = called_with(taken)
                with faults(f"the network of {model.name}"):
                    returned = program(*positional, **named, state=state)
                outputs.append(_numpy(select_output(model, returned, self.case.batch_size)).copy())
                state = stateful.divided(model, "torch", returned)[1]
                begin += steps
        return Stepped(outputs, dict(named_leaves(state)))

    def _forward(self, point: Point) -> Forward:
        module, inputs = self._at(point)
        with torch.no_grad(), self._arithmetic(rounded=bool(point.moved)):
            output = self._output(module, inputs)
            loss = self._loss(output).item() if shapes(module) else float("nan")
        return Forward(_numpy(output), loss, _statistics(module))

    def _backward(self, point: Point) -> tuple[Forward, Backward]:
        module, inputs = self._at(point)
        with self._arithmetic(rounded=bool(point.moved)):
            output = self._output(module, inputs)
            loss = self._loss(output)
            _differentiate(loss)
        gradients = {
            # Weights that are frozen, or that the output does not depend on, have no gradient.
            name: _numpy(torch.zeros_like(value) if value.grad is None else value.grad)
            for name, value in module.named_parameters()
            if value.is_floating_point()
        }
        return Forward(_numpy(output), loss.item(), _statistics(module)), Backward(loss.item(), gradients)

    def _at(self, point: Point, *, randomness: bool = False) -> tuple[torch.nn.Module, dict[str, Tensor]]:
        """A new module with a point's weights, so that no result affects another, and the point's inputs.

        With `randomness`, dropout stays on in training mode.
        """
        module = network(self.case.model, self.case.sizes)
        load_weights(module, self.case.weights(shapes(module), point))
        if self.case.dtype == "float64":
            # A function without weights may have buffers too.
            module.double()
        if self._images:
            module = module.to(memory_format=self._layout)
        for layer in list(module.modules()):
            for name, child in layer.named_children():
                if isinstance(child, torch.nn.Hardsigmoid) and self.case.dtype == "float64":
                    setattr(layer, name, Hardsigmoid())
        module.to(self._device)
        inputs, *others = (self._placed(point, draw) for draw in point.draws)
        if point.calls:
            self._train(module, point.calls, others)
        return self._in_mode(module, train=self.case.mode == "train", randomness=randomness), inputs

    def _placed(self, point: Point, draw: int) -> dict[str, Tensor]:
        """A draw of a point's inputs on the device."""
        inputs = place_inputs(self.case.model, self.case.inputs(point, draw), self._device, self._dtype)
        for name in self._images:
            inputs[name] = inputs[name].contiguous(memory_format=self._layout)
        return inputs

    def _in_mode(self, module: torch.nn.Module, *, train: bool, randomness: bool = False) -> torch.nn.Module:
        module.train(train)
        for layer in module.modules():
            if isinstance(layer, _DropoutNd):
                layer.training &= randomness or self.source is not None
        return module

    def _train(self, module: torch.nn.Module, calls: int, draws: Sequence[Mapping[str, Tensor]]) -> None:
        """Make training calls on these draws of inputs in turn, without the modes that watch or change a pass."""
        self._in_mode(module, train=True)
        with _disable_current_modes(), torch.no_grad(), self._arithmetic(train=True):
            for call in range(calls):
                self._returned(module, draws[call % len(draws)])

    def _changing(self) -> tuple[str, ...]:
        module, _ = self._at(MAIN)
        before = changes.state(module)
        self._train(module, 1, [self._placed(MAIN, 1)])
        return changes.changed(before, changes.state(module))

    def _program(self, module: torch.nn.Module) -> Callable[..., Any]:
        """The call of a module that gives this side's results: the module itself."""
        return module

    def _output(self, module: torch.nn.Module, inputs: Mapping[str, Tensor]) -> Tensor:
        returned = self._returned(self._program(module), inputs)
        output: Tensor = select_output(self.case.model, returned, self.case.batch_size)
        return output

    def _returned(self, program: Callable[..., Any], inputs: Mapping[str, Tensor]) -> Any:
        if self.source is not None:
            # Each pass draws the same numbers, which the source knows by the generator's state.
            torch.manual_seed(0)
        positional, named = called_with(inputs)
        return program(*positional, **named)

    def _loss(self, output: Tensor) -> Tensor:
        wanted = self.case.targets(tuple(output.shape))
        placed = () if wanted is None else (place(wanted, output.device, self._dtype),)
        loss: Tensor = self._criterion(output, *placed)
        return loss

    @contextlib.contextmanager
    def _arithmetic(self, *, randomness: bool = False, rounded: bool = False, train: bool = False) -> Iterator[None]:
        """A context with this case's number format for arrays that the network makes as it runs, such as positions.

        Args:
            randomness: keep random draws in training mode; else their expectations replace them.
            rounded: move every computed number by one unit in the last place.
            train: the network is in training mode, whatever the case's mode is.
        """
        before = torch.get_default_dtype()
        torch.set_default_dtype(self._dtype)
        try:
            with contextlib.ExitStack() as modes:
                if rounded:
                    modes.enter_context(Rounded())
                if self.source is not None:
                    modes.enter_context(self.source)
                elif not randomness and (train or self.case.mode == "train"):
                    modes.enter_context(Expected())  # type: ignore[no-untyped-call, unused-ignore]
                yield
        finally:
            torch.set_default_dtype(before)


def _own_generators() -> tuple[str, str]:
    """The states of Python's and NumPy's generators, from which the user's code may draw."""
    return repr(random.getstate()), repr(np.random.get_state())


def _differentiate(loss: Tensor) -> None:
    """Differentiate, unless every parameter is frozen."""
    if loss.requires_grad:
        torch.autograd.backward(loss)


def _statistics(module: torch.nn.Module) -> dict[str, Array]:
    return {name: _numpy(value) for name, value in module.named_buffers() if is_statistic(name)}


def _on_host(leaf: Any) -> Array | None:
    """A copy in float64, as in-place operations may change the tensor; None for anything but a real tensor."""
    return _numpy(leaf.double()).copy() if isinstance(leaf, Tensor) and not leaf.is_complex() else None


def _numpy(tensor: Tensor) -> Array:
    array: Array = tensor.detach().cpu().numpy()
    return array
