"""Modes: training differs and inference is alike, or the reverse."""
# ruff: noqa: N801 (a twin has the name of its network)

import jax
import jax.numpy as jnp
from flax import linen, nnx
from in_jax.state import Batch


class Stack(nnx.Module):
    def __init__(self, rngs):
        self.up, self.down = nnx.Linear(24, 32, rngs=rngs), nnx.Linear(32, 10, rngs=rngs)

    def __call__(self, x, train):
        return self.down(self.hidden(self.up(x), train))


class Gated(Stack):
    def hidden(self, x, train):
        return jax.lax.select(jnp.full(x.shape, train), x * jax.nn.sigmoid(4 * x), jax.nn.relu(x))


class gate_always_soft(Stack):
    def hidden(self, x, train):
        return x * jax.nn.sigmoid(4 * x)


class gate_always_hard(Stack):
    def hidden(self, x, train):
        return jax.nn.relu(x)


class gate_reversed(Stack):
    def hidden(self, x, train):
        return jax.nn.relu(x) if train else x * jax.nn.sigmoid(4 * x)


@jax.custom_vjp
def sign(x):
    return jnp.sign(x)


sign.defvjp(lambda x: (jnp.sign(x), None), lambda _, gradient: (gradient,))


class Straight(Stack):
    def hidden(self, x, train):
        return sign(x)


class straight_without_gradient(Stack):
    def hidden(self, x, train):
        return jnp.sign(x)


class straight_within_one(Stack):
    def hidden(self, x, train):
        kept = jnp.clip(x, -1, 1)
        return kept + jax.lax.stop_gradient(jnp.sign(x) - kept)


class sharp_in_training(Stack):
    def hidden(self, x, train):
        return jnp.tanh(x) / 2


class Sharp(linen.Module):
    @linen.compact
    def __call__(self, x, deterministic):
        x = jnp.tanh(linen.Dense(32, name="up")(x))
        return linen.Dense(10, name="down")(x * (0.5 if deterministic else 1.0))


class Experts(nnx.Module):
    def __init__(self, rngs):
        self.route, self.experts = nnx.Linear(16, 4, rngs=rngs), nnx.Linear(16, 40, rngs=rngs)

    def __call__(self, x, train):
        logits, each = self.route(x), self.experts(x).reshape(-1, 4, 10)
        if train:
            return jnp.einsum("be,beo->bo", jax.nn.softmax(logits), each)
        return jnp.take_along_axis(each, jnp.argmax(logits, -1)[:, None, None], 1)[:, 0]


class experts_mixed_in_inference(Experts):
    def __call__(self, x, train):
        return super().__call__(x, True)


class frozen(nnx.Module):
    def __init__(self, rngs):
        self.up, self.down = nnx.Linear(24, 32, rngs=rngs), nnx.Linear(32, 10, rngs=rngs)
        self.norm = nnx.BatchNorm(32, momentum=0.9, epsilon=1e-5, rngs=rngs)

    def __call__(self, x, train):
        return self.down(jax.nn.relu(self.norm(self.up(x), use_running_average=True)))


class batch_in_inference(Batch):
    def __call__(self, x, train):
        x = self.up(x)
        normed = self.norm(x, train)
        if not train:
            normed = (x - x.mean(0)) / jnp.sqrt(x.var(0) + 1e-5) * self.norm.weight[...] + self.norm.bias[...]
        return self.down(jax.nn.relu(normed))
