"""Builds a network without drawing the random weights that the canonical ones replace right after."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Deferred(TorchDispatchMode):
    """While entered, defers the in-place initialisation of parameters until an operator reads them.

    The network is built on the CPU, as its author built it: buffers that are in no state dict (position numbers, tables
    of relative positions) have their values, and a constructor may ask a tensor for its numbers or run a forward pass.
    On the meta device all of that fails. But drawing a hundred million random numbers only to replace them would take
    seconds. So operators such as `normal_` and `fill_` on a parameter are recorded, and carried out in their order once
    another operator reads the parameter's memory. A constructor therefore never sees a difference.
    """

    def __init__(self) -> None:
        super().__init__()
        # Operators by storage, as views of a parameter write to its memory too. The arguments keep the storage alive.
        self._pending: dict[int, list[tuple[Any, tuple[Any, ...], Mapping[str, Any]]]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        if len(tensors) == 1 and tensors[0] is args[0] and _overwrites(func):
            storage = _storage(args[0])
            if isinstance(args[0], torch.nn.Parameter) or storage in self._pending:
                self._pending.setdefault(storage, []).append((func, args, kwargs))
                return args[0]
        if not func.is_view:
            for tensor in tensors:
                self._carry_out(_storage(tensor))
        return func(*args, **kwargs)

    def finish(self, replaced: Iterable[Tensor]) -> None:
        """Carry out the remaining operators, except on tensors that get other values anyway."""
        for storage in self._pending.keys() - {_storage(tensor) for tensor in replaced}:
            self._carry_out(storage)

    def _carry_out(self, storage: int) -> None:
        with torch.no_grad():
            for func, args, kwargs in self._pending.pop(storage, ()):
                func(*args, **kwargs)


def _overwrites(func: Any) -> bool:
    """True if an operator changes the numbers of its first argument, rather than its shape."""
    first = func._schema.arguments[0].alias_info
    return first is not None and first.is_write and torch.Tag.inplace_view not in func.tags


def _storage(tensor: Tensor) -> int:
    # Only strided tensors have a storage.
    return tensor.untyped_storage()._cdata if tensor.layout is torch.strided else 0
