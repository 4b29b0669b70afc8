"""TensorFlow: the networks in Keras 3, called through `tf.function`."""

from fwbench.frameworks.tensorflow.adapter import FRAMEWORK

__all__ = ["FRAMEWORK"]
