"""The same small GPT in Flax NNX; attributes have the names that PyTorch's have."""

import jax
import jax.numpy as jnp
from flax import nnx


class Block(nnx.Module):
    def __init__(self, width: int, heads: int, rngs: nnx.Rngs) -> None:
        self.heads = heads
        self.ln_1 = nnx.LayerNorm(width, epsilon=1e-5, rngs=rngs)
        self.qkv = nnx.Linear(width, 3 * width, rngs=rngs)
        self.proj = nnx.Linear(width, width, rngs=rngs)
        self.ln_2 = nnx.LayerNorm(width, epsilon=1e-5, rngs=rngs)
        self.fc = nnx.Linear(width, 4 * width, rngs=rngs)
        self.out = nnx.Linear(4 * width, width, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        batch, length, width = x.shape
        parts = self.qkv(self.ln_1(x)).reshape(batch, length, 3, self.heads, width // self.heads)
        q, k, v = (parts[:, :, index] for index in range(3))
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / jnp.sqrt(jnp.asarray(width // self.heads, x.dtype))
        scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -jnp.inf)
        y = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v).reshape(batch, length, width)
        x = x + self.proj(y)
        return x + self.out(jax.nn.gelu(self.fc(self.ln_2(x)), approximate=True))


class GPT(nnx.Module):
    def __init__(
        self, length: int, rngs: nnx.Rngs, vocabulary: int = 96, width: int = 32, layers: int = 2, heads: int = 2
    ) -> None:
        self.wte = nnx.Embed(vocabulary, width, rngs=rngs)
        self.wpe = nnx.Embed(length, width, rngs=rngs)
        self.blocks = nnx.List([Block(width, heads, rngs) for _ in range(layers)])
        self.ln_f = nnx.LayerNorm(width, epsilon=1e-5, rngs=rngs)

    def __call__(self, tokens: jax.Array) -> jax.Array:
        x = self.wte(tokens) + self.wpe.embedding[...][: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.wte.attend(self.ln_f(x))
