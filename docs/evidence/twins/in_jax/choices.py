"""Choices that no ordinary draw takes: masks, padding, ignored targets, floors, zero rows, clipping, counters."""
# ruff: noqa: N801 (a twin has the name of its network)

import equinox as eqx
import jax
import jax.numpy as jnp
from flax import nnx


class Pool(nnx.Module):
    def __init__(self, rngs, masked=True, floor=1):
        self.embed, self.head = nnx.Embed(60, 32, rngs=rngs), nnx.Linear(32, 10, rngs=rngs)
        self.masked, self.floor = masked, floor

    def __call__(self, ids, mask):
        x = self.embed(ids)
        if not self.masked:
            return self.head(x.mean(1))
        mask = mask.astype(x.dtype)
        return self.head(jnp.einsum("bld,bl->bd", x, mask) / jnp.maximum(mask.sum(1), self.floor)[:, None])


def pool_unmasked(rngs):
    return Pool(rngs, masked=False)


def pool_without_floor(rngs):
    return Pool(rngs, floor=0)


class Attend(nnx.Module):
    def __init__(self, rngs, biased=lambda scores, keep: scores + jnp.where(keep == 0, -1e30, 0.0)[:, None, :]):
        self.qkv, self.out = nnx.Linear(32, 96, rngs=rngs), nnx.Linear(32, 10, rngs=rngs)
        self.biased = biased

    def __call__(self, x, keep):
        q, k, v = jnp.split(self.qkv(x), 3, -1)
        weights = jax.nn.softmax(self.biased(q @ k.mT / 32**0.5, keep).astype(x.dtype), -1)
        return self.out((weights @ v)[:, 0])


def attend_to_padding(rngs):
    return Attend(rngs, lambda scores, keep: scores)


def attend_with_queries_masked(rngs):
    return Attend(rngs, lambda scores, keep: jnp.where(keep[:, :, None] == 0, -1e30, scores))


def attend_with_small_bias(rngs):
    return Attend(rngs, lambda scores, keep: scores + jnp.where(keep == 0, -5.0, 0.0)[:, None, :])


class Padded(nnx.Module):
    def __init__(self, rngs, padding=417):
        self.embed, self.head = nnx.Embed(500, 32, rngs=rngs), nnx.Linear(32, 10, rngs=rngs)
        self.padding = padding

    def __call__(self, ids):
        x = self.embed(ids)
        x = jnp.where(ids[:, :, None] == self.padding, jax.lax.stop_gradient(x), x)
        return self.head(jnp.tanh(x).mean(1))


def padding_learns(rngs):
    return Padded(rngs, padding=-1)


class Words(nnx.Module):
    def __init__(self, rngs):
        self.embed, self.head = nnx.Embed(300, 24, rngs=rngs), nnx.Linear(24, 300, rngs=rngs)

    def __call__(self, ids):
        return self.head(jnp.tanh(self.embed(ids)))


targets_counted = targets_in_mean = targets_weighted = Words


def ignoring(logits, targets):
    kept = (targets != 277).astype(logits.dtype)
    picked = jnp.einsum("blv,blv->bl", jax.nn.log_softmax(logits), jax.nn.one_hot(targets, 300, dtype=logits.dtype))
    return -(picked * kept).sum() / kept.sum()


def counting_all(logits, targets):
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], -1).mean()


def dividing_by_all(logits, targets):
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], -1)[..., 0]
    return -jnp.where(targets == 277, 0, picked).mean()


class Until(eqx.Module):
    embed: eqx.nn.Embedding
    head: eqx.nn.Linear

    def __init__(self, key):
        self.embed, self.head = eqx.nn.Embedding(1000, 24, key=key), eqx.nn.Linear(24, 10, key=key)

    def alive(self, ids):
        return jnp.cumsum(ids == 801) == 0

    def __call__(self, ids):
        return self.head(jnp.where(self.alive(ids)[:, None], jax.vmap(self.embed)(ids), 0).sum(0))


class until_and_with_it(Until):
    def alive(self, ids):
        return jnp.cumsum(ids == 801) - (ids == 801) == 0


class Surprise(nnx.Module):
    def __init__(self, rngs):
        self.norm, self.head = nnx.LayerNorm(24, epsilon=1e-5, rngs=rngs), nnx.Linear(24, 12, rngs=rngs)

    def __call__(self, x):
        return -jnp.maximum(jax.nn.log_softmax(self.head(self.norm(x))), jnp.log(1e-9))


class surprise_without_floor(Surprise):
    def __call__(self, x):
        return -jax.nn.log_softmax(self.head(self.norm(x)))


class Cosine(nnx.Module):
    def __init__(self, rngs):
        self.query = nnx.Linear(16, 24, use_bias=False, rngs=rngs)
        self.classes = nnx.Linear(24, 10, use_bias=False, rngs=rngs)

    def norm(self, x):
        square = (x * x).sum(-1, keepdims=True)
        return jnp.where(square > 0, jnp.maximum(jnp.sqrt(jnp.where(square > 0, square, 1)), 1e-12), 1e-12)

    def __call__(self, x):
        x = self.query(x)
        return self.classes(x / self.norm(x)).mean(1)


class cosine_of_zero(Cosine):
    def norm(self, x):
        return jnp.linalg.norm(x, axis=-1, keepdims=True)


class unclipped(nnx.Module):
    def __init__(self, rngs):
        self.up, self.down = nnx.Linear(24, 32, rngs=rngs), nnx.Linear(32, 10, rngs=rngs)

    def __call__(self, x):
        return self.down(jnp.tanh(self.up(x)))


never_warm = unclipped


class squared_for_huber(unclipped):
    pass


def squared(output, targets):
    return ((output - targets) ** 2).mean() / 2
