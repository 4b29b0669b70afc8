"""A model's network in JAX as a function of flat leaves, for networks of any library."""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from fwbench.frameworks.definitions import check_weights
from fwbench.frameworks.faults import faults
from fwbench.frameworks.jax.layout import Leaf, described
from fwbench.frameworks.layouts import Rearranged, Renamed, layout
from fwbench.models import Model
from fwbench.models.outputs import select
from fwbench.models.weights import Weights, is_statistic


class Network(ABC):
    """A network without weights of its own: each call is given them, as a list of leaves in the order of `leaves`.

    Attributes:
        model: the model to which it belongs.
        leaves: the arrays of its state.
        shapes: canonical shape of every weight, by canonical name.
        images: the layout in which it takes images, `NHWC` or `NCHW`.
    """

    images = "NHWC"
    # Structure of the tree of weights that the library's users hold; None if they hold a module, or no weights.
    _structure: Any = None

    def __init__(self, model: Model, leaves: Sequence[Leaf]) -> None:
        self.model = model
        self.leaves, self._layout = _without_own_states(model, leaves)
        self.shapes = self._layout.shapes

    def load(self, weights: Mapping[str, Any]) -> list[Any]:
        """All leaves, with these canonical weights among them. JAX can differentiate the result by the weights.

        Raises:
            ModelError: a weight is missing, unknown or of another shape.
        """
        check_weights(f"{self.model.name}'s network in JAX", self.shapes, weights)
        own, others = self._layout.own(weights), iter(self.others())
        return [next(own) if leaf.is_weight else next(others) for leaf in self.leaves]

    def replaced_weights(self, leaves: Sequence[Any], weights: Mapping[str, Any]) -> Iterator[Any]:
        """Each leaf, with these canonical weights in the place of their own, in their number formats."""
        replacements = self._layout.own(weights)
        for leaf, array in zip(self.leaves, leaves, strict=True):
            # NumPy casts, as JAX would compile a conversion for each shape.
            yield next(replacements).astype(array.dtype, copy=False) if leaf.is_weight else array

    def canonical(self, leaves: Sequence[Any]) -> dict[str, Any]:
        """The weights among all leaves under canonical names, in canonical layouts."""
        chosen = zip(self.leaves, leaves, strict=True)
        return self._layout.canonical([array for leaf, array in chosen if leaf.is_weight])

    def export(self, leaves: Sequence[Any]) -> Weights:
        """The weights in canonical form on the host: float32, or float64 if the leaves have that."""
        chosen = zip(self.leaves, leaves, strict=True)
        on_host = [_wide(np.asarray(array)) if leaf.is_weight else None for leaf, array in chosen]
        return self.canonical(on_host)

    def place(self, inputs: Mapping[str, NDArray[Any]], dtype: Any, device: jax.Device) -> dict[str, jax.Array]:
        """A batch of inputs on a device, images in this network's layout, whole numbers as int32.

        Args:
            inputs: arrays by name, as from `fwbench.models.inputs.draw`.
            dtype: number format of floating-point inputs.
        """
        placed = {}
        for name, array in inputs.items():
            if self.model.inputs[name].image and self.images == "NCHW":
                array = array.transpose(0, 3, 1, 2)
            placed[name] = jax.device_put(jnp.asarray(array, dtype if array.dtype.kind == "f" else None), device)
        return placed

    def apply(
        self, leaves: Sequence[Any], inputs: Mapping[str, Any], *, train: bool = False, key: Any = None
    ) -> tuple[jax.Array, list[Any]]:
        """Call the network.

        Args:
            leaves: all of them, as arrays of JAX: Flax NNX would change those of NumPy in place.
            inputs: the model's inputs by name, batch first.
            train: whether it is in training mode.
            key: random key of stochastic layers in training mode; without one they are off.

        Returns:
            The model's output, and all leaves after the call.

        Raises:
            ModelError: the network raised an exception, or it returned no such output.
        """
        returned, after = self._returned(leaves, inputs, train, key)
        return select(self.model, "jax", returned, len(next(iter(inputs.values())))), after

    def everything(self, leaves: Sequence[Any], inputs: Mapping[str, Any]) -> tuple[jax.Array, list[jax.Array]]:
        """As `apply`, in inference mode.

        Returns:
            The model's output, and all other arrays that the network returns: an eager framework computes them, too.
        """
        returned, _ = self._returned(leaves, inputs, False, None)
        output = select(self.model, "jax", returned, len(next(iter(inputs.values()))))
        return output, [array for array in _arrays(returned) if array is not output]

    @property
    def jit(self) -> Callable[..., Any]:
        """The jit with which users of the network's library compile a function of the network and of arrays."""
        return jax.jit

    def assembled(self, leaves: Sequence[Any], *, train: bool = False) -> Any:
        """The network with these leaves as users of its library hold it: a module in a mode, or a tree of weights."""
        return list(leaves) if self._structure is None else jax.tree.unflatten(self._structure, leaves)

    def taken_apart(self, held: Any) -> list[Any]:
        """The leaves of a network that `assembled` has made."""
        return jax.tree.leaves(held)

    def _returned(
        self, leaves: Sequence[Any], inputs: Mapping[str, Any], train: bool, key: Any
    ) -> tuple[Any, list[Any]]:
        with faults(f"the network of {self.model.name}"):
            return self._call(leaves, inputs, train, key)

    @abstractmethod
    def _call(self, leaves: Sequence[Any], inputs: Mapping[str, Any], train: bool, key: Any) -> tuple[Any, list[Any]]:
        """The value that the network returns, and all leaves after the call."""

    def initial(self, seed: int) -> Weights:
        """The weights as the user's code draws them, in canonical form on the host."""
        return self.export(self._values(seed, lambda leaf: True))

    def others(self, draw: int = 0) -> list[Any]:
        """The values of buffers and random streams, as the user's code sets them; another draw has other streams."""
        if all(leaf.is_weight for leaf in self.leaves):
            return []
        return [
            jax.random.fold_in(array, draw) if draw and jnp.issubdtype(array.dtype, jax.dtypes.prng_key) else array
            for array in self._values(0, lambda leaf: not leaf.is_weight)
        ]

    def _values(self, seed: int, wanted: Callable[[Leaf], bool]) -> list[Any]:
        """The wanted leaves of a state. The compiler drops the code that draws all others."""

        def values() -> list[Any]:
            built = zip(self.leaves, jax.tree.leaves(self._drawn(seed)), strict=True)
            return [array for leaf, array in built if wanted(leaf)]

        # Compiled ahead of time, so that it runs now even while a program is traced, or runs operator by operator.
        with faults(f"the network of {self.model.name}"), jax.disable_jit(False):
            return jax.jit(values).lower().compile()()

    def _drawn(self, seed: int) -> Any:
        """A state as the user's code sets it: a tree with the arrays of `leaves`, in their order."""
        return []


