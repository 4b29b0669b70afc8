"""Sizes: what is wrong only at another batch size or length than the first one."""
# ruff: noqa: N801 (a twin has the name of its network)

import jax
import jax.numpy as jnp
from flax import nnx


class Positions(nnx.Module):
    def __init__(self, rngs):
        self.table = nnx.Param(jnp.zeros((40, 24)))
        self.up, self.head = nnx.Linear(24, 24, rngs=rngs), nnx.Linear(24, 10, rngs=rngs)

    def at(self, length):
        return jnp.arange(length)

    def pooled(self, x):
        return x.mean(1)

    def __call__(self, x):
        return self.head(self.pooled(jnp.tanh(self.up(x) + jnp.take(self.table[...], self.at(x.shape[1]), 0))))


class positions_wrap(Positions):
    def at(self, length):
        return jnp.arange(length) % 16


class positions_stop(Positions):
    def at(self, length):
        return jnp.minimum(jnp.arange(length), 19)


class mean_of_sixteen(Positions):
    def pooled(self, x):
        return x.sum(1) / 16


class Heads(nnx.Module):
    def __init__(self, rngs):
        self.qkv, self.out = nnx.Linear(32, 96, rngs=rngs), nnx.Linear(32, 10, rngs=rngs)

    def joined(self, x):
        return jnp.einsum("bhld->blhd", x).reshape(x.shape[0], -1, 32)

    def __call__(self, x):
        q, k, v = jnp.moveaxis(self.qkv(x).reshape(*x.shape[:2], 3, 2, 16), 2, 0)
        weights = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k) / 4)
        return self.out(self.joined(jnp.einsum("bhqk,bkhd->bhqd", weights, v))).mean(1)


class samples_in_reverse(Heads):
    def joined(self, x):
        return super().joined(x)[::-1]


class batch_mixed_with_time(Heads):
    def joined(self, x):
        return x.transpose(2, 0, 1, 3).reshape(x.shape[0], -1, 32)


class Causal(nnx.Module):
    def __init__(self, rngs):
        self.qk, self.out = nnx.Linear(24, 48, rngs=rngs), nnx.Linear(24, 10, rngs=rngs)

    def seen(self, length):
        return jnp.tril(jnp.ones((length, length), bool))

    def __call__(self, x):
        q, k = jnp.split(self.qk(x), 2, -1)
        scores = jnp.where(self.seen(x.shape[1]), jnp.einsum("bqd,bkd->bqk", q, k), -jnp.inf)
        return self.out(jax.nn.softmax(scores) @ x)[:, -1]


class window_of_twenty(Causal):
    def seen(self, length):
        place = jnp.arange(length)
        return super().seen(length) & (place[:, None] - place < 20)


class Chunks(nnx.Module):
    def __init__(self, rngs):
        self.up, self.head = nnx.Linear(16, 32, rngs=rngs), nnx.Linear(32, 10, rngs=rngs)

    def __call__(self, x):
        decay = 0.9 ** jnp.arange(x.shape[1] - 1, -1, -1, dtype=x.dtype)
        return self.head(jnp.einsum("l,bld->bd", decay, jnp.tanh(self.up(x))))


class chunks_without_the_rest(Chunks):
    def __call__(self, x):
        return super().__call__(x[:, : x.shape[1] // 8 * 8])


class Centred(nnx.Module):
    def __init__(self, rngs):
        self.up, self.down = nnx.Linear(24, 32, rngs=rngs), nnx.Linear(32, 10, rngs=rngs)

    def __call__(self, x):
        return self.down(jax.vmap(lambda row: row - row.mean())(jnp.tanh(self.up(x))))


class centred_over_a_large_batch(Centred):
    def __call__(self, x):
        x = jnp.tanh(self.up(x))
        return self.down(x - x.mean(1, keepdims=True) - (x.mean(0) if x.shape[0] > 8 else 0))


class centred_unless_alone(Centred):
    def __call__(self, x):
        return super().__call__(x) if x.shape[0] > 1 else self.down(jnp.tanh(self.up(x)))
