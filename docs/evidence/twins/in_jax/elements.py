"""One element wrong in a large output, and gradients left out."""
# ruff: noqa: N801 (a twin has the name of its network)

import jax
import jax.numpy as jnp
from flax import nnx


class Language(nnx.Module):
    def __init__(self, rngs):
        self.embed = nnx.Embed(1000, 24, rngs=rngs)
        self.up, self.head = nnx.Linear(24, 24, rngs=rngs), nnx.Linear(24, 300, rngs=rngs)

    def embedded(self, ids):
        return self.embed(ids)

    def logits(self, x):
        return self.head(x)

    def __call__(self, ids):
        return self.logits(jnp.tanh(self.up(self.embedded(ids))))


class one_logit(Language):
    def logits(self, x):
        return self.head(x).at[:, 31, 299].multiply(1.001)


class one_class(Language):
    def logits(self, x):
        return self.head(x).at[:, :, 150].set(0)


class one_row_of_the_table(Language):
    def embedded(self, ids):
        return jnp.where(ids[:, :, None] == 617, 0, self.embed(ids))


class two_rows_exchanged(Language):
    def embedded(self, ids):
        table = self.embed.embedding[...]
        return table.at[jnp.array([388, 389])].set(table[jnp.array([389, 388])])[ids]


class one_gradient(Language):
    def logits(self, x):
        kernel, bias = self.head.kernel[...], self.head.bias[...]
        return x @ kernel + bias.at[299].set(jax.lax.stop_gradient(bias[299]))


class bias_without_gradient(Language):
    def logits(self, x):
        return x @ self.head.kernel[...] + jax.lax.stop_gradient(self.head.bias[...])


class Shifted(nnx.Module):
    def __init__(self, rngs):
        self.now, self.before = nnx.Linear(16, 48, rngs=rngs), nnx.Linear(16, 48, rngs=rngs)
        self.place = nnx.Param(jnp.zeros((64, 16)))

    def shifted(self, x):
        return jnp.zeros_like(x).at[:, 1:].set(x[:, :-1])

    def __call__(self, x):
        x = jnp.tanh(x + self.place[...])
        return self.now(x) + self.before(self.shifted(x))


class rolled(Shifted):
    def shifted(self, x):
        return jnp.roll(x, 1, 1)


class last_place_without_gradient(Shifted):
    def __call__(self, x):
        place = self.place[...]
        x = jnp.tanh(x + place.at[-1].set(jax.lax.stop_gradient(place[-1])))
        return self.now(x) + self.before(self.shifted(x))


def entropy(logits, targets):
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], -1).mean()
