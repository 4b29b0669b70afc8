"""What the two sides of a proof compute: one network on one batch, in one mode and one number format."""

import functools
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fwbench.models import CATALOG, Model
from fwbench.models.inputs import draw as draw_inputs
from fwbench.models.weights import Shape, Weights, draw

Array = NDArray[Any]
Mode = Literal["eval", "train"]
Device = Literal["cpu", "gpu"]
Optimizer = Literal["sgd", "adam"]

MODELS = tuple(name for name, model in CATALOG.items() if model.parameters)
MODES: tuple[Mode, ...] = ("eval", "train")

STEPS = 5
# What users choose. The rest is each framework's default, and the same: Adam's 0.9, 0.999 and 1e-8.
SGD = {"learning_rate": 1e-2, "momentum": 0.9}
ADAM = {"learning_rate": 1e-4}


@dataclass(frozen=True)
class Case:
    """One network at its canonical weights, stochastic layers at rate 0.

    Attributes:
        model: a name in `fwbench.models.CATALOG`.
        mode: whether batch normalisation uses its running statistics (`eval`) or the batch's own (`train`).
        dtype: of weights, inputs and all arithmetic.
        size: edge of the square images in pixels; None: the catalog's.
        batch_size: at least 2, so that a batch has a variance.
        device: `cpu` or `gpu`.
    """

    model: str
    mode: Mode = "eval"
    dtype: Literal["float64", "float32"] = "float64"
    size: int | None = None
    batch_size: int = 2
    device: Device = "cpu"

    @property
    def row(self) -> Model:
        """The model."""
        return CATALOG[self.model]

    @property
    def sizes(self) -> dict[str, int]:
        """The model's axes, with this case's image size."""
        return self.row.sizes(() if self.size is None else [("image_size", self.size)])

    def inputs(self) -> Array:
        """Samples of shape (batch_size, *input_shape); images are NHWC."""
        return draw_inputs(self.row.inputs, self.batch_size, 0, self.sizes)[""].astype(self.dtype)

    def labels(self) -> NDArray[np.int32]:
        """One class a sample, shape (batch_size,)."""
        return np.random.default_rng(self.batch_size).integers(self.row.classes, size=self.batch_size, dtype=np.int32)

    def weights(self, shapes: Mapping[str, Shape]) -> dict[str, Array]:
        """The canonical weights in this case's number format."""
        drawn = _drawn(CATALOG[self.model], tuple(sorted(shapes.items())))
        return {name: array.astype(self.dtype) for name, array in drawn.items()}


@dataclass(frozen=True)
class Forward:
    """Logits of shape (batch, classes), mean cross-entropy, and the running statistics after the call by name."""

    logits: Array
    loss: float
    statistics: dict[str, Array]


@dataclass(frozen=True)
class Backward:
    """Mean cross-entropy, and its gradient by every parameter under canonical names, in canonical layouts."""

    loss: float
    gradients: dict[str, Array]


class Side(ABC):
    """One framework's answers to a case. Each starts from the canonical weights; none changes another."""

    def __init__(self, case: Case) -> None:
        self.case = case

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


# One: the sides of a proof ask for the same in turn, and ViT-B/16's take a third of a gigabyte.
@functools.lru_cache(maxsize=1)
def _drawn(row: Model, shapes: tuple[tuple[str, Shape], ...]) -> Weights:
    return draw(row, dict(shapes), seed=0)


def is_statistic(name: str) -> bool:
    """Whether a canonical name is a running statistic: state, but no parameter."""
    return name.endswith((".running_mean", ".running_var"))
