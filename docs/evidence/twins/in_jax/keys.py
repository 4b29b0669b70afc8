"""Functional training with a key: rates, branches, keys used twice."""
# ruff: noqa: N801 (a twin has the name of its network)

import equinox as eqx
import jax
import jax.numpy as jnp
from flax import linen


class Twice(linen.Module):
    same: bool = False

    @linen.compact
    def __call__(self, x, train):
        x = jnp.tanh(linen.Dense(64, name="up")(x))
        if train:
            one = self.make_rng("dropout")
            other = one if self.same else self.make_rng("dropout")
            x = 2 * x * jax.random.bernoulli(one, 0.5, x.shape) + 2 * x * jax.random.bernoulli(other, 0.5, x.shape)
        else:
            x = 2 * x
        return linen.Dense(10, name="down")(x)


def key_used_twice():
    return Twice(same=True)


class Once(linen.Module):
    rate: float = 0.2
    constant: bool = False
    inverted: bool = False

    @linen.compact
    def __call__(self, x, deterministic):
        x = jnp.tanh(linen.Dense(64, name="up")(x))
        if deterministic == self.inverted:
            key = jax.random.key(0) if self.constant else self.make_rng("dropout")
            x = jnp.where(jax.random.bernoulli(key, self.rate, x.shape), 0, x / (1 - self.rate))
        return linen.Dense(10, name="down")(x)


def key_of_a_rate_of_twenty_five():
    return Once(rate=0.25)


def key_never_changes():
    return Once(constant=True)


def key_in_inference():
    return Once(inverted=True)


class InEquinox(eqx.Module):
    up: eqx.nn.Linear
    down: eqx.nn.Linear
    drop: eqx.nn.Dropout

    def __init__(self, key, rate=0.2):
        self.up, self.down = eqx.nn.Linear(24, 64, key=key), eqx.nn.Linear(64, 10, key=key)
        self.drop = eqx.nn.Dropout(rate)

    def __call__(self, x, key=None):
        return self.down(self.drop(jnp.tanh(self.up(x)), key=key))


class key_left_out(InEquinox):
    """No dropout."""

    def __call__(self, x, key=None):
        return self.down(jnp.tanh(self.up(x)))


def key_and_rate_in_equinox(key):
    return InEquinox(key, rate=0.15)
