"""Small networks that draw random numbers in training mode: of one architecture, each with its own way to draw."""

import functools

import jax
import jax.numpy as jnp
import torch
from flax import nnx
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

WIDTH = 8


class TorchNet(nn.Module):
    def __init__(self, draw):
        super().__init__()
        self.up, self.head, self.draw = nn.Linear(6, WIDTH), nn.Linear(WIDTH, 3), draw

    def forward(self, x):  # (batch, 6)
        x = torch.tanh(self.up(x))
        return self.head(self.draw(x) if self.training else x)


class TorchImages(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.drop, self.head = nn.Conv2d(3, WIDTH, 3), nn.Dropout(0.1), nn.Linear(WIDTH, 3)

    def forward(self, x):
        return self.head(self.drop(self.up(x)).mean((2, 3)))


class JaxNet(nnx.Module):
    def __init__(self, draw, rngs):
        self.up, self.head = nnx.Linear(6, WIDTH, rngs=rngs), nnx.Linear(WIDTH, 3, rngs=rngs)
        self.draw, self.rngs = draw, rngs.fork()

    def __call__(self, x, train):
        x = jnp.tanh(self.up(x))
        return self.head(self.draw(x, self.rngs) if train else x)


class JaxImages(nnx.Module):
    def __init__(self, rngs):
        self.up = nnx.Conv(3, WIDTH, (3, 3), padding="VALID", rngs=rngs)
        self.drop, self.head = nnx.Dropout(0.1, rngs=rngs), nnx.Linear(WIDTH, 3, rngs=rngs)

    def __call__(self, x):
        return self.head(self.drop(self.up(x)).mean((1, 2)))


def masked(x, key, rate=0.1, shape=None, scale=None):
    kept = jax.random.bernoulli(key, 1 - rate, shape or x.shape)
    return jnp.where(kept, x / (1 - rate) if scale is None else x * scale, 0)


def in_scan(x, rngs):
    def layer(x, key):
        return masked(jnp.sin(x), key), None

    return jax.lax.scan(jax.checkpoint(layer), x, jax.random.split(rngs.dropout(), 3))[0]


def in_vmap(x, rngs):
    return jax.vmap(masked)(x, jax.random.split(rngs.dropout(), len(x)))


def with_one_key(x, rngs, first=masked, second=masked):
    key = rngs.dropout()
    return first(x, key) + second(x, key)


def noisy(x, key, spread=0.1, shape=None):
    return x + spread * jax.random.normal(key, shape or x.shape, x.dtype)


def one_each(x):
    return x * torch.floor(0.9 + torch.rand(len(x), 1)) / 0.9


def three(x):
    for _ in range(3):
        x = checkpoint(lambda x: F.dropout(torch.sin(x), 0.1), x, use_reentrant=False)
    return x


# A way to draw in PyTorch, and ways to do so in JAX: right ones, and wrong ones.
WAYS = {
    "dropout": (
        lambda x: F.dropout(x, 0.1),
        {
            "bernoulli": lambda x, rngs: masked(x, rngs.dropout()),
            "above the rate": lambda x, rngs: x * (jax.random.uniform(rngs.dropout(), x.shape) > 0.1) / 0.9,
            "vmap": in_vmap,
        },
        {
            "0.1001": lambda x, rngs: masked(x, rngs.dropout(), 0.1001),
            "not scaled": lambda x, rngs: masked(x, rngs.dropout(), scale=1),
            "rows": lambda x, rngs: masked(x, rngs.dropout(), shape=(len(x), 1)),
            "one key for all samples": lambda x, rngs: jax.vmap(masked, (0, None))(x, rngs.dropout()),
            "constant": lambda x, rngs: masked(x, jax.random.key(0)),
        },
    ),
    "of the branch": (
        lambda x: x + F.dropout(torch.sin(x), 0.1),
        {"bernoulli": lambda x, rngs: x + masked(jnp.sin(x), rngs.dropout())},
        {
            "of the sum": lambda x, rngs: masked(x + jnp.sin(x), rngs.dropout()),
        },
    ),
    "depth": (
        one_each,
        {"bernoulli": lambda x, rngs: masked(x, rngs.dropout(), shape=(len(x), 1))},
        {
            "0.12": lambda x, rngs: masked(x, rngs.dropout(), 0.12, shape=(len(x), 1)),
            "of the batch": lambda x, rngs: masked(x, rngs.dropout(), shape=(1, 1)),
        },
    ),
    "two of two sizes": (
        lambda x: F.dropout(one_each(x), 0.1),
        {"bernoulli": lambda x, rngs: masked(masked(x, rngs.dropout(), shape=(len(x), 1)), rngs.dropout())},
        {"one key": lambda x, rngs: with_one_key(x, rngs, functools.partial(masked, shape=(len(x), 1)))},
    ),
    "noise": (
        lambda x: x + 0.1 * torch.randn_like(x),
        {"normal": lambda x, rngs: noisy(x, rngs.dropout())},
        {"0.13": lambda x, rngs: noisy(x, rngs.dropout(), 0.13)},
    ),
    "twice": (
        lambda x: F.dropout(x, 0.1) + F.dropout(x, 0.1),
        {"two keys": lambda x, rngs: masked(x, rngs.dropout()) + masked(x, rngs.dropout())},
        {"one key": with_one_key},
    ),
    "loop": (three, {"scan": in_scan}, {"once": lambda x, rngs: masked(jnp.sin(jnp.sin(jnp.sin(x))), rngs.dropout())}),
}
PAIRS = [(way, other) for way, (_, right, wrong) in WAYS.items() for other in right | wrong]


def _builders(draw):
    return lambda: TorchNet(draw), lambda rngs: JaxNet(draw, rngs)


# Builders of the networks, by names that an import path can have.
globals().update({f"torch_{number}": _builders(draw)[0] for number, (draw, _, _) in enumerate(WAYS.values())})
globals().update(
    {f"jax_{i}": _builders((WAYS[way][1] | WAYS[way][2])[other])[1] for i, (way, other) in enumerate(PAIRS)}
)
