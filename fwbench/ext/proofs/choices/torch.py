"""Watches the choices that a network in PyTorch makes while it runs."""

import math
import sys
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from fwbench.ext.proofs.case import Point
from fwbench.ext.proofs.choices import COMPARISONS, Choice, Choices, Site, counting, named, site_of
from fwbench.ext.proofs.torch import TorchSide
from fwbench.ext.proofs.where.calls import is_installed

# The target number that PyTorch's losses ignore if the user names none.
_NO_INDEX = -100
_IGNORING = ("nll_loss_forward", "nll_loss2d_forward")


def taken(side: TorchSide, point: Point) -> Choices:
    """The sides of their choices that the network, its loss and their gradients take at a point.

    The side keeps the results of the pass.
    """
    watch, own, changing = Watch(named(side.case, point)), side._output, side.changing or ()

    def output(module: Any, inputs: Mapping[str, Tensor]) -> Tensor:
        buffers = {name: tensor for name, tensor in module.named_buffers() if name in changing}
        watch.inputs = {_storage(tensor): name for name, tensor in (*inputs.items(), *buffers.items())}
        return own(module, inputs)

    vars(side)["_output"] = output
    try:
        with watch:
            (side.backward if side.shapes(side.case.model, side.case.sizes) else side.forward)(point)
    finally:
        del vars(side)["_output"]
    module, inputs = side._at(point)
    if uses := counting.watched(module, changing):
        with torch.no_grad(), side._arithmetic():
            side._output(module, inputs)
        for choice, holds in counting.choices(uses):
            watch.choices.note(choice, holds, not holds)
    return watch.choices


class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call, unused-ignore]
    """Notes comparisons, masks and limits that the user's code asks for, directly or through PyTorch.

    Choices that an installed library makes by itself, or a constructor, are not noted.
    """

    def __init__(self, given: Mapping[str, NDArray[Any]]) -> None:
        super().__init__()  # type: ignore[no-untyped-call, unused-ignore]
        # Without arrays of one number everywhere, such as a mask of ones: many other tensors equal them.
        self._given = {name: array for name, array in given.items() if array.size and (array != array[0]).any()}
        self.inputs: Mapping[int, str] = {}
        self.choices = Choices()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__.removesuffix("_")
        kind = _KINDS.get(name)
        site = _site(name) if kind else None
        if kind and site:
            # Before the operator, which may change its operands in place.
            with torch.no_grad():
                for how, number, values, mask in kind(name, *args, **kwargs):
                    choice = Choice(site, how, number, None if values is None else self._name(values))
                    self.choices.note(choice, bool(mask.any()), not bool(mask.all()))
        return func(*args, **kwargs)

    def _name(self, tensor: Tensor) -> str | None:
        """The input, or the targets, whose numbers a tensor holds in their order, in any shape and type; else None."""
        if (name := self.inputs.get(_storage(tensor))) is not None:
            return name
        for name, array in self._given.items():
            if array.size == tensor.numel():
                flat = tensor.detach().cpu().numpy().ravel()
                if np.array_equal(flat, array.astype(flat.dtype)):
                    return name
        return None


# The choices of an operator: how, a number, the values that are compared, and the mask of the condition.
Made = Iterator[tuple[str, float | None, Tensor | None, Tensor]]


def _comparison(how: str, one: Tensor, other: Any) -> Made:
    number = None if isinstance(other, Tensor) and other.ndim else float(other)
    # Other comparisons only test whether numbers are finite.
    if other is not one and (number is None or math.isfinite(number)):
        yield how, number, one if number is not None else None, getattr(torch, how)(one, other)


def _mask(how: str, *args: Any, **kwargs: Any) -> Made:
    masks = args[:1] if how == "where" else args[1:2] if how == "masked_fill" else args[1]
    for mask in masks:
        if isinstance(mask, Tensor) and mask.dtype in (torch.bool, torch.uint8):
            yield "mask", None, mask, mask.bool()


def _limits(how: str, x: Tensor, *args: Any, **kwargs: Any) -> Made:
    names = {"clamp_min": ("min",), "clamp_max": ("max",)}.get(how, ("min", "max"))
    usual = {"min": -1.0, "max": 1.0} if how == "hardtanh" else {}
    limits = usual | dict(zip(names, args, strict=False)) | {name[:3]: value for name, value in kwargs.items()}
    for name, side, beyond in (("min", "below", torch.lt), ("max", "above", torch.gt)):
        limit = limits.get(name)
        number = None if isinstance(limit, Tensor) or limit is None else float(limit)
        if limit is not None and (number is None or math.isfinite(number)):
            yield side, number, None, beyond(x, limit)


def _larger(how: str, one: Tensor, other: Tensor) -> Made:
    x, limit = (other, one) if one.numel() == 1 else (one, other)
    side, beyond = ("below", torch.lt) if how == "maximum" else ("above", torch.gt)
    yield side, float(limit) if limit.numel() == 1 else None, None, beyond(x, limit)


def _bend(how: str, x: Tensor, targets: Tensor, reduction: Any = None, bend: float = 1.0, **kwargs: Any) -> Made:
    yield "above", float(bend), None, (x - targets).abs() > bend


def _padding(how: str, table: Tensor, numbers: Tensor, padding: int = -1, *args: Any) -> Made:
    if padding >= 0:
        yield "eq", float(padding), numbers, numbers == padding


def _ignored(how: str, x: Tensor, targets: Tensor, weight: Any, reduction: Any, index: int) -> Made:
    if index != _NO_INDEX:
        yield "eq", float(index), targets, targets == index


_KINDS: dict[str, Callable[..., Made]] = {
    **dict.fromkeys(COMPARISONS, _comparison),
    **dict.fromkeys(("where", "masked_fill", "index", "index_put"), _mask),
    **dict.fromkeys(("clamp", "clamp_min", "clamp_max", "hardtanh"), _limits),
    **dict.fromkeys(("maximum", "minimum"), _larger),
    **dict.fromkeys(("huber_loss", "smooth_l1_loss"), _bend),
    "embedding": _padding,
    **dict.fromkeys(_IGNORING, _ignored),
}


def _site(operator: str) -> Site | None:
    """The expression of the user's code that called PyTorch; None where a library or a constructor did."""
    calling: FrameType | None = sys._getframe(1)
    while calling and _between(calling):
        # With label smoothing, `cross_entropy` compares targets with -100 even if the user names no number to ignore.
        if calling.f_code.co_name == "cross_entropy" and operator not in _IGNORING:
            return None
        calling = calling.f_back
    if calling is None or _top(calling) == "fwbench" or is_installed(calling.f_code.co_filename):
        return None
    site = site_of(calling)
    while calling and _top(calling) != "fwbench":
        calling = calling.f_back
    return None if calling and calling.f_code.co_name == "_built" else site


def _between(frame: FrameType) -> bool:
    """True if a frame lies between the user's code and an operator."""
    return (
        _top(frame) == "torch" or _top(frame) in sys.stdlib_module_names or frame.f_code.co_name == "__torch_dispatch__"
    )


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _top(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]
