"""Points with inputs that random draws seldom give, so that a network takes the other side of a choice."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from fwbench.ext.proofs.case import TARGETS, Array, Case, Point
from fwbench.ext.proofs.choices import titled
from fwbench.models.inputs import Input

# Factors on floating-point inputs; on weights, whose sign decides, too; and on floating-point targets and the loss.
_SCALES = (1e-3, 1e4)
# Tiny weights reach the floor under a norm, which a bias keeps away from zero.
_FACTORS = (*(sign * factor for factor in (10.0, 1e2, 1e3, 1e4) for sign in (1, -1)), 1e-15)
_AMPLIFIED = (1e3, 1e6)

# The training calls that are made where a network keeps a state.
CALLS = 3

# Batch sizes besides the proof's own, in inference.
BATCHES = (1, 16)

# The number of lowest values that are put into inputs of whole numbers: padding and other special tokens come first.
_LOWEST = 4


# The most points over which an input takes the numbers of its range, and the most samples of a point. Targets have one
# point alone, as JAX compiles a program for each.
_SWEEPS, _SAMPLES = 64, 256


@dataclass(frozen=True)
class Steered(Point):
    """A point with drawn weights at which one input, or the targets, holds some other values.

    Attributes:
        steered: the input's name, or `TARGETS`.
        values: its values in a part of the last sample.
        whole: whether the values fill the whole sample.
    """

    steered: str = ""
    values: tuple[float, ...] = ()
    whole: bool = False

    def __str__(self) -> str:
        place = " in a whole sample" if self.whole else ""
        return f"{super().__str__()}, {titled(self.steered)} with {', '.join(f'{v:g}' for v in self.values)}{place}"

    def put(self, name: str, array: Array, given: Input | None) -> Array:
        """An array with the values in a part of its last sample: at the end, as padding is; or in all of it."""
        return self._put(array, given) if name == self.steered and given else array

    def _put(self, array: Array, given: Input) -> Array:
        steered = array.copy()
        last = steered[-1:] if steered.ndim > 1 else steered
        if self.whole or given.draw in ("normal", "uniform"):
            steered[-1:] = self.values[0]
        else:
            room = _room(array.shape)
            last[..., -room:] = np.resize(np.asarray(self.values, array.dtype), room)[::-1]
        return steered


@dataclass(frozen=True)
class Swept(Steered):
    """A point with drawn weights at which one input of whole numbers, or the targets, takes its numbers in turn.

    Attributes:
        first, last: its first and last number. If there is room for more, the lowest numbers follow the highest.
        batch_size: the batch size of all inputs.
    """

    first: int = 0
    last: int = 0
    batch_size: int = 2

    def __str__(self) -> str:
        return f"{Point.__str__(self)}, {titled(self.steered)} from {self.first} to {self.last}"

    def _put(self, array: Array, given: Input) -> Array:
        low, high = int(given.low), int(given.high)
        numbers = low + (self.first - low + np.arange(array.size)) % (high - low)
        return numbers.reshape(array.shape).astype(array.dtype)


@dataclass(frozen=True)
class Sized(Point):
    """A point with drawn weights and inputs of another size.

    Attributes:
        axes: values of the model's axes.
        batch_size: number of samples.
        words: the difference from the proof's other points.
    """

    axes: tuple[tuple[str, int], ...] = ()
    batch_size: int = 2
    words: str = ""

    def __str__(self) -> str:
        return f"{super().__str__()}, {self.words}"


def at(case: Case, point: Point) -> Case:
    """The case in which a point is evaluated."""
    if isinstance(point, Sized):
        return replace(case, axes=point.axes, batch_size=point.batch_size)
    if isinstance(point, Swept):
        case = replace(case, batch_size=point.batch_size)
    steered = isinstance(point, Steered) and point.steered == TARGETS
    return replace(case, wanted=point) if steered or (point.targets, point.loss) != (1, 1) else case


def constants(case: Case) -> Iterator[Steered]:
    """Points at which an input that is one number everywhere, such as a mask of ones, holds another in a part.

    At further points a whole sample of such an input, or of one with two numbers, is masked.
    """
    for name, given in case.model.inputs.items():
        if given.draw == "constant":
            yield Steered(steered=name, values=(0.0 if given.low else 1.0,))
            yield Steered(steered=name, values=(0.0 if given.low else 1.0,), whole=True)
        elif given.draw == "integers" and given.high - given.low == 2:
            yield Steered(steered=name, values=(given.low,), whole=True)


def sweep(case: Case, name: str, given: Input, room: int) -> tuple[list[Swept], int]:
    """Points at which an input of whole numbers, or the targets, takes each number of its range.

    Args:
        room: the most samples of all points together.

    Returns:
        The points, and the first number that none of them takes, which is `high` if they take all.
    """
    low, high = int(given.low), int(given.high)
    each = math.prod(given.sizes(case.sizes))
    samples = max(case.batch_size, min(-(-(high - low) // each), room))
    most = 1 if name == TARGETS else _SWEEPS
    size = max(case.batch_size, min(-(-samples // most), _SAMPLES))
    points = [
        Swept(steered=name, first=first, last=min(first + size * each, high) - 1, batch_size=size)
        for first in range(low, min(high, low + samples * each), size * each)[:most]
    ]
    return points, points[-1].last + 1


def sizes(case: Case) -> Iterator[Sized]:
    """Points with each value that the model declares for its axes, and with batch sizes other than the proof's."""
    for axis in case.model.axes:
        for value in case.model.declared(axis):
            axes = {**dict(case.axes), axis: value}
            if value != case.sizes[axis]:
                yield Sized(axes=tuple(axes.items()), batch_size=case.batch_size, words=f"{axis} of {value}")
    for batch_size in BATCHES:
        yield Sized(axes=case.axes, batch_size=batch_size, words=f"a batch of {batch_size}")


def candidates(case: Case, compared: Iterable[tuple[str, float]], *, amplified: bool) -> Iterator[Point]:
    """Further points that may take the other side of a choice.

    Args:
        compared: the inputs that a program compares with numbers, and the numbers.
        amplified: whether both sides take a factor on the loss.
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
    yield from (Point(factor=factor) for factor in _FACTORS)
    if amplified:
        yield from (Point(loss=factor) for factor in _AMPLIFIED)
    if case.model.targets and case.model.targets.dtype == "float32":
        yield from (Point(targets=factor) for factor in _AMPLIFIED)


def counts(number: float | None, most: int) -> Iterator[Point]:
    """Points after so many training calls that a counter reaches a number, one less, and one more.

    Args:
        most: the most training calls.
    """
    if number is not None and math.isfinite(number):
        yield from (Point(calls=int(number) + more) for more in (-1, 0, 1) if CALLS < number + more <= most)


def _whole(case: Case, name: str, given: Input, compared: Iterable[float]) -> Iterator[Steered]:
    """Points at which an input of whole numbers holds those it is compared with, the lowest ones and the highest."""
    low, high = int(given.low), int(given.high)
    values = dict.fromkeys((*compared, *range(low, min(low + _LOWEST, high)), high - 1))
    kept = [float(value) for value in values if low <= value < high]
    room = _room((case.batch_size, *given.sizes(case.sizes)))
    for begin in range(0, len(kept), room):
        yield Steered(steered=name, values=tuple(kept[begin : begin + room]))


def _room(shape: tuple[int, ...]) -> int:
    """The number of elements of the last axis that are set. The others stay as they are."""
    return max(1, shape[-1] // 2)
