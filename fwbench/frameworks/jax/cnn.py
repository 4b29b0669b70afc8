"""The small CNN of the three-framework study, as docs/models.md defines it."""

import jax
from flax import nnx

from fwbench.frameworks.jax.layers import Array, conv, global_average_pool, max_pool


class CNN(nnx.Module):
    """Logits of shape (batch, 10) from images of shape (batch, height, width, 3)."""

    def __init__(self, rngs: nnx.Rngs):
        self.conv1 = conv(3, 32, 3, bias=True, rngs=rngs)
        self.conv2 = conv(32, 64, 3, bias=True, rngs=rngs)
        self.conv3 = conv(64, 128, 3, bias=True, rngs=rngs)
        self.fc = nnx.Linear(128, 10, rngs=rngs)

    def __call__(self, x: Array, rngs: nnx.Rngs | None = None) -> Array:
        x = max_pool(jax.nn.relu(self.conv1(x)), 2, 2)
        x = max_pool(jax.nn.relu(self.conv2(x)), 2, 2)
        x = jax.nn.relu(self.conv3(x))
        return self.fc(global_average_pool(x))
