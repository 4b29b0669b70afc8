"""The Keras network that a model names: its construction, its canonical weights and its calls.

This module needs no TensorFlow, as a lane may run Keras on another backend. All other modules of this folder choose
TensorFlow's backend: they import `imported` before this module.
"""

import functools
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from fwbench.frameworks.definitions import check_function, check_weights, takes_inputs
from fwbench.frameworks.faults import faults
from fwbench.frameworks.layouts import Own, layout, outputs_first
from fwbench.models import Model
from fwbench.models.importing import ModelError, arguments, load
from fwbench.models.outputs import select
from fwbench.models.weights import Weights, is_statistic

# Canonical names by Keras's.
_RENAMED = {
    **{"kernel": "weight", "depthwise_kernel": "weight", "gamma": "weight", "embeddings": "weight", "beta": "bias"},
    **{"moving_mean": "running_mean", "moving_variance": "running_var"},
}
# PyTorch's order of the axes of a depthwise kernel: channels and features before the window.
_DEPTHWISE = (2, 3, 0, 1)

Tensor = Any  # a tensor of the backend


class Network:
    """A model's network with its variables.

    Attributes:
        model: the model to which it belongs.
        module: a Keras layer; or a function of the inputs, which has no weights.
        shapes: canonical shape of every weight, by canonical name.
    """

    def __init__(self, model: Model, sizes: Mapping[str, int], policy: str = "float32", seed: int = 0) -> None:
        """
        Args:
            sizes: sizes of the model's axes.
            policy: Keras's name of the number formats: `float32`, `float64`, `bfloat16`, or `mixed_bfloat16`, in which
                weights are float32 and all else is bfloat16.
            seed: seed of the values that the network's constructor draws.

        Raises:
            ModelError: the model's import path does not lead to a network.
        """
        self.model = model
        self._policy = policy
        self.module = _built(model, sizes, policy, seed)
        for number, layer in enumerate(self.layers()):
            if isinstance(layer, _own("Dropout")):
                layer.number = number
        named: list[Any] = []
        if isinstance(self.module, keras.layers.Layer):
            if not all(layer.built for layer in self.layers()):
                self._call_once(sizes)
            named = [one for one in _named(self.module) if keras.backend.is_float_dtype(one[1].dtype)]
        self._variables = [variable for _, variable, _ in named]
        self._layout = layout(model, "tensorflow", "TensorFlow", [_described(*one) for one in named])
        self.shapes = self._layout.shapes
        trained = {id(variable) for variable in getattr(self.module, "trainable_weights", ())}
        self._trained = [variable for variable in self._variables if id(variable) in trained]
        names = zip(self._variables, self._layout.names, strict=True)
        self._running = [variable for variable, canonical in names if any(map(is_statistic, canonical))]

    @property
    def parameters(self) -> list[Any]:
        """The backend's variables of the weights that training changes by their gradients."""
        return [variable.value for variable in self._trained]

    @property
    def held(self) -> list[Any]:
        """All of the backend's variables that belong to the network, including the state of random numbers."""
        return [variable.value for variable in getattr(self.module, "variables", ())]

    def load(self, weights: Mapping[str, NDArray[Any]]) -> None:
        """Set the network to the canonical weights, each used exactly once.

        Raises:
            ModelError: a weight is missing, unknown or of another shape.
        """
        check_weights(f"{self.model.name}'s network in TensorFlow", self.shapes, weights)
        for variable, array in zip(self._variables, self._layout.own(weights), strict=True):
            variable.assign(array)

    def gradients(self, own: Iterable[NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """The gradients of `parameters` in canonical form, and zeros for frozen weights."""
        arrays = self._with_zeros(self._trained, own)
        return {name: array for name, array in arrays.items() if not is_statistic(name)}

    def export(self) -> Weights:
        """The weights in canonical form on the host: float32, or float64 if the network has that."""
        arrays = self._layout.canonical([variable.numpy() for variable in self._variables])
        return {
            name: np.asarray(array, array.dtype if array.dtype == np.float64 else np.float32, order="C")
            for name, array in arrays.items()
        }

    def statistics(self) -> dict[str, NDArray[Any]]:
        """The running statistics by their canonical names, in the network's number format."""
        arrays = self._with_zeros(self._running, [variable.numpy() for variable in self._running])
        return {name: array for name, array in arrays.items() if is_statistic(name)}

    def _with_zeros(self, variables: Iterable[Any], own: Iterable[NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """The arrays of these variables, and zeros for all others, in canonical form."""
        given = dict(zip(map(id, variables), own, strict=True))
        zero = np.float32(0)
        return self._layout.canonical([given.get(id(one), np.broadcast_to(zero, one.shape)) for one in self._variables])

    @property
    def running(self) -> list[Any]:
        """The backend's variables of the running statistics."""
        return [variable.value for variable in self._running]

    def place(self, inputs: Mapping[str, NDArray[Any]], dtype: Any) -> dict[str, Tensor]:
        """A batch of inputs on the device; whole numbers keep their type.

        Args:
            inputs: arrays by name, as from `fwbench.models.inputs.draw`.
            dtype: number format of floating-point inputs.
        """
        return {
            name: keras.ops.copy(keras.ops.cast(array, dtype) if array.dtype.kind == "f" else array)
            for name, array in inputs.items()
        }

    def without_randomness(self) -> dict[Any, float]:
        """Switch dropout and similar layers off, in training mode too; return the rates that they had."""
        rates = {layer: layer.rate for layer in self.layers() if hasattr(layer, "rate")}
        for layer in rates:
            layer.rate = 0.0
        return rates

    def layers(self) -> Iterator[Any]:
        """All layers of the network."""
        return (layer for _, layer in _paths(self.module))

    def parts(self) -> Iterator[tuple[str, Any, frozenset[str]]]:
        """For the network and each layer in it: path, layer, and canonical names of all weights in the layer."""
        names = {id(variable): names for variable, names in zip(self._variables, self._layout.names, strict=True)}
        for path, layer in _paths(self.module):
            weights = getattr(layer, "weights", ())
            yield path, layer, frozenset[str]().union(*(names.get(id(variable), ()) for variable in weights))

    def returned(self, inputs: Mapping[str, Tensor], *, train: bool = False) -> Any:
        """Call the network; return its value.

        Raises:
            ModelError: the network raised an exception.
        """
        mode = {"training": train} if isinstance(self.module, keras.layers.Layer) else {}
        before = keras.config.dtype_policy()
        # A network may make layers in its call.
        keras.config.set_dtype_policy(self._policy)
        try:
            with faults(f"the network of {self.model.name}"):
                if "" in inputs:
                    return self.module(inputs[""], **mode)
                if _is_functional(self.module):
                    return self.module(dict(inputs), **mode)
                return self.module(**inputs, **mode)
        finally:
            keras.config.set_dtype_policy(before)

    def apply(self, inputs: Mapping[str, Tensor], *, train: bool = False) -> Tensor:
        """The model's output for inputs by name, batch first.

        Raises:
            ModelError: the network raised an exception, or it returned no such output.
        """
        return self.output(self.returned(inputs, train=train), inputs)

    def output(self, returned: Any, inputs: Mapping[str, Tensor]) -> Tensor:
        """The model's output in the value that its network returned for these inputs.

        Raises:
            ModelError: the value holds no such output.
        """
        return select(self.model, "tensorflow", returned, next(iter(inputs.values())).shape[0])

    def _call_once(self, sizes: Mapping[str, int]) -> None:
        """Trace the network, for layers that make their weights at their first call."""
        given = self.model.inputs.items()
        self.returned({name: keras.KerasTensor((2, *one.sizes(sizes)), one.dtype) for name, one in given})


def _built(model: Model, sizes: Mapping[str, int], policy: str, seed: int) -> Any:
    """A Keras layer whose canonical weights are yet to be loaded, or a function of the inputs."""
    path = model.networks["tensorflow"]
    definition = load(path)
    if not callable(definition) or isinstance(definition, keras.layers.Layer):
        raise ModelError(
            f"{path!r} is an object of type {type(definition).__name__}: name a class, a factory or a function"
        )
    call = functools.partial(definition, **arguments(definition, sizes))
    if takes_inputs(model, "tensorflow", definition, sizes):
        return call
    before = keras.config.dtype_policy()
    # Keras numbers layers without a name from the start of a session.
    keras.backend.clear_session(free_memory=False)
    keras.config.set_dtype_policy(policy)
    try:
        with faults(repr(path)):
            # Random values are the same in every process.
            keras.utils.set_random_seed(seed)
            built = call()
    finally:
        keras.config.set_dtype_policy(before)
    if isinstance(built, keras.layers.Layer):
        return built
    check_function(path, built, "a Keras layer or model, or a function of the inputs")
    # Not the function itself, which may have attributes such as a layer has.
    return functools.partial(built)


def _is_functional(module: Any) -> bool:
    """True for Keras's functional models, which take several inputs as one dictionary."""
    return isinstance(module, keras.models.Model) and hasattr(module, "operations")


def _children(layer: Any) -> Iterator[tuple[str, Any]]:
    """The layers in a layer, each under its name: its index in a sequence, else the name of the layer or attribute."""
    sequences: Any = (*_own("Sequential"), keras.models.Sequential)
    if isinstance(layer, sequences):
        yield from _parts("", layer.layers)
    elif _is_functional(layer):
        yield from ((part.name, part) for part in layer.layers)
    else:
        # With PyTorch as the backend, layers are kept apart from other attributes.
        for name, value in (vars(layer) | vars(layer).get("_modules", {})).items():
            if not name.startswith("_"):
                yield from _parts(name, value)


def _parts(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, keras.layers.Layer):
        yield name, value
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for index, part in enumerate(value):
            yield from _parts(_joined(name, str(index)), part)
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from _parts(_joined(name, str(key)), part)


def _named(layer: Any, path: str = "", seen: set[int] | None = None) -> Iterator[tuple[str, Any, bool]]:
    """For every weight: path, variable, and True for a depthwise kernel. Shared weights occur once."""
    seen = set() if seen is None else seen
    children = list(_children(layer))
    within = {id(variable) for _, child in children for variable in child.weights}
    depthwise = isinstance(layer, keras.layers.DepthwiseConv2D) or bool(getattr(layer, "depthwise", False))
    for variable in layer.weights:
        if id(variable) not in within and id(variable) not in seen:
            seen.add(id(variable))
            # A layer in a private attribute is no child, so its name stays in front of the variable's.
            own = variable.path.rpartition(f"{layer.name}/")[2].replace("/", ".")
            yield _joined(path, own), variable, depthwise
    for name, child in children:
        yield from _named(child, _joined(path, name), seen)


def _described(path: str, variable: Any, depthwise: bool) -> Own:
    """A weight under its canonical name, and the order of its axes."""
    layer, dot, leaf = path.rpartition(".")
    shape = tuple(variable.shape)
    axes = tuple(range(len(shape)))
    if leaf.endswith("kernel") and len(axes) > 1:
        axes = _DEPTHWISE if depthwise else outputs_first(axes)
    return Own(path, f"{layer}{dot}{_RENAMED.get(leaf, leaf)}", shape, axes)


def _paths(layer: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The path of a layer and the layer, then those of all layers in it."""
    yield path, layer
    for name, child in _children(layer) if isinstance(layer, keras.layers.Layer) else ():
        yield from _paths(child, _joined(path, name))


def _own(name: str) -> tuple[Any, ...]:
    """A class of fwbench's layers, in a tuple; empty if nothing has imported these layers, which need TensorFlow."""
    layers = sys.modules.get("fwbench.ext.tensorflow.layers")
    return (getattr(layers, name),) if layers else ()


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
