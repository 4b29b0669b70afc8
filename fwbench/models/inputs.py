"""The inputs of a model: shape, element type and distribution of each, and the drawing of a batch."""

import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:  # pytest's process names inputs, and never draws any.
    import numpy as np
    from numpy.typing import NDArray

Draw = Literal["normal", "uniform", "integers", "constant"]
DTYPES = ("float32", "int32", "int64", "bool")


@dataclass(frozen=True)
class Input:
    """One input of a model.

    Attributes:
        shape: of one sample, without the batch; a name stands for the axis of the model that has this name.
        dtype: `float32`, `int32`, `int64` or `bool`. Only `float32` follows the workload's precision.
        draw: the distribution of its elements: standard normal, uniform from `low` to `high`, whole numbers from `low`
            up to and without `high`, or `low` everywhere. The first two are of `float32` alone.
        low, high: of the distribution, if it has them.
        image: whether the shape is (height, width, channels), which each framework gets in its own layout.

    Raises:
        ValueError: the shape, the element type, the distribution or the range makes no sense.
    """

    shape: tuple[int | str, ...]
    dtype: str = "float32"
    draw: Draw = "normal"
    low: float = 0.0
    high: float = 1.0
    image: bool = False

    def __post_init__(self) -> None:
        for size in self.shape:
            if not isinstance(size, str) and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
                raise ValueError(f"an input's size {size!r} is neither a whole number of at least 1 nor an axis's name")
        if self.dtype not in DTYPES:
            raise ValueError(f"unknown element type {self.dtype!r} of an input: choose from {', '.join(DTYPES)}")
        if self.draw not in get_args(Draw):
            raise ValueError(f"unknown distribution {self.draw!r} of an input: choose from {', '.join(get_args(Draw))}")
        if self.draw in ("normal", "uniform") and self.dtype != "float32":
            raise ValueError(f"the distribution {self.draw!r} has no {self.dtype}: choose integers or constant")
        if self.image and len(self.shape) != 3:
            raise ValueError(f"an image has a height, a width and channels, not the shape {self.shape}")
        if self.draw == "integers" and not self.low + 1 <= self.high:
            raise ValueError(f"there are no whole numbers from {self.low:g} up to and without {self.high:g}")
        if self.draw == "integers" and (self.low % 1 or self.high % 1):
            raise ValueError(f"integers are drawn between whole numbers, and not from {self.low:g} to {self.high:g}")

    def sizes(self, axes: Mapping[str, int]) -> tuple[int, ...]:
        """The shape of one sample for these values of the model's axes."""
        return tuple(axes[size] if isinstance(size, str) else size for size in self.shape)

    def sample(self, shape: tuple[int, ...], rng: "np.random.Generator") -> "NDArray[Any]":
        """Draw an array of this shape, batch included."""
        import numpy as np

        if self.draw == "normal":
            return rng.standard_normal(shape, dtype=np.float32)
        if self.draw == "uniform":
            return (self.low + (self.high - self.low) * rng.random(shape, dtype=np.float32)).astype(np.float32)
        if self.draw == "integers":
            return rng.integers(int(self.low), int(self.high), shape).astype(self.dtype)
        return np.full(shape, self.low, dtype=self.dtype)

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON primitives."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Input":
        """The inverse of `to_json`."""
        return cls(**{**data, "shape": tuple(data["shape"])})


def image(height: int | str, width: int | str, channels: int | str) -> Input:
    """Images of standard-normal pixels, float32: channels first in PyTorch, last in Flax."""
    return Input((height, width, channels), image=True)


def tokens(*shape: int | str, vocabulary: int) -> Input:
    """Uniformly random token numbers from 0 to `vocabulary` - 1: int64 in PyTorch, int32 in JAX."""
    return Input(shape, "int32", "integers", 0, vocabulary)


def integers(*shape: int | str, low: int = 0, high: int, dtype: str = "int32") -> Input:
    """Uniformly random whole numbers from `low` to `high` - 1."""
    return Input(shape, dtype, "integers", low, high)


def normal(*shape: int | str) -> Input:
    """Standard-normal numbers, float32."""
    return Input(shape)


def uniform(*shape: int | str, low: float = 0.0, high: float = 1.0) -> Input:
    """Uniformly random numbers from `low` to `high`, float32."""
    return Input(shape, "float32", "uniform", low, high)


def ones(*shape: int | str, dtype: str = "float32") -> Input:
    """Ones everywhere, as in an attention mask that hides nothing."""
    return Input(shape, dtype, "constant", 1)


def too_large(inputs: Mapping[str, Input]) -> str:
    """Advice for a network that finds no row for a number of its inputs; empty for inputs without whole numbers."""
    high = max((int(each.high) for each in inputs.values() if each.draw == "integers"), default=0)
    return f"; its inputs hold numbers up to {high - 1}: has every table of the network that many rows?" if high else ""


def draw(inputs: Mapping[str, Input], batch_size: int, seed: int, axes: Mapping[str, int]) -> "dict[str, NDArray[Any]]":
    """A batch of each input, the same in every process and for every framework.

    Each input's name maps to an array of shape (batch_size, *sizes); images are batch x height x width x channels.
    """
    import numpy as np

    # An input without a name is a model's only one.
    streams = {name: [seed, batch_size, *([zlib.crc32(name.encode())] if name else [])] for name in inputs}
    return {
        name: given.sample((batch_size, *given.sizes(axes)), np.random.default_rng(streams[name]))
        for name, given in inputs.items()
    }