def _without_own_states(model: Model, leaves: Sequence[Leaf]) -> tuple[tuple[Leaf, ...], Renamed | Rearranged]:
    """The leaves, and the layout of the weights among them.

    A statistic without the canonical name of a running statistic, such as a moving average of the network's own, is a
    buffer, as it is in PyTorch.
    """
    weights = [leaf for leaf in leaves if leaf.is_weight]
    made = layout(model, "jax", "JAX", described(weights))
    own = {
        leaf.name
        for leaf, names in zip(weights, made.names, strict=True)
        if leaf.kind == "statistic" and not any(map(is_statistic, names))
    }
    if not own:
        return tuple(leaves), made
    return _without_own_states(
        model, [dataclasses.replace(leaf, kind="buffer") if leaf.name in own else leaf for leaf in leaves]
    )


def _wide(array: NDArray[Any]) -> NDArray[Any]:
    return array if array.dtype == np.float64 else array.astype(np.float32, copy=False)


def _arrays(returned: Any) -> list[jax.Array]:
    """All arrays in a network's return value, including attributes of an object."""
    arrays = []
    for leaf in jax.tree.leaves(returned):
        inside = (
            [leaf] if isinstance(leaf, jax.Array) else jax.tree.leaves(vars(leaf)) if hasattr(leaf, "__dict__") else []
        )
        arrays += [array for array in inside if isinstance(array, jax.Array)]
    return arrays
