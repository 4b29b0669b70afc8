"""Networks as users write them in TensorFlow."""

import keras
import numpy as np
import tensorflow as tf

from fwbench.ext.tensorflow.layers import BatchNorm


def sequential():
    """Keras's sequential model; its layers bear indices, as those of torch.nn.Sequential do."""
    return keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            keras.layers.Conv2D(4, 3, activation="relu"),
            keras.layers.DepthwiseConv2D(3),
            keras.layers.Dropout(0.5),
            keras.layers.Flatten(),
            keras.layers.Dense(5),
        ]
    )


def functional():
    """Keras's functional model of two inputs, which it takes as a dictionary."""
    left, right = keras.Input((6,), name="left"), keras.Input((6,), name="right")
    mixed = keras.layers.Dense(7, name="mix")(keras.layers.Concatenate(name="both")([left, right]))
    return keras.Model({"left": left, "right": right}, {"scores": keras.layers.Dense(5, name="head")(mixed)})


class Subclassed(keras.Model):
    """With weights that its layers make when they are first called, and Keras's own normalisation."""

    def __init__(self, width):
        super().__init__()
        self.steps = [keras.layers.Dense(width), keras.layers.BatchNormalization()]
        self.head = keras.layers.Dense(5)

    def call(self, x, training=False):
        for step in self.steps:
            x = step(x, training=training) if isinstance(step, keras.layers.BatchNormalization) else step(x)
        return self.head(tf.nn.relu(x))


class Normalised(keras.Model):
    """With fwbench's normalisation, which does as PyTorch's."""

    def __init__(self):
        super().__init__()
        self.conv = keras.layers.Conv2D(4, 3, padding="same")
        self.bn = BatchNorm(4)
        self.head = keras.layers.Dense(5)

    def call(self, x):
        return self.head(tf.reduce_mean(tf.nn.relu(self.bn(self.conv(x))), (1, 2)))


def function(left, right):
    """A plain function of the inputs."""
    return tf.matmul(left[:, :, None], right[:, None, :])


def number():
    """No network."""
    return 3


def squared(output):
    """A loss without targets."""
    return tf.reduce_mean(output**2)


def broken():
    raise RuntimeError("no such thing")


def dense():
    return keras.Sequential([keras.layers.Dense(3), keras.layers.Dense(2)])


def transposed(weights):
    return {name.replace("kernel", "weight"): array.T for name, array in weights.items()}


def joined(weights):
    return {"all": np.concatenate([array.ravel() for array in weights.values()])}


def nothing(weights):
    return {}
