"""Numerics of layers: epsilons, variances, activations, gates, axes, rotation, padding, resizing, pooling."""

import jax
import jax.numpy as jnp
from flax import nnx


class NormOf(nnx.Module):
    def __init__(self, rngs, normed):
        self.up, self.down = nnx.Linear(24, 48, rngs=rngs), nnx.Linear(48, 10, rngs=rngs)
        self.weight = nnx.Param(jnp.ones(48))
        self.normed = normed

    def __call__(self, x):
        return self.down(self.weight[...] * self.normed(self.up(x)))


def epsilon_outside(rngs):
    return NormOf(rngs, lambda x: (x - x.mean(-1, keepdims=True)) / (jnp.std(x, -1, keepdims=True) + 1e-5))


def unbiased(rngs):
    return NormOf(
        rngs, lambda x: (x - x.mean(-1, keepdims=True)) / jnp.sqrt(jnp.var(x, -1, ddof=1, keepdims=True) + 1e-5)
    )


def moments(rngs):
    def normed(x):
        mean, square = x.mean(-1, keepdims=True), (x * x).mean(-1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(square - mean * mean + 1e-5)

    return NormOf(rngs, normed)


class GruOf(nnx.Module):
    def __init__(self, rngs, step):
        self.into, self.hidden = nnx.Linear(16, 96, rngs=rngs), nnx.Linear(32, 96, rngs=rngs)
        self.step = step

    def __call__(self, x):
        def body(h, inputs):
            return self.step(h, jnp.split(inputs, 3, -1), jnp.split(self.hidden(h), 3, -1)), None

        return jax.lax.scan(body, jnp.zeros((x.shape[0], 32), x.dtype), self.into(x).swapaxes(0, 1))[0]


def gru_in_scan(rngs):
    def step(h, inputs, state):
        r, z = (jax.nn.sigmoid(inputs[i] + state[i]) for i in (0, 1))
        n = jnp.tanh(inputs[2] + r * state[2])
        return n + z * (h - n)

    return GruOf(rngs, step)


def gru_update_swapped(rngs):
    def step(h, inputs, state):
        r, z = (jax.nn.sigmoid(inputs[i] + state[i]) for i in (0, 1))
        return z * jnp.tanh(inputs[2] + r * state[2]) + (1 - z) * h

    return GruOf(rngs, step)


class LstmOf(nnx.Module):
    def __init__(self, rngs, order="ifgo"):
        self.cell = nnx.Dict(
            weight_ih=nnx.Param(jnp.zeros((96, 16))),
            weight_hh=nnx.Param(jnp.zeros((96, 24))),
            bias_ih=nnx.Param(jnp.zeros(96)),
            bias_hh=nnx.Param(jnp.zeros(96)),
        )
        self.head = nnx.Linear(24, 10, rngs=rngs)
        self.order = order

    def __call__(self, x):
        h = c = jnp.zeros((x.shape[0], 24), x.dtype)
        weights = {name: variable[...] for name, variable in self.cell.items()}
        for step in range(x.shape[1]):
            gates = x[:, step] @ weights["weight_ih"].T + weights["bias_ih"] + h @ weights["weight_hh"].T
            gate = dict(zip(self.order, jnp.split(gates + weights["bias_hh"], 4, -1), strict=True))
            c = jax.nn.sigmoid(gate["f"]) * c + jax.nn.sigmoid(gate["i"]) * jnp.tanh(gate["g"])
            h = jax.nn.sigmoid(gate["o"]) * jnp.tanh(c)
        return self.head(h)


def lstm_of_another_order(rngs):
    return LstmOf(rngs, "ifog")


class RotaryOf(nnx.Module):
    def __init__(self, rngs, interleaved=False, axis=-1):
        self.qkv, self.out = nnx.Linear(32, 96, rngs=rngs), nnx.Linear(32, 10, rngs=rngs)
        self.interleaved, self.axis = interleaved, axis

    def turned(self, x):
        half = x.shape[-1] // 2
        angle = jnp.arange(x.shape[1], dtype=x.dtype)[:, None] * 100.0 ** (-jnp.arange(half, dtype=x.dtype) / half)
        turn = jax.lax.complex(jnp.cos(angle), jnp.sin(angle))
        if self.interleaved:
            z = jax.lax.complex(x[..., 0::2], x[..., 1::2]) * turn
            return jnp.stack([z.real, z.imag], -1).reshape(x.shape)
        z = jax.lax.complex(x[..., :half], x[..., half:]) * turn
        return jnp.concatenate([z.real, z.imag], -1)

    def __call__(self, x):
        q, k, v = jnp.split(self.qkv(x), 3, -1)
        weights = jax.nn.softmax(jnp.einsum("bqd,bkd->bqk", self.turned(q), self.turned(k)) / 32**0.5, self.axis)
        return self.out(jnp.einsum("bqk,bkd->bqd", weights, v).mean(1))


def rotary_interleaved(rngs):
    return RotaryOf(rngs, interleaved=True)


def softmax_over_queries(rngs):
    return RotaryOf(rngs, axis=1)


class ImagesOf(nnx.Module):
    def __init__(self, rngs, padding=((1, 1), (1, 1)), counted=False, corners=False, tanh=False):
        self.conv = nnx.Conv(3, 16, (3, 3), strides=2, padding=padding, rngs=rngs)
        self.head = nnx.Linear(16, 10, rngs=rngs)
        self.counted, self.corners, self.tanh = counted, corners, tanh

    def resized(self, x):
        if not self.corners:
            return jax.image.resize(x, (x.shape[0], 16, 16, x.shape[3]), "bilinear")
        at = jnp.linspace(0, 7, 16, dtype=x.dtype)
        weights = jnp.maximum(0, 1 - jnp.abs(at[:, None] - jnp.arange(8)))
        return jnp.einsum("ip,jq,bpqc->bijc", weights, weights, x)

    def __call__(self, x):
        x = jax.nn.gelu(self.conv(x), approximate=self.tanh)
        x = nnx.avg_pool(x, (3, 3), strides=(1, 1), padding="SAME", count_include_pad=self.counted)
        return self.head((self.resized(x) ** 2).mean((1, 2)))


def same_at_stride_2(rngs):
    return ImagesOf(rngs, padding="SAME")


def padding_counted(rngs):
    return ImagesOf(rngs, counted=True)


def corners_aligned(rngs):
    return ImagesOf(rngs, corners=True)


def tanh_gelu(rngs):
    return ImagesOf(rngs, tanh=True)
