"""A call of a network with a state in PyTorch: a prompt (`prefill`), or one further step (`decode`)."""

import operator
from collections.abc import Mapping
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils import _pytree as pytree

from fwbench.frameworks.faults import faults
from fwbench.frameworks.torch.networks import called_with
from fwbench.frameworks.torch.program import Inference
from fwbench.frameworks.torch.stateful import placed_state
from fwbench.models import Model, stateful
from fwbench.models.inputs import too_large
from fwbench.models.weights import Weights
from fwbench.record.measurement import Metric
from fwbench.record.workload import Workload

# Largest distance of two results of the same call, in units in the last place.
_ROUNDINGS = 64


class Stateful(Inference):
    """Every call starts from the same state: the empty one, or the one that the steps before have filled.

    A network may write to its state in place. Tensors that a further call would write again, such as a cache, stay; all
    others, such as a position, are restored after each call. Arguments are those of `Inference`.
    """

    # The state belongs to the batch of the build.
    rotate = None  # type: ignore[assignment]

    def __init__(self, workload: Workload, model: Model, weights: Weights) -> None:
        super().__init__(workload, model, weights)
        self.workload = workload
        filling = stateful.filling(model, workload)
        self.filling = None if filling is None else self._placed(filling)
        # Outside of inference mode, as the batch: compiled code distinguishes tensors of that mode.
        with torch.no_grad():
            self.state = self._initial()
            self._prepare()

    def _initial(self) -> Any:
        """The state that every call starts from."""
        sizes = stateful.sizes(self.model, self.workload)
        made = stateful.empty(self.model, "torch", self.workload.batch_size, sizes)
        state = placed_state(self.model, made, self.device, self.dtype)
        return state if self.filling is None else self._called(self.filling, state)[1]

    def _called(self, inputs: Mapping[str, Tensor], state: Any) -> tuple[Any, Any]:
        """The output and the state of an eager call."""
        positional, named = called_with(inputs)
        with faults(f"the network of {self.model.name}", too_large(self.model.inputs)):
            returned = self.module(*positional, **named, state=state)
        return stateful.divided(self.model, "torch", returned)

    def _prepare(self) -> None:
        """Find by two calls the tensors of the state that must be restored after each call."""
        self.leaves, self.structure = pytree.tree_flatten(self.state)
        first = [_copied(leaf) for leaf in self.leaves]
        self._called(self.inputs, self.state)
        after = pytree.tree_leaves(self.state)
        # A network may put other arrays into the state's lists and dicts. Each call then gets new lists and dicts.
        self.replaces = len(after) != len(self.leaves) or any(map(operator.is_not, after, self.leaves))
        once = [_copied(leaf) for leaf in self.leaves]
        arrays = [each for each in zip(self.leaves, first, once, strict=True) if isinstance(each[0], Tensor)]
        written = [(leaf, start) for leaf, start, changed in arrays if not _same(start, changed)]
        self.restored = [(leaf, start) for leaf, start in written if not leaf.is_floating_point()]
        self._restore()
        self._called(self.inputs, self._given())
        self.restored += [
            (leaf, start) for leaf, start, changed in arrays if leaf.is_floating_point() and not _same(leaf, changed)
        ]
        self._restore()
        self.settings["state"] = "updated in place" if len(written) > len(self.restored) else "returned anew"
        if self.compiles:
            for tensor in self._arrays():
                # CUDA graphs of a program that writes to its arguments are recorded only if these keep their addresses.
                torch._dynamo.mark_static_address(tensor, guard=False)

    def _given(self) -> Any:
        """The state, in lists and dicts that no call has changed."""
        return pytree.tree_unflatten(self.leaves, self.structure) if self.replaces else self.state

    def _restore(self) -> None:
        for leaf, first in self.restored:
            leaf.copy_(first)

    def step(self) -> None:
        state = self._given()
        positional, named = next(self.arguments)
        try:
            self.returned = self.call(*positional, **named, state=state)
        except Exception as error:
            self._blame(error, self.call, *positional, **named, state=state)
            raise
        self._restore()

    def restart(self, weights: Mapping[str, NDArray[Any]], draw: int = 0) -> None:
        super().restart(weights, draw)
        with torch.no_grad():
            filled = pytree.tree_leaves(self._initial())
            for leaf, other in zip(self.leaves, filled, strict=True):
                if isinstance(leaf, Tensor):
                    leaf.copy_(other)
            for leaf, start in self.restored:
                start.copy_(leaf)

    def state_memory(self) -> Metric:
        return Metric(float(sum(tensor.nbytes for tensor in self._arrays())), "the arrays that a call takes")

    def _arrays(self) -> list[Tensor]:
        return [leaf for leaf in self.leaves if isinstance(leaf, Tensor)]

    def _held(self) -> list[Tensor]:
        return [*super()._held(), *self._arrays()]


def _copied(leaf: Any) -> Any:
    return leaf.clone() if isinstance(leaf, Tensor) else leaf


def _same(one: Tensor, other: Tensor) -> bool:
    """True if two arrays are equal but for rounding: a GPU may round a sum differently at each call."""
    if not one.is_floating_point():
        return torch.equal(one, other)
    unit = torch.finfo(one.dtype).eps
    return bool(torch.dist(one.double(), other.double()) <= _ROUNDINGS * unit * torch.linalg.vector_norm(one.double()))
