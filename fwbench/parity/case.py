"""What the two sides of a proof compute: one model on one batch, in one mode and one number format."""

import functools
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fwbench.frameworks.training import targets
from fwbench.models import CATALOG, Model
from fwbench.models.importing import ModelError, load
from fwbench.models.inputs import draw as draw_inputs
from fwbench.models.weights import Shape, Weights, draw
from fwbench.record.lanes import LANES
from fwbench.record.workload import Workload

Array = NDArray[Any]
Mode = Literal["eval", "train"]
Device = Literal["cpu", "gpu"]
Optimizer = Literal["sgd", "adam"]

# The suite's own.
MODELS = tuple(name for name, model in CATALOG.items() if model.parameters)
MODES: tuple[Mode, ...] = ("eval", "train")

STEPS = 5
# What users choose. The rest is each framework's default, and the same: Adam's 0.9, 0.999 and 1e-8.
SGD = {"learning_rate": 1e-2, "momentum": 0.9}
ADAM = {"learning_rate": 1e-4}


@dataclass(frozen=True)
class Case:
    """One model at its canonical weights, without randomness.

    Attributes:
        model: what is built.
        mode: whether batch normalisation uses its running statistics (`eval`) or the batch's own (`train`).
        dtype: of weights, inputs of floating point and all arithmetic.
        axes: values of the model's axes, where these are not the first ones.
        batch_size: at least 2, so that a batch has a variance.
        device: `cpu` or `gpu`.
    """

    model: Model
    mode: Mode = "eval"
    dtype: Literal["float64", "float32"] = "float64"
    axes: tuple[tuple[str, int], ...] = ()
    batch_size: int = 2
    device: Device = "cpu"

    @property
    def sizes(self) -> dict[str, int]:
        """The model's axes."""
        return self.model.sizes(self.axes)

    def inputs(self) -> dict[str, Array]:
        """By the input's name samples of shape (batch_size, *sizes); images are NHWC."""
        return self._cast(draw_inputs(self.model.inputs, self.batch_size, 0, self.sizes))

    def targets(self, output: tuple[int, ...]) -> Array | None:
        """What the loss compares an output of this shape with; None where the loss takes nothing."""
        workload = Workload(self.model.reference, self.model.name, "train_step", self.batch_size, axes=self.axes)
        found = targets(workload, self.model, output)
        return None if found is None else self._cast({"": found})[""]

    def weights(self, shapes: Mapping[str, Shape]) -> dict[str, Array]:
        """The canonical weights in this case's number format."""
        return self._cast(_drawn(self.model, tuple(sorted(shapes.items()))))

    def _cast(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """Floating point in this case's number format; whole numbers as they are."""
        floats = {name: array for name, array in arrays.items() if np.issubdtype(array.dtype, np.floating)}
        return {**arrays, **{name: array.astype(self.dtype) for name, array in floats.items()}}


@dataclass(frozen=True)
class Forward:
    """The output, batch first, its loss, and the running statistics after the call by name.

    The loss is not a number where the model has no weights, so that nothing could be trained.
    """

    output: Array
    loss: float
    statistics: dict[str, Array]


@dataclass(frozen=True)
class Backward:
    """The loss, and its gradient by every parameter under canonical names, in canonical layouts."""

    loss: float
    gradients: dict[str, Array]


class Side(ABC):
    """One framework's answers to a case. Each starts from the canonical weights; none changes another."""

    def __init__(self, case: Case) -> None:
        self.case = case

    @staticmethod
    @abstractmethod
    def shapes(model: Model, sizes: Mapping[str, int]) -> dict[str, Shape]:
        """Canonical name to canonical shape of every weight and running statistic.

        Raises:
            ModelError: the framework's network cannot be built as the model describes it.
        """

    @functools.cached_property
    def forward(self) -> Forward:
        """One forward pass without gradients."""
        return self._forward()

    @functools.cached_property
    def backward(self) -> Backward:
        """One forward and one backward pass."""
        return self._backward()

    @abstractmethod
    def losses(self, optimizer: Optimizer) -> Array:
        """The loss that each of `STEPS` optimizer steps on the same batch starts from, shape (STEPS,)."""

    @abstractmethod
    def _forward(self) -> Forward: ...

    @abstractmethod
    def _backward(self) -> Backward: ...


def side(framework: str) -> type[Side]:
    """The class that answers for a framework, as its lanes name it.

    Raises:
        ModelError: no lane does, or the framework cannot be imported.
    """
    path = next((lane.parity for lane in LANES.values() if lane.framework == framework and lane.parity), None)
    if path is None:
        raise ModelError(f"nothing can be proved in {framework}: no lane of it names a class for `parity`")
    found: type[Side] = load(path)
    return found


# One: the sides of a proof ask for the same in turn, and ViT-B/16's take a third of a gigabyte.
@functools.lru_cache(maxsize=1)
def _drawn(model: Model, shapes: tuple[tuple[str, Shape], ...]) -> Weights:
    return draw(model, dict(shapes), seed=0)


def is_statistic(name: str) -> bool:
    """Whether a canonical name is a running statistic: state, but no parameter."""
    return name.endswith(("running_mean", "running_var"))
