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
from torch.utils._python_dispatch import TorchDispatchMode

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
    relative,
)
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

aten = torch.ops.aten

# A program's random draws have no effect if it gives the same output for this many keys.
_STEADY_KEYS = 128


class Hardsigmoid(torch.nn.Module):
    """The hard-sigmoid from its definition: relu6(x + 3) / 6.

    PyTorch's own layer computes the same, but its derivative is 1/6 rounded to float32 for every input (3e-8 off). That
    would be the largest error of a float64 proof.
    """

    def forward(self, x: Tensor) -> Tensor:
        return F.relu6(x + 3) / 6


class Widened(TorchDispatchMode):  # type: ignore[no-untyped-call, unused-ignore]
    """Turns each cast to a lower format into a cast to float64. Autocast itself leaves float64 unchanged.

    Args:
        changed: gets an entry if there was a cast to 16 bits.
    """

    def __init__(self, changed: dict[str, None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call, unused-ignore]
        self._changed = changed

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        dtype: Any = kwargs.get("dtype")
        casts = func is aten._to_copy.default and dtype is not None and dtype != args[0].dtype
        if casts and dtype.is_floating_point:
            kwargs["dtype"] = torch.float64
            if dtype.itemsize < 4:
                self._changed["computes in float64 what torch casts to a format of 16 bits"] = None
        elif func is aten._amp_foreach_non_finite_check_and_unscale_.default:
            # GradScaler's scale must be float32. It is a power of two, so the cast rounds nothing.
            args = (*args[:2], args[2].float())
        return func(*args, **kwargs)


class Expected(TorchDispatchMode):  # type: ignore[no-untyped-call, unused-ignore]
    """Replaces each draw of a Bernoulli variable by its expectation.

    All implementations of dropout and stochastic depth multiply by a draw over its expectation, which is then 1. Does
    not work in `torch.inference_mode`, in which dropout arrives here as a single operator.
    """

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is aten.bernoulli_.float:
            # The default probability is 0.5.
            return args[0].fill_(args[1] if len(args) > 1 else (kwargs or {}).get("p", 0.5))
        if func is aten.bernoulli_.Tensor:
            return args[0].copy_(args[1])
        if func is aten.bernoulli.p:
            return torch.full_like(args[0], args[1])
        return args[0].clone() if func is aten.bernoulli.default else func(*args, **(kwargs or {}))


class Draws(TorchDispatchMode):  # type: ignore[no-untyped-call, unused-ignore]
    """Watches whether there is any operator that draws random numbers."""

    any = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        self.any |= torch.Tag.nondeterministic_seeded in func.tags
        return func(*args, **(kwargs or {}))


class Rounded(TorchDispatchMode):  # type: ignore[no-untyped-call, unused-ignore]
    """Moves every number that an operation computes by one unit in the last place, as its rounding may.

    Moving weights and inputs alone would not show the digits that 1 - y loses where a sigmoid y is almost 1.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call, unused-ignore]
        self._generator = torch.Generator().manual_seed(0)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        # Views and in-place operations return the numbers of other tensors.
        if any(argument.alias_info for argument in func._schema.returns):
            return result
        return torch.utils._pytree.tree_map_only(Tensor, self._moved, result)

    def _moved(self, tensor: Tensor) -> Tensor:
        if not tensor.is_floating_point():
            return tensor
        signs = torch.randint(0, 2, tensor.shape, generator=self._generator, dtype=tensor.dtype) * 2 - 1
        return tensor * (1 + torch.finfo(tensor.dtype).eps * signs.to(tensor.device))


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
        self._criterion = criterion(case.model)

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
        inputs = place_inputs(self.case.model, self.case.inputs(point), self._device, self._dtype)
        if self._images:
            module = module.to(memory_format=self._layout)
            for name in self._images:
                inputs[name] = inputs[name].contiguous(memory_format=self._layout)
        module.train(self.case.mode == "train")
        for layer in module.modules():
            if isinstance(layer, _DropoutNd):
                layer.training &= randomness or self.source is not None
            for name, child in layer.named_children():
                if isinstance(child, torch.nn.Hardsigmoid) and self.case.dtype == "float64":
                    setattr(layer, name, Hardsigmoid())
        return module.to(self._device), inputs

    def _program(self, module: torch.nn.Module) -> Callable[..., Any]:
        """The call of a module that gives this side's results: the module itself."""
        return module

    def _output(self, module: torch.nn.Module, inputs: Mapping[str, Tensor]) -> Tensor:
        if self.source is not None:
            # Each pass draws the same numbers, which the source knows by the generator's state.
            torch.manual_seed(0)
        positional, named = called_with(inputs)
        returned = self._program(module)(*positional, **named)
        output: Tensor = select_output(self.case.model, returned, self.case.batch_size)
        return output

    def _loss(self, output: Tensor) -> Tensor:
        wanted = self.case.targets(tuple(output.shape))
        return self._criterion(output, *(() if wanted is None else (place(wanted, output.device, self._dtype),)))

    @contextlib.contextmanager
    def _arithmetic(self, *, randomness: bool = False, rounded: bool = False) -> Iterator[None]:
        """A context with this case's number format for arrays that the network makes as it runs, such as positions.

        Args:
            randomness: keep random draws in training mode; else their expectations replace them.
            rounded: move every computed number by one unit in the last place.
        """
        before = torch.get_default_dtype()
        torch.set_default_dtype(self._dtype)
        try:
            with contextlib.ExitStack() as modes:
                if rounded:
                    modes.enter_context(Rounded())
                if self.source is not None:
                    modes.enter_context(self.source)
                elif not randomness and self.case.mode == "train":
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
