"""ViT-B/16 (Dosovitskiy et al., arXiv:2010.11929), after torchvision's definition."""

import math
from functools import partial

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from fwbench.frameworks.jax.layers import Array, Sequential, conv

_PATCH = 16
_LAYERS = 12
_HEADS = 12
_WIDTH = 768
_MLP = 3072

_layer_norm = partial(nnx.LayerNorm, epsilon=1e-6, use_fast_variance=False)


def _gelu(x: Array) -> Array:
    """GELU in the error-function form, as PyTorch computes it; the tanh form differs by 1e-3.

    jax.nn.gelu uses the complementary error function, which costs more on a CPU.
    """
    return 0.5 * x * (1 + lax.erf(x * math.sqrt(0.5)))


class Linear(nnx.Linear):
    """A linear layer that treats all tokens of the batch as one matrix.

    With more axes, XLA's CPU backend would transpose and compute the cotangent again for the weights' gradient.
    """

    def __call__(self, x: Array) -> Array:
        return super().__call__(x.reshape(-1, self.in_features)).reshape(*x.shape[:-1], self.out_features)


class SelfAttention(nnx.Module):
    """Multi-head self-attention with the packed input projection of torch.nn.MultiheadAttention."""

    def __init__(self, rngs: nnx.Rngs):
        self.in_proj = Linear(_WIDTH, 3 * _WIDTH, rngs=rngs)
        self.out_proj = Linear(_WIDTH, _WIDTH, rngs=rngs)

    def __call__(self, x: Array) -> Array:
        batch, tokens, _ = x.shape
        query, key, value = jnp.moveaxis(self.in_proj(x).reshape(batch, tokens, 3, _HEADS, _WIDTH // _HEADS), 2, 0)
        # Not jax.nn.dot_product_attention, whose softmax is float32 even on float64 inputs.
        scores = jnp.einsum("bqhd,bkhd->bhqk", query / math.sqrt(_WIDTH // _HEADS), key)
        mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, axis=-1), value)
        return self.out_proj(mixed.reshape(batch, tokens, _WIDTH))


class EncoderBlock(nnx.Module):
    """Attention and a two-layer perceptron, each normalised first and added to its input."""

    def __init__(self, rngs: nnx.Rngs):
        self.ln_1 = _layer_norm(_WIDTH, rngs=rngs)
        self.self_attention = SelfAttention(rngs)
        self.ln_2 = _layer_norm(_WIDTH, rngs=rngs)
        # Indices 2 and 4 are dropouts of rate 0 in torchvision.
        self.mlp = Sequential([Linear(_WIDTH, _MLP, rngs=rngs), _gelu, lambda x: x, Linear(_MLP, _WIDTH, rngs=rngs)])

    def __call__(self, x: Array) -> Array:
        x = x + self.self_attention(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Layers(nnx.Module):
    """The encoder's blocks, under torchvision's names."""

    def __init__(self, rngs: nnx.Rngs):
        for index in range(_LAYERS):
            setattr(self, f"encoder_layer_{index}", EncoderBlock(rngs))

    def __call__(self, x: Array) -> Array:
        for index in range(_LAYERS):
            x = getattr(self, f"encoder_layer_{index}")(x)
        return x


class Encoder(nnx.Module):
    """Position embedding, blocks, final normalisation."""

    def __init__(self, tokens: int, rngs: nnx.Rngs):
        self.pos_embedding = nnx.Param(jnp.zeros((1, tokens, _WIDTH)))
        self.layers = Layers(rngs)
        self.ln = _layer_norm(_WIDTH, rngs=rngs)

    def __call__(self, x: Array) -> Array:
        return self.ln(self.layers(x + self.pos_embedding[...]))


class Heads(nnx.Module):
    """The classifier."""

    def __init__(self, rngs: nnx.Rngs):
        self.head = nnx.Linear(_WIDTH, 1000, rngs=rngs)


class ViTB16(nnx.Module):
    """Logits of shape (batch, 1000) from images of shape (batch, image_size, image_size, 3)."""

    def __init__(self, rngs: nnx.Rngs, image_size: int = 224):
        self.conv_proj = conv(3, _WIDTH, _PATCH, stride=_PATCH, padding=0, bias=True, rngs=rngs)
        self.class_token = nnx.Param(jnp.zeros((1, 1, _WIDTH)))
        self.encoder = Encoder((image_size // _PATCH) ** 2 + 1, rngs)
        self.heads = Heads(rngs)

    def __call__(self, x: Array, rngs: nnx.Rngs | None = None) -> Array:
        x = self.conv_proj(x)
        x = x.reshape(x.shape[0], -1, _WIDTH)
        token = jnp.broadcast_to(self.class_token[...], (x.shape[0], 1, _WIDTH))
        x = self.encoder(jnp.concatenate([token, x], axis=1))
        return self.heads.head(x[:, 0])
