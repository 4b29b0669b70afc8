"""TensorFlow's side of a proof."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from fwbench.frameworks.tensorflow import convolutions
from fwbench.frameworks.tensorflow.imported import tf
from fwbench.frameworks.tensorflow.layers import training
from fwbench.frameworks.tensorflow.losses import loss_of
from fwbench.frameworks.tensorflow.networks import Network
from fwbench.frameworks.tensorflow.optimizers import Adam, Sgd
from fwbench.frameworks.tensorflow.program import CPU, GPU, set_precision
from fwbench.models import Model
from fwbench.models.weights import Shape
from fwbench.parity.case import ADAM, SGD, STEPS, Array, Backward, Case, Forward, Optimizer, Side


class TensorFlowSide(Side):
    """A network in TensorFlow, as a `tf.function` of its inputs, as one that XLA compiles, or operator by operator.

    Attributes:
        network: what is run.
    """

    def __init__(
        self, case: Case, *, change: Callable[[Any], None] = lambda module: None, xla: bool = False, eager: bool = False
    ) -> None:
        """
        Args:
            change: is given the network's Keras module before it runs.
            xla: compile by XLA, with the convolutions of the lane that does.
            eager: run without `tf.function`.
        """
        super().__init__(case)
        set_precision("fp32")
        self._device = GPU if case.device == "gpu" else CPU
        self._form: convolutions.Form = "products" if xla and case.device == "cpu" else "own"
        self._criterion = loss_of(case.model)
        with tf.device(self._device):
            self.network = Network(case.model, case.sizes, case.dtype)
            self.network.without_randomness()
            change(self.network.module)
            self._weights = case.weights(self.network.shapes)
            self._inputs = self.network.place(case.inputs(), case.dtype)

        def compiled(call: Callable[[], Any]) -> Any:
            return call if eager else tf.function(call, autograph=False, jit_compile=True if xla else None)

        self._apply, self._differentiate = compiled(self._forwards), compiled(self._both_ways)

    @staticmethod
    def shapes(model: Model, sizes: Mapping[str, int]) -> dict[str, Shape]:
        return Network(model, sizes).shapes

    def losses(self, optimizer: Optimizer) -> Array:
        self._begin()
        losses = []
        with tf.device(self._device):
            parameters = self.network.parameters
            descent = Sgd(parameters, SGD["momentum"]) if optimizer == "sgd" else Adam(parameters)
            rate = tf.constant((SGD if optimizer == "sgd" else ADAM)["learning_rate"], self.case.dtype)
            for step in range(STEPS):
                loss, _, gradients = self._differentiate()
                losses.append(float(loss))
                if gradients and step < STEPS - 1:
                    descent.apply(gradients, rate, tf.constant(step, tf.int64))
        return np.array(losses)

    def _forward(self) -> Forward:
        # What differentiates has gone forward: no second program for a side that was asked for both.
        if "_first" not in vars(self):
            return self._told(*self._run(self._apply))
        return self._first[0]

    def _backward(self) -> Backward:
        return self._first[1]

    @functools.cached_property
    def _first(self) -> tuple[Forward, Backward]:
        """At the canonical weights, where every trajectory starts."""
        loss, output, gradients = self._run(self._differentiate)
        named = zip(self.network.trained, gradients, strict=True)
        found = {name: self.network.canonical(name, gradient.numpy()) for name, gradient in named}
        # Of what is frozen.
        rest = {name: np.zeros(shape, self.case.dtype) for name, shape in self.network.frozen.items()}
        return self._told(loss, output), Backward(float(loss), {**rest, **found})

    def _told(self, loss: Any, output: Any) -> Forward:
        return Forward(output.numpy(), float(loss), self.network.statistics())

    def _run(self, call: Callable[[], Any]) -> Any:
        self._begin()
        with tf.device(self._device):
            return call()

    def _begin(self) -> None:
        """Set the network to the canonical weights, which a call or a step changes."""
        convolutions.choose(self._form)
        with tf.device(self._device):
            self.network.load(self._weights)

    def _forwards(self) -> tuple[Any, Any]:
        with self._mode():
            return self._answers()

    def _both_ways(self) -> tuple[Any, Any, list[Any]]:
        parameters = self.network.parameters
        with self._mode():
            with tf.GradientTape() as tape:
                loss, output = self._answers()
            gradients = tape.gradient(loss, parameters, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        return loss, output, [tf.convert_to_tensor(gradient) for gradient in gradients]

    def _answers(self) -> tuple[Any, Any]:
        output = self.network.apply(self._inputs, train=self.case.mode == "train")
        return self._loss(output), output

    @contextlib.contextmanager
    def _mode(self) -> Iterator[None]:
        """The case's mode; new running statistics are there at its end."""
        if self.case.mode == "eval":
            yield
            return
        # Nothing of it is random.
        with training(seed=None) as step:
            yield
        step.assign()

    def _loss(self, output: Any) -> Any:
        if not self.network.shapes:
            return tf.constant(np.nan)
        wanted = self.case.targets(tuple(output.shape))
        return self._criterion(output, *(() if wanted is None else (tf.convert_to_tensor(wanted),)))
