"""Cases and sides of a proof: a case is one model on one batch in one mode and number format; a side computes it."""

import contextlib
import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fwbench import frameworks
from fwbench.ext.proofs import checkpoint, elsewhere, lengths
from fwbench.ext.proofs.where.calls import Call
from fwbench.frameworks.training import targets
from fwbench.models import Model
from fwbench.models.importing import ModelError, load
from fwbench.models.inputs import Input
from fwbench.models.inputs import draw as draw_inputs
from fwbench.models.weights import Shape, Weights, draw, is_statistic
from fwbench.record.lanes import LANES
from fwbench.record.workload import Workload

Array = NDArray[Any]
Mode = Literal["eval", "train"]
Device = Literal["cpu", "gpu"]
Optimizer = Literal["sgd", "adam"]
Draw = Literal["drawn", "initial", "perturbed", "small", "unit", "checkpoint"]

MODES: tuple[Mode, ...] = ("eval", "train")

STEPS = 5
# The settings that users choose. The frameworks' defaults for others agree: Adam's 0.9, 0.999 and 1e-8.
SGD = {"learning_rate": 1e-2, "momentum": 0.9}
ADAM = {"learning_rate": 1e-4}

# The most work that all further passes of a network may take: weights times numbers of a sample times samples.
_ROOM = 2**28

# Two outputs of one program with a larger relative difference have drawn different random numbers.
CHANCE = 1e-9


@dataclass(frozen=True)
class Point:
    """A point at which the two functions are compared: the weights, and the scale of the inputs.

    Attributes:
        weights: `drawn`, the canonical draw; `initial`, the values that the reference's constructor sets; `perturbed`,
            the initial ones moved far away; `unit`, standard-normal ones; `small`, an eighth of the drawn ones;
            `checkpoint`, those of the file that the model names.
        scale: factor on floating-point inputs.
        moved: 0, or the seed of a perturbation that moves every weight and input by one unit in the last place.
        factor: factor on the weights, but not on running statistics.
        targets: factor on floating-point targets.
        loss: factor on the loss, and so on all gradients.
        calls: training calls on other inputs that come first. They change the network's state, and no weights.
    """

    weights: Draw = "drawn"
    scale: float = 1.0
    moved: int = 0
    factor: float = 1.0
    targets: float = 1.0
    loss: float = 1.0
    calls: int = 0

    def __str__(self) -> str:
        factors = {"": self.factor, ", inputs": self.scale, ", targets": self.targets, ", loss": self.loss}
        said = (f"{words} times {factor:g}" for words, factor in factors.items() if factor != 1)
        after = f", after {self.calls} training call{'s' * (self.calls > 1)}" if self.calls else ""
        return f"{self.weights} weights{''.join(said)}{after}"

    @property
    def draws(self) -> range:
        """The draws of inputs: the pass's own, 0, and up to four that training calls before it take in turn."""
        return range(1 + min(self.calls, 4))

    def put(self, name: str, array: Array, given: Input | None) -> Array:
        """The array of an input, or of `TARGETS`, with the values that it holds at this point."""
        return array


# The name of a loss's targets, beside those of the inputs.
TARGETS = "targets"

# The point at which every quantity is compared, trajectories included.
MAIN = Point()


@dataclass(frozen=True)
class Case:
    """One model in one mode and one number format, without randomness. It is built once and evaluated at many points.

    Attributes:
        model: the model that is built.
        mode: whether the network is in inference mode (`eval`) or in training mode (`train`).
        dtype: number format of weights, floating-point inputs and all arithmetic.
        axes: values of the model's axes that differ from the first ones.
        batch_size: number of samples; at least 2 where a batch needs a variance.
        device: `cpu` or `gpu`.
        wanted: the point that sets the targets and the loss's factor. They belong to the case, as a program may hold
            them as constants.
    """

    model: Model
    mode: Mode = "eval"
    dtype: Literal["float64", "float32"] = "float64"
    axes: tuple[tuple[str, int], ...] = ()
    batch_size: int = 2
    device: Device = "cpu"
    wanted: Point = MAIN

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes of the model's axes by name."""
        return self.model.sizes(self.axes)

    @property
    def steps(self) -> int:
        """The length of the sequence, for a model with a state."""
        return self.sizes[self.model.sequence]

    def inputs(self, point: Point = MAIN, draw: int = 0) -> dict[str, Array]:
        """Samples of a draw by the input's name, of shape (batch_size, *sizes); images are NHWC."""
        cast = self._cast(draw_inputs(self.model.inputs, self.batch_size, draw, self.sizes), point.scale, point.moved)
        return {name: point.put(name, array, self.model.inputs[name]) for name, array in cast.items()}

    def targets(self, output: tuple[int, ...]) -> Array | None:
        """The targets of the loss for an output of this shape; None if the loss takes none."""
        workload = Workload(self.model.reference, self.model.name, "train_step", self.batch_size, axes=self.axes)
        target = targets(workload, self.model, output)
        if target is None:
            return None
        return self.wanted.put(TARGETS, self._cast({"": target}, self.wanted.targets)[""], self.model.targets)

    def amplified(self, criterion: Callable[..., Any]) -> Callable[..., Any]:
        """The loss, which a framework's function computes, with this case's factor."""
        factor = self.wanted.loss
        return criterion if factor == 1 else lambda *arguments: factor * criterion(*arguments)

    def weights(self, shapes: Mapping[str, Shape], point: Point = MAIN) -> dict[str, Array]:
        """The weights of a point in this case's number format.

        Raises:
            InitialUnknownError: the reference's framework cannot report its initial values.
            ModelError: the checkpoint does not fit.
        """
        weights = _weights(self.model, self.axes, point.weights, tuple(sorted(shapes.items())))
        return {
            name: array if point.factor == 1 or is_statistic(name) else array * array.dtype.type(point.factor)
            for name, array in self._cast(weights, moved=point.moved).items()
        }

    def _cast(self, arrays: Mapping[str, Array], scale: float = 1.0, moved: int = 0) -> dict[str, Array]:
        """Floating-point arrays in this case's number format, scaled and moved; whole numbers unchanged."""
        rng = np.random.default_rng(moved)
        cast = {}
        for name in sorted(arrays):
            array = arrays[name]
            if np.issubdtype(array.dtype, np.floating):
                array = array.astype(self.dtype)
                if scale != 1:
                    array *= scale
                if moved:
                    signs = rng.integers(0, 2, array.shape, np.int8) * 2 - 1
                    array *= 1 + np.finfo(self.dtype).eps * signs.astype(self.dtype)
            cast[name] = array
        return {name: cast[name] for name in arrays}


