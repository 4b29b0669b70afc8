"""Random layers: rates, places, scales, and stochastic depth."""
# ruff: noqa: N801 (a twin has the name of its network)

import jax
import jax.numpy as jnp
from flax import nnx


class Dropped(nnx.Module):
    """Dropout before the ReLU, which is the same as after it."""

    def __init__(self, rngs, rate=0.1):
        self.up, self.down = nnx.Linear(24, 64, rngs=rngs), nnx.Linear(64, 10, rngs=rngs)
        self.drop = nnx.Dropout(rate, rngs=rngs)

    def __call__(self, x, deterministic):
        return self.down(jax.nn.relu(self.drop(self.up(x), deterministic=deterministic)))


def rate_of_twelve(rngs):
    return Dropped(rngs, 0.12)


class ByHand(Dropped):
    scale, keep = 1 / 0.7, 0.7

    def __call__(self, x, deterministic):
        x = jax.nn.relu(self.up(x))
        if not deterministic:
            x = jnp.where(jax.random.bernoulli(self.drop.rngs(), self.keep, x.shape), x * self.scale, 0)
        return self.down(x)


class dropped_by_hand(ByHand):
    pass


class dropped_and_not_scaled(ByHand):
    scale = 1


class kept_at_the_rate(ByHand):
    scale, keep = 1 / 0.3, 0.3


class Branch(nnx.Module):
    def __init__(self, rngs):
        self.up, self.head = nnx.Linear(24, 24, rngs=rngs), nnx.Linear(24, 10, rngs=rngs)
        self.drop = nnx.Dropout(0.2, rngs=rngs)

    def __call__(self, x, train):
        self.drop.deterministic = not train
        return self.head(self.added(x, jnp.tanh(self.up(x))))

    def added(self, x, branch):
        return self.drop(branch) + x


class dropout_of_the_sum(Branch):
    def added(self, x, branch):
        return self.drop(x + branch)


class dropout_of_the_stem(Branch):
    def added(self, x, branch):
        return self.drop(x) + branch


class Deep(nnx.Module):
    rate = 0.25

    def __init__(self, rngs):
        self.up, self.head = nnx.Linear(24, 24, rngs=rngs), nnx.Linear(24, 10, rngs=rngs)
        self.rngs = rngs.fork()

    def shape(self, x):
        return (x.shape[0], 1)

    def __call__(self, x, train):
        branch = jnp.tanh(self.up(x))
        if train:
            kept = jax.random.uniform(self.rngs.dropout(), self.shape(x)) >= self.rate
            branch = jnp.where(kept, branch / 0.75, 0)
        return self.head(x + branch)


class depth_of_the_batch(Deep):
    def shape(self, x):
        return (1, 1)


class depth_of_each_number(Deep):
    def shape(self, x):
        return x.shape


class Channels(nnx.Module):
    axes = (1,)

    def __init__(self, rngs):
        self.up, self.head = nnx.Linear(16, 32, rngs=rngs), nnx.Linear(32, 10, rngs=rngs)
        self.drop = nnx.Dropout(0.2, broadcast_dims=self.axes, rngs=rngs)

    def __call__(self, x, train):
        return self.head(self.drop(jnp.tanh(self.up(x)), deterministic=not train).mean(1))


class each_place_on_its_own(Channels):
    axes = ()


class Noise(nnx.Module):
    spread = 0.1

    def __init__(self, rngs):
        self.up, self.down = nnx.Linear(24, 32, rngs=rngs), nnx.Linear(32, 10, rngs=rngs)
        self.rngs = rngs.fork()

    def __call__(self, x, train):
        x = jnp.tanh(self.up(x))
        if train:
            x = x + self.spread * jax.random.normal(self.rngs.dropout(), x.shape, x.dtype)
        return self.down(x)


class noise_of_thirteen(Noise):
    spread = 0.13


class Attention(nnx.Module):
    def __init__(self, rngs):
        self.qkv, self.out = nnx.Linear(32, 96, rngs=rngs), nnx.Linear(32, 10, rngs=rngs)
        self.drop = nnx.Dropout(0.1, rngs=rngs)

    def dropped(self, scores, drop):
        return drop(jax.nn.softmax(scores))

    def __call__(self, x, train):
        q, k, v = jnp.split(self.qkv(x), 3, -1)
        weights = self.dropped(q @ k.mT / 32**0.5, lambda x: self.drop(x, deterministic=not train))
        return self.out((weights @ v).mean(1))


class dropped_scores(Attention):
    def dropped(self, scores, drop):
        return jax.nn.softmax(drop(scores))
