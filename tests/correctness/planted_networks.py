"""Six small networks in PyTorch with their right ports to JAX, in which `planted.py` plants mistakes."""

from dataclasses import dataclass

import fwbench
from fwbench.models.inputs import Input


@dataclass(frozen=True)
class Twins:
    """A network in PyTorch and its right port, as source files with a class `Net`."""

    inputs: Input
    torch: str
    jax: str


CONVOLUTIONAL = Twins(
    fwbench.image(8, 8, 3),
    """
from torch import nn


class Block(nn.Module):
    def __init__(self, inputs, stride):
        super().__init__()
        self.conv = nn.Conv2d(inputs, 8, 3, stride, 1, bias=False)
        self.bn = nn.BatchNorm2d(8)

    def forward(self, x):
        return self.bn(self.conv(x)).relu()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.body, self.head = Block(3, 2), Block(8, 1), nn.Linear(8, 5)

    def forward(self, x):
        x = self.stem(x)
        x = x + self.body(x)
        return self.head(x.mean((2, 3)))
""",
    """
import jax
import jax.numpy as jnp
from flax import nnx


class Block(nnx.Module):
    def __init__(self, inputs, stride, rngs):
        self.conv = nnx.Conv(inputs, 8, (3, 3), strides=stride, padding=1, use_bias=False, rngs=rngs)
        self.bn = nnx.BatchNorm(8, epsilon=1e-5, momentum=0.9, use_fast_variance=False, rngs=rngs)

    def __call__(self, x):
        return jax.nn.relu(self.bn(self.conv(x)))


class Net(nnx.Module):
    def __init__(self, rngs):
        self.stem, self.body = Block(3, 2, rngs), Block(8, 1, rngs)
        self.head = nnx.Linear(8, 5, rngs=rngs)

    def __call__(self, x):
        x = self.stem(x)
        x = x + self.body(x)
        return self.head(x.mean((1, 2)))
""",
)

CAUSAL = Twins(
    fwbench.tokens(6, vocabulary=32),
    """
import numpy as np
import torch
from torch import nn

ANGLES = np.arange(6)[:, None] / 1e4 ** (np.arange(0, 16, 2) / 16)
TABLE = np.concatenate([np.sin(ANGLES), np.cos(ANGLES)], -1)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.proj = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x):
        q, k, v = self.qkv(x).view(-1, 6, 3, 2, 8).permute(2, 0, 3, 1, 4)
        logits = q @ k.mT / 8**0.5
        mask = torch.ones(6, 6, dtype=torch.bool).tril()
        y = logits.masked_fill(~mask, float("-inf")).softmax(-1) @ v
        return self.proj(y.transpose(1, 2).reshape(-1, 6, 16))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.norm1, self.attn = nn.Embedding(32, 16), nn.LayerNorm(16), Attention()
        self.norm2, self.fc, self.out = nn.LayerNorm(16), nn.Linear(16, 32), nn.Linear(32, 16)
        self.head = nn.Linear(16, 32)

    def forward(self, x):
        x = self.embed(x)
        x = x + torch.from_numpy(TABLE).to(x)
        x = x + self.attn(self.norm1(x))
        x = x + self.out(nn.functional.gelu(self.fc(self.norm2(x)), approximate="tanh"))
        return self.head(x)
""",
    """
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

ANGLES = np.arange(6)[:, None] / 1e4 ** (np.arange(0, 16, 2) / 16)
TABLE = np.concatenate([np.sin(ANGLES), np.cos(ANGLES)], -1)


class Attention(nnx.Module):
    def __init__(self, rngs):
        self.qkv, self.proj = nnx.Linear(16, 48, rngs=rngs), nnx.Linear(16, 16, rngs=rngs)

    def __call__(self, x):
        q, k, v = self.qkv(x).reshape(-1, 6, 3, 2, 8).transpose(2, 0, 3, 1, 4)
        logits = q @ k.mT / 8**0.5
        mask = jnp.tril(jnp.ones((6, 6), bool))
        y = jax.nn.softmax(jnp.where(mask, logits, -1e9)) @ v
        return self.proj(y.swapaxes(1, 2).reshape(-1, 6, 16))


class Net(nnx.Module):
    def __init__(self, rngs):
        self.embed, self.attn = nnx.Embed(32, 16, rngs=rngs), Attention(rngs)
        self.norm1, self.norm2 = (
            nnx.LayerNorm(16, epsilon=1e-5, use_fast_variance=False, rngs=rngs) for _ in range(2)
        )
        self.fc, self.out = nnx.Linear(16, 32, rngs=rngs), nnx.Linear(32, 16, rngs=rngs)
        self.head = nnx.Linear(16, 32, rngs=rngs)

    def __call__(self, x):
        x = self.embed(x)
        x = x + jnp.asarray(TABLE)
        x = x + self.attn(self.norm1(x))
        x = x + self.out(jax.nn.gelu(self.fc(self.norm2(x))))
        return self.head(x)
""",
)

