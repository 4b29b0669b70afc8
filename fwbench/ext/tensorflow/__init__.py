"""TensorFlow: its lanes, and the networks in Keras 3, called through `tf.function`."""

from fwbench.extensions import Extension

EXTENSION = Extension(lanes="fwbench.ext.tensorflow.lanes:LANES")
