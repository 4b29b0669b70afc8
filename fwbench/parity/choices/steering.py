"""Points at which inputs hold what random draws seldom hold, so that a network takes the other side of a choice."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from fwbench.models.inputs import Input
from fwbench.parity.case import MAIN, Array, Case, Point
from fwbench.parity.choices import TARGETS, titled

# Factors on inputs of floating point.
_SCALES = (1e-3, 1e4)

# Of whole numbers so many of the lowest are put in: padding and other tokens with a meaning come first.
_LOWEST = 4


@dataclass(frozen=True)
class Steered(Point):
    """A point of drawn weights and of inputs of which one, or the targets, holds some other values.

    Attributes:
        steered: the input's name, or `TARGETS`.
        values: what it holds in a part of the last sample.
    """

    steered: str = ""
    values: tuple[float, ...] = ()

    def __str__(self) -> str:
        return f"{super().__str__()}, {titled(self.steered)} with {', '.join(f'{value:g}' for value in self.values)}"


@dataclass(frozen=True)
class Steerable(Case):
    """A case that can be asked at steered points.

    Attributes:
        wanted: what the targets hold in a part of the last sample; a program may hold targets as constants, so they
            belong to the case.
    """

    wanted: tuple[float, ...] = ()

    def inputs(self, point: Point = MAIN) -> dict[str, Array]:
        arrays = super().inputs(point)
        if isinstance(point, Steered) and point.steered in arrays:
            given = self.model.inputs[point.steered]
            arrays[point.steered] = _put(arrays[point.steered], given, point.values)
        return arrays

    def targets(self, output: tuple[int, ...]) -> Array | None:
        target = super().targets(output)
        given = self.model.targets
        return target if target is None or given is None else _put(target, given, self.wanted)


def constants(case: Case) -> Iterator[Steered]:
    """Points at which inputs that are one number everywhere, as a mask of ones, are another one in a part."""
    for name, given in case.model.inputs.items():
        if given.draw == "constant":
            yield Steered(steered=name, values=(0.0 if given.low else 1.0,))


def candidates(case: Case, compared: Iterable[tuple[str, float]]) -> Iterator[Point]:
    """Further points that may take the other side of a choice.

    Args:
        compared: the inputs that a program compares with numbers, and the numbers.
    """
    numbers = list(compared)
    for name, given in (*case.model.inputs.items(), (TARGETS, case.model.targets)):
        if given and given.draw == "integers":
            own = [number for each, number in numbers if each == name]
            yield from _whole(case, name, given, own)
        elif given and given.dtype == "float32" and given.draw != "constant" and name != TARGETS:
            yield Steered(steered=name, values=(0.0,))
    if any(given.dtype == "float32" for given in case.model.inputs.values()):
        yield from (Point(scale=scale) for scale in _SCALES)


def _whole(case: Case, name: str, given: Input, compared: Iterable[float]) -> Iterator[Steered]:
    """Points of an input of whole numbers: those it is compared with, the lowest ones and the highest one."""
    low, high = int(given.low), int(given.high)
    values = dict.fromkeys((*compared, *range(low, min(low + _LOWEST, high)), high - 1))
    kept = [float(value) for value in values if low <= value < high]
    room = _room((case.batch_size, *given.sizes(case.sizes)))
    for begin in range(0, len(kept), room):
        yield Steered(steered=name, values=tuple(kept[begin : begin + room]))


def _room(shape: tuple[int, ...]) -> int:
    """How many elements of the last axis are set, so that others stay as they are."""
    return max(1, shape[-1] // 2)


def _put(array: Array, given: Input, values: tuple[float, ...]) -> Array:
    """An array with values in a part of its last sample: at the end, as padding is; of random numbers in all of it."""
    if not values:
        return array
    steered = array.copy()
    last = steered[-1:] if steered.ndim > 1 else steered
    if given.draw in ("normal", "uniform"):
        steered[-1:] = values[0]
    else:
        room = _room(array.shape)
        last[..., -room:] = np.resize(np.asarray(values, array.dtype), room)[::-1]
    return steered