ROTARY = Twins(
    fwbench.normal(6, 16),
    """
import torch
from torch import nn


def rotated(x):
    angles = torch.arange(6.0, dtype=x.dtype)[:, None] / 1e4 ** (torch.arange(0, 4, 2, dtype=x.dtype) / 4)
    one, other = x[..., :2], x[..., 2:]
    return torch.cat([one * angles.cos() - other * angles.sin(), other * angles.cos() + one * angles.sin()], -1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(16, eps=1e-6), nn.RMSNorm(16, eps=1e-6)
        self.q, self.proj = nn.Linear(16, 16, bias=False), nn.Linear(16, 16, bias=False)
        self.k, self.v = nn.Linear(16, 8, bias=False), nn.Linear(16, 8, bias=False)
        self.gate, self.up, self.down = nn.Linear(16, 24), nn.Linear(16, 24), nn.Linear(24, 16)

    def forward(self, x):
        y = self.norm1(x)
        q = rotated(self.q(y).view(-1, 6, 4, 4).transpose(1, 2))
        k = rotated(self.k(y).view(-1, 6, 2, 4).transpose(1, 2)).repeat_interleave(2, 1)
        v = self.v(y).view(-1, 6, 2, 4).transpose(1, 2).repeat_interleave(2, 1)
        mask = torch.ones(6, 6, dtype=torch.bool).tril()
        w = (q @ k.mT / 4**0.5).masked_fill(~mask, float("-inf")).softmax(-1)
        x = x + self.proj((w @ v).transpose(1, 2).reshape(-1, 6, 16))
        y = self.norm2(x)
        return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))
""",
    """
import jax
import jax.numpy as jnp
from flax import linen as nn


def rotated(x):
    angles = jnp.arange(6.0)[:, None] / 1e4 ** (jnp.arange(0, 4, 2) / 4)
    one, other = x[..., :2], x[..., 2:]
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    return jnp.concatenate([one * cos - other * sin, other * cos + one * sin], -1)


class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
        y = nn.RMSNorm(epsilon=1e-6, name="norm1")(x)
        q = nn.Dense(16, use_bias=False, name="q")(y)
        k = nn.Dense(8, use_bias=False, name="k")(y)
        v = nn.Dense(8, use_bias=False, name="v")(y)
        q, k, v = (z.reshape(-1, 6, z.shape[-1] // 4, 4).swapaxes(1, 2) for z in (q, k, v))
        q, k = rotated(q), rotated(k)
        k, v = jnp.repeat(k, 2, 1), jnp.repeat(v, 2, 1)
        mask = jnp.tril(jnp.ones((6, 6), bool))
        w = jax.nn.softmax(jnp.where(mask, q @ k.mT / 4**0.5, -jnp.inf))
        x = x + nn.Dense(16, use_bias=False, name="proj")((w @ v).swapaxes(1, 2).reshape(-1, 6, 16))
        y = nn.RMSNorm(epsilon=1e-6, name="norm2")(x)
        gate, up = nn.Dense(24, name="gate")(y), nn.Dense(24, name="up")(y)
        return x + nn.Dense(16, name="down")(jax.nn.silu(gate) * up)
""",
)