class InitialUnknownError(ModelError):
    """The reference's framework cannot report the values that its network starts from."""


@dataclass(frozen=True)
class Forward:
    """The output, batch first, its loss, and the running statistics after the call by name.

    The loss is NaN if the model has no weights to train. `state` holds what else a side hands on to the next call.
    """

    output: Array
    loss: float
    statistics: dict[str, Array]
    state: dict[str, Array] = field(default_factory=dict)


@dataclass(frozen=True)
class Backward:
    """The loss and its gradients with respect to all parameters, with canonical names and layouts."""

    loss: float
    gradients: dict[str, Array]


@dataclass(frozen=True)
class Rounding:
    """The change in each result of a side when every weight and input moves by one unit in the last place of float64.

    Each is the absolute length (L2 norm) of a difference; gradients and statistics are by name.
    """

    output: float
    loss: float
    statistics: Mapping[str, float]
    gradients: Mapping[str, float]


@dataclass(frozen=True)
class Stepped:
    """A sequence that was computed in several calls.

    Attributes:
        outputs: the output of each call.
        state: the arrays of the state after the last call, by their place in it.
    """

    outputs: list[Array]
    state: dict[str, Array]


class Side(ABC):
    """One framework's results for a case at any point. No result depends on another.

    Outputs and losses are kept for all points, gradients for the last one alone: ViT-B/16's take 0.7 GB in float64.

    Attributes:
        source: the random numbers that it shares with another side (`fwbench.ext.proofs.draws.Source`), if it does.
    """

    source: Any = None

    def __init__(self, case: Case) -> None:
        self.case = case
        self._forward_passes: dict[Point, Forward] = {}
        self._backward_passes: dict[Point, Backward] = {}
        self._roundings: dict[Point, Rounding] = {}

    @staticmethod
    @abstractmethod
    def shapes(model: Model, sizes: Mapping[str, int]) -> dict[str, Shape]:
        """Canonical name to canonical shape of every weight and running statistic.

        Raises:
            ModelError: the framework's network cannot be built as the model describes it.
        """

    @staticmethod
    def buffers(model: Model, sizes: Mapping[str, int]) -> frozenset[str]:
        """The names of the arrays that the network holds besides its weights; by default none is known."""
        return frozenset()

    @functools.cached_property
    def _size(self) -> int:
        """The number of the network's weights."""
        return sum(map(math.prod, self.shapes(self.case.model, self.case.sizes).values()))

    @functools.cached_property
    def room(self) -> int:
        """The number of samples that all further passes of this network may have, so that they take seconds at most."""
        numbers = sum(array[0].size for array in self.case.inputs().values())
        return _ROOM // max(1, int(numbers) * self._size)

    def forget(self) -> None:
        """Free all stored results."""
        for answers in (self._forward_passes, self._backward_passes, self._roundings):
            answers.clear()

    def forward(self, point: Point = MAIN) -> Forward:
        """One forward pass without gradients."""
        if point not in self._forward_passes:
            self._forward_passes[point] = self._forward(point)
        return self._forward_passes[point]

    def backward(self, point: Point = MAIN) -> Backward:
        """One forward and one backward pass."""
        if point not in self._backward_passes:
            # Freed before the new ones exist: there is no room for both.
            self._backward_passes.clear()
            self._forward_passes[point], self._backward_passes[point] = self._backward(point)
        return self._backward_passes[point]

    def rounding(self, point: Point = MAIN) -> Rounding:
        """The change that rounding alone makes in this side's results at a point."""
        if point not in self._roundings:
            elsewhere, trained = replace(point, moved=1), self._size > 0
            gradients = self.backward(point).gradients if trained else {}
            moved, backward = self._backward(elsewhere) if trained else (self._forward(elsewhere), Backward(0.0, {}))
            forward = self.forward(point)
            self._roundings[point] = Rounding(
                lengths.distance(moved.output, forward.output),
                abs(moved.loss - forward.loss),
                {name: lengths.distance(moved.statistics[name], array) for name, array in forward.statistics.items()},
                {name: lengths.distance(backward.gradients[name], array) for name, array in gradients.items()},
            )
        return self._roundings[point]

    def trains_as_it_infers(self) -> bool:
        """True if the results of a case in training mode equal those in inference mode, to the last bit."""
        return self.equals(type(self)(replace(self.case, mode="eval")), MAIN)

    def equals(self, other: "Side", point: Point) -> bool:
        """True if output and gradients at a point equal another side's, to the last bit."""
        ours, theirs = self.backward(point).gradients, other.backward(point).gradients
        pairs = [(self.forward(point).output, other.forward(point).output), *((ours[n], theirs[n]) for n in ours)]
        return all(np.array_equal(*pair, equal_nan=True) for pair in pairs)

    def calls(self, point: Point = MAIN) -> list[Call]:
        """The calls of modules in one forward pass, operator by operator, in the order in which they end; or none."""
        return []

    def stepped(self, calls: Sequence[int], point: Point = MAIN) -> Stepped:
        """Compute the case's sequence in inference mode in several calls, from an empty state.

        Args:
            calls: the number of steps in each call; they add up to the whole sequence.

        Raises:
            ModelError: the model names no state in the framework, or the network does not take it.
        """
        raise ModelError(f"{type(self).__name__} runs no model with a state")

    @staticmethod
    def widened() -> contextlib.AbstractContextManager[dict[str, None]]:
        """A context in which the user's own training steps compute in float64 what they cast to a lower format.

        It yields the changes to the steps run within it, as half sentences. It raises a ModelError if the framework
        runs no such steps.
        """
        raise ModelError("no training step of a model's own runs in this framework")

    @functools.cached_property
    def changing(self) -> tuple[str, ...] | None:
        """The names of what a training call changes besides statistics; None: `Point.calls` and `loss` do nothing."""
        with contextlib.suppress(Exception):  # where only inference is measured, a network need not train
            return self._changing()
        return ()

    def _changing(self) -> tuple[str, ...] | None:
        return None

    def may_draw(self) -> bool:
        """True if the program draws random numbers in training mode. By default a lane has no random layers."""
        return False

    def is_steady(self) -> bool:
        """True if two keys give one output while randomness is off, as it is for all other results of a side."""
        return True

    def draws(self, keys: int) -> Array:
        """The outputs in training mode with randomness on, one for each key: shape (keys, numbers of an output)."""
        raise NotImplementedError

    @abstractmethod
    def losses(self, optimizer: Optimizer) -> Array:
        """The losses before each of `STEPS` optimizer steps on one batch, which start at `MAIN`: shape (STEPS,)."""

    @abstractmethod
    def _forward(self, point: Point) -> Forward: ...

    @abstractmethod
    def _backward(self, point: Point) -> tuple[Forward, Backward]:
        """The results of both passes, as differentiation includes a forward pass."""


