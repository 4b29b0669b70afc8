"""Modes of PyTorch in which a proof's passes run: they change or watch single operators."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten


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
