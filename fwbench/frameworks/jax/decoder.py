"""A decoder as language models have it: RMSNorm, rotary positions, grouped-query attention, SwiGLU, a tied head.

After Touvron et al., arXiv:2302.13971 (the layers), Su et al., arXiv:2104.09864 (rotary positions, in halves, as
transformers' Llama has them), and Ainslie et al., arXiv:2305.13245 (grouped queries).
"""

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

Array = jax.Array
Pair = tuple[Array, Array]

# The number of steps in a cache is a multiple of this.
_BLOCK = 128

_linear = partial(nnx.Linear, use_bias=False)
_norm = partial(nnx.RMSNorm, epsilon=1e-5)


class Attention(nnx.Module):
    """Causal attention in which several heads of queries share one head of keys and values."""

    def __init__(self, width: int, heads: int, groups: int, rngs: nnx.Rngs) -> None:
        self.size = width // heads
        self.query = _linear(width, width, rngs=rngs)
        self.key = _linear(width, groups * self.size, rngs=rngs)
        self.value = _linear(width, groups * self.size, rngs=rngs)
        self.out = _linear(width, width, rngs=rngs)

    def __call__(self, x: Array, table: Pair, at: Array, cache: Pair | None) -> tuple[Array, Pair]:
        query, key, value = (self._heads(layer(x)) for layer in (self.query, self.key, self.value))
        query, key = rotated(query, table), rotated(key, table)
        cache = (key, value) if cache is None else write(cache, key, value, at)
        mixed = attend(query, *cache, jnp.arange(cache[0].shape[1]) <= at[:, None])
        return self.out(mixed.reshape(x.shape)), cache

    def _heads(self, x: Array) -> Array:
        return x.reshape(*x.shape[:2], -1, self.size)


class Block(nnx.Module):
    """Attention and a gated perceptron, each normalised first and added to its input."""

    def __init__(self, width: int, heads: int, groups: int, hidden: int, rngs: nnx.Rngs) -> None:
        self.attention_norm = _norm(width, rngs=rngs)
        self.attention = Attention(width, heads, groups, rngs)
        self.norm = _norm(width, rngs=rngs)
        self.gate = _linear(width, hidden, rngs=rngs)
        self.up = _linear(width, hidden, rngs=rngs)
        self.down = _linear(hidden, width, rngs=rngs)

    def __call__(self, x: Array, table: Pair, at: Array, cache: Pair | None) -> tuple[Array, Pair]:
        mixed, cache = self.attention(self.attention_norm(x), table, at, cache)
        x = x + mixed
        y = self.norm(x)
        return x + self.down(jax.nn.silu(self.gate(y)) * self.up(y)), cache


class Decoder(nnx.Module):
    """Logits for tokens of shape (batch, length): of all steps or, with a state, of the last step.

    Their shape is (batch, length, vocabulary) without a state, and (batch, vocabulary) with one.
    """

    def __init__(
        self,
        rngs: nnx.Rngs,
        width: int = 512,
        layers: int = 8,
        heads: int = 8,
        groups: int = 2,
        hidden: int = 1280,
        vocabulary: int = 8192,
    ) -> None:
        self.embedding = nnx.Embed(vocabulary, width, rngs=rngs)
        self.blocks = nnx.List([Block(width, heads, groups, hidden, rngs) for _ in range(layers)])
        self.norm = _norm(width, rngs=rngs)
        self.size = width // heads

    def __call__(self, tokens: Array, state: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any] | None]:
        x = self.embedding(tokens)
        at = jnp.arange(tokens.shape[1])
        if state is not None:
            at = at + state["position"]
        table = rotary(at, self.size, x.dtype)
        layers = []
        for number, block in enumerate(self.blocks):
            x, cache = block(x, table, at, None if state is None else state["layers"][number])
            layers.append(cache)
        if state is not None:
            state = {"position": state["position"] + tokens.shape[1], "layers": layers}
            x = x[:, -1]
        return self.embedding.attend(self.norm(x)), state


def rotary(at: Array, size: int, dtype: Any) -> Pair:
    """Cosines and sines of shape (steps, 1, size / 2) at these positions, computed in float32 or wider."""
    wide = jnp.promote_types(dtype, jnp.float32)
    frequencies = 10_000.0 ** -(jnp.arange(0, size, 2, dtype=wide) / size)
    angles = at.astype(wide)[:, None, None] * frequencies
    return jnp.cos(angles).astype(dtype), jnp.sin(angles).astype(dtype)


def rotated(x: Array, table: Pair) -> Array:
    """Heads of shape (batch, steps, heads, size), each turned by its position's angles."""
    cos, sin = table
    first, second = jnp.split(x, 2, -1)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], -1)


def write(cache: Pair, key: Array, value: Array, at: Array) -> Pair:
    """The cache with the keys and values of some steps written at their positions."""
    keys, values = (
        jax.lax.dynamic_update_slice_in_dim(old, new, at[0], axis=1)
        for old, new in zip(cache, (key, value), strict=True)
    )
    return keys, values


def attend(query: Array, keys: Array, values: Array, mask: Array) -> Array:
    """Attention of shape (batch, steps, heads, size), in which neighbouring heads of queries share keys and values.

    Not jax.nn.dot_product_attention, whose softmax is float32 even on float64 inputs.

    Args:
        query: (batch, steps, heads, size).
        keys, values: (batch, length, groups, size).
        mask: (steps, length), true where a step may look.
    """
    batch, steps, heads, size = query.shape
    groups = keys.shape[2]
    query = (query / math.sqrt(size)).reshape(batch, steps, groups, heads // groups, size)
    scores = jnp.einsum("bqghd,bkgd->bghqk", query, keys)
    weights = jax.nn.softmax(jnp.where(mask, scores, -jnp.inf), axis=-1)
    return jnp.einsum("bghqk,bkgd->bqghd", weights, values).reshape(batch, steps, heads, size)


def cache(
    batch_size: int, length: int, width: int = 512, layers: int = 8, heads: int = 8, groups: int = 2
) -> dict[str, Any]:
    """An empty cache with room for so many steps, rounded up; keys and values are (batch, steps, groups, size)."""
    shape = (batch_size, -(-length // _BLOCK) * _BLOCK, groups, width // heads)
    return {"position": 0, "layers": [(jnp.zeros(shape), jnp.zeros(shape)) for _ in range(layers)]}
