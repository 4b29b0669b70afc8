"""Networks of a user's own in JAX, of every kind that a model may name, and some that are wrong."""

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

CLASSES, WIDTH = 5, 6


class Nnx(nnx.Module):
    """Images to logits: a convolution, Flax's own batch normalisation, a dropout with its own stream, a table."""

    def __init__(self, rngs: nnx.Rngs, width: int = WIDTH):
        self.conv = nnx.Conv(3, width, (3, 3), rngs=rngs)
        self.norm = nnx.BatchNorm(width, rngs=rngs)
        self.drop = nnx.Dropout(0.5, rngs=rngs)
        self.table = nnx.Variable(jnp.arange(width, dtype=jnp.float32) / width)
        self.head = nnx.Linear(width, CLASSES, rngs=rngs)

    def __call__(self, x):
        x = self.norm(self.conv(x)) + self.table[...]
        return self.head(self.drop(jax.nn.relu(x).mean((1, 2))))


class Linen(nn.Module):
    width: int = WIDTH

    @nn.compact
    def __call__(self, x, train):
        x = nn.BatchNorm(use_running_average=not train, name="norm")(nn.Conv(self.width, (3, 3), name="conv")(x))
        x = nn.Dropout(0.5, deterministic=not train)(jax.nn.relu(x).mean((1, 2)))
        return nn.Dense(CLASSES, name="head")(x)


class Equinox(eqx.Module):
    conv: eqx.nn.Conv2d
    drop: eqx.nn.Dropout
    head: eqx.nn.Linear
    offsets: jax.Array

    def __init__(self, key, width: int = WIDTH):
        first, second = jax.random.split(key)
        self.conv = eqx.nn.Conv2d(3, width, 3, padding=1, key=first)
        self.drop = eqx.nn.Dropout(0.5)
        self.head = eqx.nn.Linear(width, CLASSES, key=second)
        self.offsets = jnp.arange(width)

    def __call__(self, x, key):
        x = jax.nn.relu(self.conv(x)).mean((1, 2)) + self.offsets
        return {"logits": self.head(self.drop(x, key=key))}


def _init(key, x):
    shape = (x.shape[-1], CLASSES)
    return {"head": {"weight": jax.random.normal(key, shape[::-1]), "bias": jnp.zeros(CLASSES)}}


def _apply(parameters, x):
    return x.mean((1, 2)) @ parameters["head"]["weight"].T + parameters["head"]["bias"]


pair = (_init, _apply)


class Pair:
    """The same as an object, whose `init` takes only a key."""

    def init(self, key):
        return _init(key, np.zeros((1, 1, 1, 3)))

    def apply(self, parameters, x):
        return _apply(parameters, x)


def attention(query, key, value):
    return jax.nn.softmax(query @ key.swapaxes(1, 2)) @ value


# Of tokens.


class Embedded(nnx.Module):
    """Tokens and a mask to logits at every place."""

    def __init__(self, rngs: nnx.Rngs, length: int):
        self.embed = nnx.Embed(11, WIDTH, rngs=rngs)
        self.position = nnx.Param(jnp.zeros((length, WIDTH)))
        self.head = nnx.Linear(WIDTH, 11, rngs=rngs)

    def __call__(self, tokens, mask):
        assert tokens.dtype == mask.dtype == jnp.int32
        x = (self.embed(tokens) + self.position[...]) * mask[..., None]
        return self.head(x), tokens


def regression(output, wanted):
    return jnp.abs(output - wanted).mean()


def without_targets(output):
    return jnp.square(output).mean()


def vector_loss(output):
    return output.mean(1)


class Attention(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.attention = nnx.MultiHeadAttention(2, WIDTH, decode=False, rngs=rngs)
        self.frozen = nnx.Linear(WIDTH, WIDTH, use_bias=False, rngs=rngs)

    def __call__(self, x):
        return self.frozen(self.attention(x, x))


def fuse(own):
    """Flax's weights (features, heads, width of a head) as torch.nn.MultiheadAttention packs them."""
    parts = [own[f"attention.{part}.kernel"].reshape(WIDTH, WIDTH).T for part in ("query", "key", "value")]
    biases = [own[f"attention.{part}.bias"].reshape(WIDTH) for part in ("query", "key", "value")]
    return {
        "attention.in_proj_weight": np.concatenate(parts),
        "attention.in_proj_bias": jnp.concatenate(biases),
        "attention.out_proj.weight": own["attention.out.kernel"].reshape(WIDTH, WIDTH).T,
        "attention.out_proj.bias": own["attention.out.bias"],
        "frozen.weight": own["frozen.kernel"].T.astype(np.float32),
    }


def forgetful(own):
    return {name: array for name, array in fuse(own).items() if name != "frozen.weight"}


def scaled(own):
    return {name: array * 2 for name, array in fuse(own).items()}


def padded(own):
    fused = fuse(own)
    return {**fused, "frozen.bias": np.zeros(WIDTH, np.float32)}


def listed(own):
    return list(own.values())


def broken(own):
    return own["nowhere"]


def tied(own):
    return {**fuse(own), "again": own["frozen.kernel"]}


# Wrong ones.


class Raising(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        raise RuntimeError("no such luck")


class RaisingInCall(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.head = nnx.Linear(4, CLASSES, rngs=rngs)

    def __call__(self, x):
        return self.head(x.reshape(7, -1))


class WithoutBatch(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.head = nnx.Linear(3, CLASSES, rngs=rngs)

    def __call__(self, x):
        return self.head(x).mean(0)


class Stateful(eqx.Module):
    norm: eqx.nn.BatchNorm

    def __init__(self):
        self.norm = eqx.nn.BatchNorm(3, axis_name="batch", mode="ema")


def stateful_with_state():
    return eqx.nn.make_with_state(Stateful)()


def a_dict():
    return {"not": "a network"}


number = 3


def two_inputs_too_many(x, y, z):
    return x


class TwoHeads(nnx.Module):
    """Its second head is no part of the model's output; an eager framework computes it all the same."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.first = nnx.Linear(3, 5, rngs=rngs)
        self.second = nnx.Linear(3, 7, rngs=rngs)

    def __call__(self, x: jax.Array) -> "Heads":
        return Heads(self.first(x), self.second(x))


class Heads:
    """An object that JAX does not know how to look into."""

    def __init__(self, first: jax.Array, second: jax.Array) -> None:
        self.first = first
        self.second = second


class Decay(nnx.Module):
    """The twin of `torch_networks.Decay`, which starts from other values."""

    def __init__(self, rngs: nnx.Rngs):
        self.log_rates = nnx.Param(jnp.full(16, 0.5))
        self.gain = nnx.Param(jnp.ones(16))
        self.shift = nnx.Param(jnp.ones(16))
        self.fc = nnx.Linear(16, 5, rngs=rngs)

    def __call__(self, x):
        return self.fc(x * jnp.exp(-jnp.exp(self.log_rates[...])) * self.gain[...] + self.shift[...])
