"""The random numbers that a network draws in PyTorch."""

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from scipy import special
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from fwbench.ext.proofs.case import MAIN, Array
from fwbench.ext.proofs.draws import Draw
from fwbench.ext.proofs.torch import TorchSide, _numpy, _own_generators
from fwbench.models import ModelError

Given = Mapping[str, Any]


def _number(value: Any) -> Any:
    return _numpy(value.double()) if isinstance(value, Tensor) else value


def _probability(given: Given) -> Any:
    return _number(given.get("p", given["self"]))


def _normal(numbers: Array) -> Array:
    normal: Array = math.sqrt(2) * special.erfinv(2 * numbers - 1)
    return normal


# What operators make of uniform numbers, by their names without `_` and `_like`.
_KINDS: dict[str, Callable[[Array, Given], Array]] = {
    "rand": lambda numbers, given: numbers,
    "uniform": lambda numbers, given: given["from"] + (given["to"] - given["from"]) * numbers,
    "randn": lambda numbers, given: _normal(numbers),
    "normal": lambda numbers, given: _number(given["mean"]) + _number(given["std"]) * _normal(numbers),
    "bernoulli": lambda numbers, given: numbers < _probability(given),
    "exponential": lambda numbers, given: -np.log(numbers) / given["lambd"],
}


class Source(TorchDispatchMode):  # type: ignore[no-untyped-call, unused-ignore]
    """Notes the operators that draw from PyTorch's generator, or replaces the numbers that they draw.

    Attributes: see `fwbench.ext.proofs.draws.Source`.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call, unused-ignore]
        self.draws: list[Draw] = []
        self.numbers: Sequence[Array] | None = None
        # The place of each draw by the generator's state before it, which a checkpoint restores to draw again.
        self._places: dict[bytes, int] = {}
        # While draws are noted: tensors of uniform numbers by their address, with the place of their draw and what was
        # added to them; and the numbers with which they were compared, by place.
        self._uniform: dict[int, tuple[Tensor, int, float]] = {}
        self._rates: dict[int, set[float]] = {}

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """A context in which the draws are noted.

        Raises:
            ModelError: numbers come from Python's generator or NumPy's.
        """
        before = _own_generators()
        yield
        if _own_generators() != before:
            raise ModelError("numbers of Python's generator or NumPy's cannot be shared")
        self._uniform.clear()
        for place, rates in self._rates.items():
            if len(rates) == 1:
                self.draws[place] = replace(self.draws[place], probability=rates.pop())

    def runner(self, side: TorchSide) -> Callable[[], Array]:
        """A function that computes the side's output in training mode at the main point."""
        module, inputs = side._at(MAIN)

        def run() -> Array:
            with torch.no_grad(), side._arithmetic():
                return _numpy(side._output(module, inputs))

        return run

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kind = func.overloadpacket.__name__.removesuffix("_").removesuffix("_like")
        before = torch.get_rng_state() if torch.Tag.nondeterministic_seeded in func.tags else None
        result = func(*args, **(kwargs or {}))
        if before is None or torch.equal(before, torch.get_rng_state()):
            self._follow(kind, args, result)
            return result
        if kind not in _KINDS:
            raise ModelError(f"numbers of {func} cannot be shared")
        arguments = func._schema.arguments
        given = {argument.name: argument.default_value for argument in arguments if argument.has_default_value()}
        given |= dict(zip((argument.name for argument in arguments), args, strict=False)) | (dict(kwargs or {}))
        place = self._places.setdefault(_numpy(before).tobytes(), len(self._places))
        if self.numbers is None:
            if place == len(self.draws):
                probability = _probability(given) if kind == "bernoulli" else None
                self.draws.append(Draw(tuple(result.shape), kind, probability))
            if kind == "rand" or (kind == "uniform" and (given["from"], given["to"]) == (0, 1)):
                self._uniform[result.data_ptr()] = result, place, 0.0
            return result
        if place >= len(self.numbers) or self.numbers[place].size != result.numel():
            raise ModelError("the number or the size of a network's draws depends on its inputs")
        numbers = _KINDS[kind](self.numbers[place].reshape(tuple(result.shape)), given)
        return result.copy_(torch.from_numpy(np.ascontiguousarray(numbers)))

    def _follow(self, kind: str, args: tuple[Any, ...], result: Any) -> None:
        """Note the number with which uniform ones are compared: directly, or as in floor(u + number)."""
        of = self._uniform.get(args[0].data_ptr()) if self._uniform and args and isinstance(args[0], Tensor) else None
        if of is None:
            return
        _, place, added = of
        number = args[1] if len(args) > 1 and isinstance(args[1], float) else None
        if kind == "add" and number is not None:
            self._uniform[result.data_ptr()] = result, place, added + number
        elif kind in ("lt", "le", "gt", "ge") and number is not None:
            self._rates.setdefault(place, set()).add(number - added)
        elif kind == "floor":
            self._rates.setdefault(place, set()).add(1 - added)
