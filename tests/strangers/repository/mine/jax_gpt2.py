"""GPT-2 in Flax NNX, with the names and layouts of transformers' weights (Radford et al., 2019)."""

import jax
import jax.numpy as jnp
from flax import nnx

STEPS, VOCABULARY, WIDTH, LAYERS, HEADS = 256, 512, 64, 2, 4
SIZE = WIDTH // HEADS


class Conv1D(nnx.Module):
    """A linear layer whose weight is (in, out)."""

    def __init__(self, inputs, outputs, rngs):
        self.weight = nnx.Param(0.02 * rngs.params.normal((inputs, outputs)))
        self.bias = nnx.Param(jnp.zeros(outputs))

    def __call__(self, x):
        return x @ self.weight + self.bias


class Attention(nnx.Module):
    def __init__(self, rngs):
        self.c_attn = Conv1D(WIDTH, 3 * WIDTH, rngs)
        self.c_proj = Conv1D(WIDTH, WIDTH, rngs)

    def __call__(self, x, at, state):
        batch, steps, _ = x.shape
        query, keys, values = self.c_attn(x).reshape(batch, steps, 3, HEADS, SIZE).transpose(2, 0, 3, 1, 4)
        if state is not None:
            old_keys, old_values, position = state
            keys = jax.lax.dynamic_update_slice_in_dim(old_keys, keys, position, 2)
            values = jax.lax.dynamic_update_slice_in_dim(old_values, values, position, 2)
            state = keys, values, position + steps
        scores = query @ keys.mT / SIZE**0.5
        scores = jnp.where(jnp.arange(keys.shape[2]) <= at[:, None], scores, -jnp.inf)
        x = jax.nn.softmax(scores) @ values
        return self.c_proj(x.transpose(0, 2, 1, 3).reshape(batch, steps, WIDTH)), state


class MLP(nnx.Module):
    def __init__(self, rngs):
        self.c_fc = Conv1D(WIDTH, 4 * WIDTH, rngs)
        self.c_proj = Conv1D(4 * WIDTH, WIDTH, rngs)

    def __call__(self, x):
        return self.c_proj(jax.nn.gelu(self.c_fc(x), approximate=True))


class Block(nnx.Module):
    def __init__(self, rngs):
        self.ln_1 = nnx.LayerNorm(WIDTH, epsilon=1e-5, rngs=rngs)
        self.attn = Attention(rngs)
        self.ln_2 = nnx.LayerNorm(WIDTH, epsilon=1e-5, rngs=rngs)
        self.mlp = MLP(rngs)

    def __call__(self, x, at, state):
        mixed, state = self.attn(self.ln_1(x), at, state)
        x = x + mixed
        return x + self.mlp(self.ln_2(x)), state


class GPT2(nnx.Module):
    def __init__(self, rngs):
        self.wte = nnx.Embed(VOCABULARY, WIDTH, rngs=rngs)
        self.wpe = nnx.Embed(STEPS, WIDTH, rngs=rngs)
        self.h = nnx.List([Block(rngs) for _ in range(LAYERS)])
        self.ln_f = nnx.LayerNorm(WIDTH, epsilon=1e-5, rngs=rngs)

    def __call__(self, tokens, state=None):
        at = jnp.arange(tokens.shape[1])
        if state is not None:
            at = at + state[0][2]
        x = self.wte(tokens) + self.wpe(at)
        after = []
        for number, block in enumerate(self.h):
            x, layer = block(x, at, None if state is None else state[number])
            after.append(layer)
        x = self.ln_f(x)
        if state is None:
            return self.wte.attend(x), None
        return self.wte.attend(x[:, -1]), after


def cache(batch_size):
    shape = batch_size, HEADS, STEPS, SIZE
    return [(jnp.zeros(shape), jnp.zeros(shape), 0) for _ in range(LAYERS)]
