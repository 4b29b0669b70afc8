"""The block of `sides_torch` in Flax NNX, the same in another order, and with another scale."""

import jax
import jax.numpy as jnp
from flax import nnx

WIDTH = 32


class Base(nnx.Module):
    scale = WIDTH**-0.5

    def __init__(self, rngs: nnx.Rngs):
        self.norm = nnx.LayerNorm(WIDTH, epsilon=1e-5, rngs=rngs)
        self.qkv = nnx.Linear(WIDTH, 3 * WIDTH, rngs=rngs)
        self.head = nnx.Linear(WIDTH, 5, rngs=rngs)

    def attend(self, q, k, v):
        return jax.nn.softmax(q @ k.swapaxes(1, 2) * self.scale, -1) @ v

    def __call__(self, x):
        q, k, v = jnp.split(self.qkv(self.norm(x)), 3, -1)
        return self.head((x + self.attend(q, k, v)).mean(1))


class Reordered(Base):
    def attend(self, q, k, v):
        return super().attend(q, k[:, ::-1], v[:, ::-1])

    def __call__(self, x):
        q, k, v = jnp.split(self.qkv(self.norm(x)), 3, -1)
        pooled = (x + self.attend(q, k, v))[:, ::-1].sum(1) / x.shape[1]
        return (pooled[:, :, None] * self.head.kernel[...])[:, ::-1].sum(1) + self.head.bias[...]


class Scaled(Base):
    scale = WIDTH**-0.5 * 1.02