PADDED = Twins(
    # Token 0 is padding.
    fwbench.tokens(6, vocabulary=4),
    """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.table = nn.Embedding(4, 16), nn.Embedding(6, 16)
        self.q, self.k, self.v, self.proj = (nn.Linear(16, 16) for _ in range(4))
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 5)

    def forward(self, tokens):
        mask = tokens != 0
        x = self.embed(tokens) + self.table.weight
        q, k, v = (layer(x).view(-1, 6, 2, 8).transpose(1, 2) for layer in (self.q, self.k, self.v))
        logits = q @ k.mT / 8**0.5
        w = logits.masked_fill(~mask[:, None, None], float("-inf")).softmax(-1)
        x = x + self.proj((w @ v).transpose(1, 2).reshape(-1, 6, 16))
        return self.head(self.norm(x))
""",
    """
import equinox as eqx
import jax
import jax.numpy as jnp


class Net(eqx.Module):
    embed: eqx.nn.Embedding
    table: eqx.nn.Embedding
    q: eqx.nn.Linear
    k: eqx.nn.Linear
    v: eqx.nn.Linear
    proj: eqx.nn.Linear
    norm: eqx.nn.LayerNorm
    head: eqx.nn.Linear

    def __init__(self, key):
        self.embed, self.table = eqx.nn.Embedding(4, 16, key=key), eqx.nn.Embedding(6, 16, key=key)
        self.q, self.k, self.v, self.proj = (eqx.nn.Linear(16, 16, key=key) for _ in range(4))
        self.norm, self.head = eqx.nn.LayerNorm(16, eps=1e-5), eqx.nn.Linear(16, 5, key=key)

    def __call__(self, tokens):
        mask = tokens != 0
        x = jax.vmap(self.embed)(tokens) + self.table.weight
        q, k, v = (jax.vmap(layer)(x).reshape(6, 2, 8).swapaxes(0, 1) for layer in (self.q, self.k, self.v))
        logits = q @ k.mT / 8**0.5
        w = jax.nn.softmax(jnp.where(mask, logits, -jnp.inf))
        x = x + jax.vmap(self.proj)((w @ v).swapaxes(0, 1).reshape(6, 16))
        return jax.vmap(self.head)(jax.vmap(self.norm)(x))
""",
)

GATED = Twins(
    fwbench.normal(6, 8),
    """
from torch import nn
from torch.nn.functional import softplus


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.head = nn.Linear(8, 16), nn.Linear(16, 8)
        self.gate, self.up, self.down = nn.Linear(16, 24), nn.Linear(16, 24), nn.Linear(24, 16)

    def forward(self, x):
        x = softplus(self.stem(x))
        return self.head(self.down(softplus(self.gate(x)) * self.up(x)))
""",
    """
import jax
import jax.numpy as jnp
from flax import nnx


class Net(nnx.Module):
    def __init__(self, rngs):
        self.stem, self.head = nnx.Linear(8, 16, rngs=rngs), nnx.Linear(16, 8, rngs=rngs)
        self.gate, self.up = nnx.Linear(16, 24, rngs=rngs), nnx.Linear(16, 24, rngs=rngs)
        self.down = nnx.Linear(24, 16, rngs=rngs)

    def __call__(self, x):
        x = jax.nn.softplus(self.stem(x))
        gate, up = self.gate(x), self.up(x)
        return self.head(self.down(jax.nn.softplus(gate) * up))
""",
)

NORMS = Twins(
    fwbench.normal(6, 8),
    """
import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(8)), nn.Parameter(torch.zeros(8))

    def forward(self, x):
        x = x - x.mean(-1, keepdim=True)
        return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * self.weight + self.bias


class Rms(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8))

    def forward(self, x):
        return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * self.weight


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = Layer(), Rms(), Layer()

    def forward(self, x):
        x = x + self.b(self.a(x))
        return self.c(x)
""",
    """
import jax
import jax.numpy as jnp
from flax import nnx


class Layer(nnx.Module):
    def __init__(self):
        self.weight, self.bias = nnx.Param(jnp.ones(8)), nnx.Param(jnp.zeros(8))

    def __call__(self, x):
        x = x - x.mean(-1, keepdims=True)
        deviation = jnp.sqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-5)
        return x / deviation * self.weight[...] + self.bias[...]


class Rms(nnx.Module):
    def __init__(self):
        self.weight = nnx.Param(jnp.ones(8))

    def __call__(self, x):
        return x / jnp.sqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-6) * self.weight[...]


class Net(nnx.Module):
    def __init__(self):
        self.a, self.b, self.c = Layer(), Rms(), Layer()

    def __call__(self, x):
        x = x + self.b(self.a(x))
        return self.c(x)
""",
)

TWINS = {
    "convolutional": CONVOLUTIONAL,
    "causal attention": CAUSAL,
    "rotary attention": ROTARY,
    "encoder with padding": PADDED,
    "gated MLP": GATED,
    "norms": NORMS,
}
