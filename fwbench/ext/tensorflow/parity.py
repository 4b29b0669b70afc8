"""TensorFlow's side of a proof."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from fwbench.ext.proofs.case import (
    ADAM,
    CHANCE,
    MAIN,
    SGD,
    STEPS,
    Array,
    Backward,
    Case,
    Forward,
    Optimizer,
    Point,
    Side,
)
from fwbench.ext.proofs.lengths import relative
from fwbench.ext.proofs.where.calls import Call, Module, recording
from fwbench.ext.tensorflow import convolutions
from fwbench.ext.tensorflow.imported import keras, tf
from fwbench.ext.tensorflow.layers import training
from fwbench.ext.tensorflow.networks import Network
from fwbench.ext.tensorflow.optimizers import Adam, Sgd
from fwbench.ext.tensorflow.program import CPU, GPU, set_precision
from fwbench.ext.tensorflow.training import criterion
from fwbench.models import Model
from fwbench.models.weights import Shape


class TensorFlowSide(Side):
    """A network in TensorFlow, as a `tf.function` of its inputs, as one that XLA compiles, or operator by operator."""

    def __init__(
        self, case: Case, *, change: Callable[[Any], None] = lambda module: None, xla: bool = False, eager: bool = False
    ) -> None:
        """
        Args:
            change: called with the network's Keras module before it runs.
            xla: compile with XLA, and use the convolutions of the XLA lane.
            eager: run without `tf.function`.
        """
        super().__init__(case)
        set_precision("fp32")
        self._device = GPU if case.device == "gpu" else CPU
        self._form: convolutions.Form = "products" if xla and case.device == "cpu" else "own"
        self._criterion = criterion(case.model)
        with tf.device(self._device):
            self.network = Network(case.model, case.sizes, case.dtype)
            self._rates = self.network.without_randomness()
            change(self.network.module)

        def compiled(call: Callable[..., Any]) -> Any:
            return call if eager else tf.function(call, autograph=False, jit_compile=True if xla else None)

        self._apply, self._differentiate = compiled(self._forwards), compiled(self._both_ways)

    @staticmethod
    def shapes(model: Model, sizes: Mapping[str, int]) -> dict[str, Shape]:
        return Network(model, sizes).shapes

    def may_draw(self) -> bool:
        return any(self._rates.values()) or relative(*self.draws(2)) > CHANCE

    def is_steady(self) -> bool:
        return relative(*self._outputs(2)) <= CHANCE

    def draws(self, keys: int) -> Array:
        for layer, rate in self._rates.items():
            layer.rate = rate
        try:
            return self._outputs(keys)
        finally:
            self.network.without_randomness()

    def _outputs(self, keys: int) -> Array:
        inputs = self._begin(MAIN)

        def output(key: Any) -> Any:
            # The new running statistics are not assigned.
            with training(seed=tf.stack([key, 0])):
                return self.network.apply(inputs, train=True)

        call = tf.function(output, autograph=False)
        with tf.device(self._device):
            return np.stack([call(tf.constant(key)).numpy().ravel() for key in range(keys)])

    def losses(self, optimizer: Optimizer) -> Array:
        inputs = self._begin(MAIN)
        losses = []
        with tf.device(self._device):
            parameters = self.network.parameters
            descent = Sgd(parameters, SGD["momentum"]) if optimizer == "sgd" else Adam(parameters)
            rate = tf.constant((SGD if optimizer == "sgd" else ADAM)["learning_rate"], self.case.dtype)
            for step in range(STEPS):
                loss, _, gradients = self._differentiate(inputs)
                losses.append(float(loss))
                if gradients and step < STEPS - 1:
                    descent.apply(gradients, rate, tf.constant(step, tf.int64))
        return np.array(losses)

    def calls(self, point: Point = MAIN) -> list[Call]:
        inputs = self._begin(point)
        modules = {id(part): Module(path, weights) for path, part, weights in self.network.parts()}
        kind = keras.layers.Layer
        with tf.device(self._device), self._mode(), recording(kind, lambda root: modules, _copied) as calls:
            self.network.apply(inputs, train=self.case.mode == "train")
        return calls

    def _forward(self, point: Point) -> Forward:
        inputs = self._begin(point)
        with tf.device(self._device):
            return self._on_host(*self._apply(inputs))

    def _backward(self, point: Point) -> tuple[Forward, Backward]:
        inputs = self._begin(point)
        with tf.device(self._device):
            loss, output, gradients = self._differentiate(inputs)
        named = self.network.gradients(gradient.numpy() for gradient in gradients)
        return self._on_host(loss, output), Backward(float(loss), named)

    def _on_host(self, loss: Any, output: Any) -> Forward:
        return Forward(output.numpy(), float(loss), self.network.statistics())

    def _begin(self, point: Point) -> dict[str, Any]:
        """Load a point's weights, which calls and steps change, into the network; return the point's inputs."""
        convolutions.choose(self._form)
        with tf.device(self._device):
            self.network.load(self.case.weights(self.network.shapes, point))
            return self.network.place(self.case.inputs(point), self.case.dtype)

    def _forwards(self, inputs: Any) -> tuple[Any, Any]:
        with self._mode():
            return self._answers(inputs)

    def _both_ways(self, inputs: Any) -> tuple[Any, Any, list[Any]]:
        parameters = self.network.parameters
        with self._mode():
            with tf.GradientTape() as tape:
                loss, output = self._answers(inputs)
            gradients = tape.gradient(loss, parameters, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        return loss, output, [tf.convert_to_tensor(gradient) for gradient in gradients]

    def _answers(self, inputs: Any) -> tuple[Any, Any]:
        output = self.network.apply(inputs, train=self.case.mode == "train")
        return self._loss(output), output

    @contextlib.contextmanager
    def _mode(self) -> Iterator[None]:
        """A context in the case's mode. At its end new running statistics are assigned."""
        if self.case.mode == "eval":
            yield
            return
        # Without randomness.
        with training(seed=None) as step:
            yield
        step.assign()

    def _loss(self, output: Any) -> Any:
        if not self.network.shapes:
            return tf.constant(np.nan)
        wanted = self.case.targets(tuple(output.shape))
        return self._criterion(output, *(() if wanted is None else (tf.convert_to_tensor(wanted),)))


def _copied(leaf: Any) -> Array | None:
    """A copy on the host in float64; None for anything but a tensor of real numbers."""
    is_real = isinstance(leaf, tf.Tensor) and (leaf.dtype.is_floating or leaf.dtype.is_integer)
    return np.array(leaf.numpy(), np.float64) if is_real else None
