"""Networks in JAX as others write them: what their calls take besides inputs, and how they name and lay out weights."""

import sys
from types import ModuleType
from typing import NamedTuple

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp


class OwnInit(nn.Module):
    """Its `init` takes a key alone."""

    @nn.compact
    def __call__(self, x):
        return nn.Dense(3, name="head")(x)

    def init(self, rng):
        return super().init(rng, jnp.zeros((1, 4)))


class Requiring(nn.Module):
    """Requires a mask, which may be None, and names the mode in its own way."""

    @nn.compact
    def __call__(self, x, mask, *, is_training):
        assert mask is None
        return nn.Dense(3, name="head")(nn.Dropout(0.5, deterministic=not is_training)(x))


class RandomInAttention(nn.Module):
    """Draws random numbers in training outside of Dropout."""

    @nn.compact
    def __call__(self, x, train):
        attention = nn.MultiHeadDotProductAttention(2, dropout_rate=0.5, deterministic=not train, name="attn")
        return attention(x)


class Attention(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.MultiHeadDotProductAttention(2, name="attn")(x)


class Insisting(eqx.Module):
    """Refuses to be called without a key, also where nothing is random."""

    head: eqx.nn.Linear

    def __init__(self, key):
        self.head = eqx.nn.Linear(4, 3, key=key)

    def __call__(self, x, *, key):
        if key is None:
            raise RuntimeError("a key is required")
        return self.head(x)


class Transformed(NamedTuple):
    """As Haiku's `transform_with_state` returns it."""

    init: object
    apply: object


Transformed.__module__ = "haiku._src.transform"


def transformed():
    """A linear layer, dropout and batch normalisation in Haiku's form, which need not be installed."""
    haiku = sys.modules.setdefault("haiku", ModuleType("haiku"))
    haiku.dropout = lambda rng, rate, x: x * jax.random.bernoulli(rng, 1 - rate, x.shape) / (1 - rate)

    def init(rng, x, is_training):
        weights = {"net/~/linear": {"w": jnp.zeros((4, 3)), "b": jnp.zeros(3)}}
        weights["net/~/norm"] = {"scale": jnp.ones((1, 3)), "offset": jnp.zeros((1, 3))}
        averages = {
            f"net/~/norm/~/{name}_ema": {"hidden": jnp.zeros((1, 3)), "average": jnp.ones((1, 3))}
            for name in ("mean", "var")
        }
        return weights, averages

    def apply(params, state, rng, x, is_training):
        y = x @ params["net/~/linear"]["w"] + params["net/~/linear"]["b"]
        if is_training:
            y = haiku.dropout(rng, 0.5, y)
        mean, var = (state[f"net/~/norm/~/{name}_ema"]["average"] for name in ("mean", "var"))
        norm = params["net/~/norm"]
        after = {path: {**old, "average": old["average"] * 0.9} for path, old in state.items()}
        return (y - mean) / jnp.sqrt(var + 1e-5) * norm["scale"] + norm["offset"], after

    return Transformed(init, apply)
