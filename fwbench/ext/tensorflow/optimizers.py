"""Adam and SGD as PyTorch defines them, by TensorFlow's fused training operators.

Keras's own optimizers differ from PyTorch's. Its Adam adds epsilon before it corrects the second moment's bias, which
makes epsilon up to thirty times as large in the first steps; its SGD multiplies the learning rate into the momentum, so
that a schedule acts late. The operators below leave both to their caller.
"""

import math
from collections.abc import Sequence
from typing import Any

from fwbench.ext.tensorflow.imported import tf
from fwbench.ext.tensorflow.layers import Tensor


class Sgd:
    """Gradient descent with momentum.

    Attributes:
        held: the optimizer's own variables.
        first: those of `held` that are first moments, one for each parameter.
    """

    def __init__(self, parameters: Sequence[Any], momentum: float) -> None:
        self.parameters, self._momentum = list(parameters), momentum
        self.held = self.first = _zeros(parameters)

    def apply(self, gradients: Sequence[Tensor], rate: Tensor, step: Tensor) -> None:
        """Make a step at a learning rate, after `step` others."""
        for parameter, velocity, gradient in zip(self.parameters, self.first, gradients, strict=True):
            tf.raw_ops.ResourceApplyMomentum(
                var=parameter.handle,
                accum=velocity.handle,
                lr=tf.cast(rate, parameter.dtype),
                grad=gradient,
                momentum=tf.constant(self._momentum, parameter.dtype),
            )


class Adam:
    """Adam (Kingma and Ba, arXiv:1412.6980) with its authors' constants, which PyTorch and optax have by default.

    Attributes are those of `Sgd`.
    """

    betas = (0.9, 0.999)
    epsilon = 1e-8

    def __init__(self, parameters: Sequence[Any]) -> None:
        self.parameters = list(parameters)
        self.first, self._second = _zeros(parameters), _zeros(parameters)
        self.held = [*self.first, *self._second]

    def apply(self, gradients: Sequence[Tensor], rate: Tensor, step: Tensor) -> None:
        """As `Sgd.apply`."""
        # The operator divides by sqrt(v) + epsilon and multiplies by the root of the second moment's correction. With
        # epsilon multiplied by that root too, this equals PyTorch's sqrt(v / correction) + epsilon.
        powers = [tf.pow(tf.constant(beta, rate.dtype), tf.cast(step + 1, rate.dtype)) for beta in self.betas]
        epsilon = self.epsilon * tf.sqrt(1 - powers[1])
        for parameter, *moments, gradient in zip(self.parameters, self.first, self._second, gradients, strict=True):
            kind = parameter.dtype
            tf.raw_ops.ResourceApplyAdam(
                var=parameter.handle,
                m=moments[0].handle,
                v=moments[1].handle,
                beta1_power=tf.cast(powers[0], kind),
                beta2_power=tf.cast(powers[1], kind),
                lr=tf.cast(rate, kind),
                beta1=tf.constant(self.betas[0], kind),
                beta2=tf.constant(self.betas[1], kind),
                epsilon=tf.cast(epsilon, kind),
                grad=gradient,
            )


def _zeros(parameters: Sequence[Any]) -> list[Any]:
    return [tf.Variable(tf.zeros_like(one), trainable=False) for one in parameters]


def cosine(rate: float, horizon: int, step: Tensor) -> Tensor:
    """The learning rate at a step, by the schedule of `fwbench.frameworks.training.cosine`."""
    share = tf.cast(tf.minimum(step, horizon), tf.float32) / horizon
    return rate * 0.5 * (1 + tf.cos(math.pi * share))