def side(candidate: str) -> type[Side]:
    """The class of the sides of a framework, or of a lane whose own program is proved, as lanes name it.

    Raises:
        ModelError: no lane names one, or the framework cannot be imported.
    """
    named = (lane.parity for lane in LANES.values() if candidate in (lane.framework, lane.name) and lane.parity)
    path = next(named, None)
    if path is None:
        raise ModelError(f"nothing can be proved in {candidate}: no lane of it names a class for `parity`")
    side_class: type[Side] = load(path)
    return side_class


# One entry: the two sides of a proof ask for the same weights in turn, and ViT-B/16's take a third of a gigabyte.
@functools.lru_cache(maxsize=1)
def _weights(
    model: Model, axes: tuple[tuple[str, int], ...], kind: Draw, shapes: tuple[tuple[str, Shape], ...]
) -> Weights:
    if kind == "initial":
        lane = next(lane for lane in LANES.values() if lane.framework == model.reference)
        try:
            return frameworks.load(lane.adapter).initial(model, model.sizes(axes), seed=0)
        except NotImplementedError as error:
            raise InitialUnknownError(str(error)) from None
    if kind == "perturbed":
        return elsewhere.perturbed(_weights(model, axes, "initial", shapes), seed=0)
    if kind == "small":
        return {name: array / np.float32(8) for name, array in _weights(model, axes, "drawn", shapes).items()}
    if kind == "checkpoint":
        return checkpoint.load(model, dict(shapes))
    return elsewhere.draw_unit(model, dict(shapes), seed=0) if kind == "unit" else draw(model, dict(shapes), seed=0)
