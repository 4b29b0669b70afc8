"""Mistakes that show only away from the initial weights: scales of zero, layer scale, gates."""
# ruff: noqa: N801, N802 (a twin has the name of its network)

import jax
import jax.numpy as jnp
from flax import nnx


def dense(weights, x):
    return jnp.einsum("...i,oi->...o", x, weights["weight"]) + weights["bias"]


def init(key):
    shapes = {"up": (48, 24), "down": (24, 48), "head": (10, 24)}
    layers = {name: {"weight": jnp.zeros(shape), "bias": jnp.zeros(shape[0])} for name, shape in shapes.items()}
    return {**layers, "gamma": jnp.full(24, 1e-6)}


def Scaled():
    def apply(w, x):
        hidden = jnp.tanh(dense(w["up"], x))
        scaled = {name: (w["gamma"] * array.T).T for name, array in w["down"].items()}
        return dense(w["head"], x + dense(scaled, hidden))

    return init, apply


def scale_of_one_for_the_bias():
    def apply(w, x):
        block = dense({**w["down"], "bias": 0}, jnp.tanh(dense(w["up"], x)))
        return dense(w["head"], x + w["gamma"] * block + 1e-6 * w["down"]["bias"])

    return init, apply


def scale_without_sign():
    def apply(w, x):
        return dense(w["head"], x + jnp.abs(w["gamma"]) * dense(w["down"], jnp.tanh(dense(w["up"], x))))

    return init, apply


class Gate(nnx.Module):
    def __init__(self, rngs, opened=lambda gate: 2 * jax.nn.sigmoid(2 * gate) - 1):
        self.up, self.head = nnx.Linear(24, 24, rngs=rngs), nnx.Linear(24, 10, rngs=rngs)
        self.gate = nnx.Param(jnp.zeros(1))
        self.opened = opened

    def __call__(self, x):
        return self.head(x + self.opened(self.gate[...]) * jnp.tanh(self.up(x)))


def gate_without_tanh(rngs):
    return Gate(rngs, lambda gate: gate)


def gate_by_sine(rngs):
    return Gate(rngs, jnp.sin)


class Adapter(nnx.Module):
    def __init__(self, rngs, scale=4.0):
        self.base = nnx.Linear(24, 10, rngs=rngs)
        self.down, self.up = (nnx.Linear(i, o, use_bias=False, rngs=rngs) for i, o in ((24, 4), (4, 10)))
        self.scale = scale

    def __call__(self, x):
        return (
            x @ (self.base.kernel[...] + self.scale * self.down.kernel[...] @ self.up.kernel[...]) + self.base.bias[...]
        )


def adapter_unscaled(rngs):
    return Adapter(rngs, 1.0)


class Temperature(nnx.Module):
    def __init__(self, rngs, warmed=lambda t: jnp.exp(jnp.minimum(t, 4.6))):
        self.up, self.head = nnx.Linear(24, 32, rngs=rngs), nnx.Linear(32, 10, rngs=rngs)
        self.temperature = nnx.Param(jnp.zeros(1))
        self.warmed = warmed

    def __call__(self, x):
        return self.warmed(self.temperature[...]) * self.head(jnp.tanh(self.up(x)))


def temperature_linear(rngs):
    return Temperature(rngs, lambda t: 1 + jnp.minimum(t, 4.6))


def temperature_unlimited(rngs):
    return Temperature(rngs, jnp.exp)


class Bias(nnx.Module):
    def __init__(self, rngs):
        self.qk, self.head = nnx.Linear(24, 48, rngs=rngs), nnx.Linear(24, 10, rngs=rngs)
        self.table = nnx.Param(jnp.zeros(31))

    def bias(self):
        return jnp.stack([jax.lax.dynamic_slice(self.table[...], (15 - query,), (16,)) for query in range(16)])

    def __call__(self, x):
        q, k = jnp.split(self.qk(x), 2, -1)
        weights = jax.nn.softmax(jnp.einsum("bqd,bkd->bqk", q, k) / 24**0.5 + self.bias())
        return self.head(jnp.einsum("bqk,bkd->bqd", weights, x))[:, 3]


class bias_reversed(Bias):
    def bias(self):
        return super().bias().T


class Modulated(nnx.Module):
    def __init__(self, rngs, reverse=False):
        self.modulation, self.head = nnx.Linear(16, 48, rngs=rngs), nnx.Linear(24, 10, rngs=rngs)
        self.norm = nnx.LayerNorm(24, epsilon=1e-5, use_bias=False, use_scale=False, rngs=rngs)
        self.reverse = reverse

    def __call__(self, x, c):
        parts = jnp.split(self.modulation(jnp.tanh(c)), 2, -1)
        shift, scale = parts[::-1] if self.reverse else parts
        x = self.norm(x)
        return self.head(x + x * scale + shift)


def shift_for_scale(rngs):
    return Modulated(rngs, reverse=True)
