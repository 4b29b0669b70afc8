"""Finds what a call changes in a module of PyTorch besides its weights and running statistics."""

from collections.abc import Mapping, Sized
from typing import Any

import torch
from torch import Tensor, nn

# By name, a mark of each value that a module holds, which changes when the value does.
State = Mapping[str, Any]


def state(module: nn.Module) -> State:
    """Marks of the module's buffers and of its parts' own attributes."""
    return {
        f"{path}.{name}".lstrip("."): _mark(value)
        for path, part in module.named_modules()
        for name, value in {**dict(part.named_buffers(recurse=False)), **vars(part)}.items()
        if name not in _known(part)
    }


def changed(before: State, after: State) -> tuple[str, ...]:
    """The names whose marks have changed, or that one state alone has."""
    return tuple(name for name in {**before, **after} if not _same(before.get(name), after.get(name)))


def _known(part: nn.Module) -> set[str]:
    """The names that a proof sets and compares, or that decide nothing."""
    counted = {"num_batches_tracked"} if getattr(part, "momentum", None) is not None else set()
    return {"training", "running_mean", "running_var", *counted}


def _mark(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    # A list or a dictionary may grow in place.
    return ("of length", len(value)) if isinstance(value, Sized) and not isinstance(value, str) else value


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return torch.equal(one, other)
    if isinstance(one, (int, float, str, tuple)):
        return type(one) is type(other) and one == other
    return one is other
