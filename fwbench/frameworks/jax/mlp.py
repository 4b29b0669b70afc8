"""The MNIST MLP: 784-256-128-10 with ReLU."""

import jax
from flax import nnx

from fwbench.frameworks.jax.layers import Array


class MLP(nnx.Module):
    """Logits of shape (batch, 10) from flat pixels of shape (batch, 784)."""

    def __init__(self, rngs: nnx.Rngs):
        self.fc1 = nnx.Linear(784, 256, rngs=rngs)
        self.fc2 = nnx.Linear(256, 128, rngs=rngs)
        self.fc3 = nnx.Linear(128, 10, rngs=rngs)

    def __call__(self, x: Array, rngs: nnx.Rngs | None = None) -> Array:
        x = jax.nn.relu(self.fc1(x))
        x = jax.nn.relu(self.fc2(x))
        return self.fc3(x)
