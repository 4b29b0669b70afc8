"""A decoder as language models have it: RMSNorm, rotary positions, grouped-query attention, SwiGLU, a tied head.

After Touvron et al., arXiv:2302.13971 (the layers), Su et al., arXiv:2104.09864 (rotary positions, in halves, as
transformers' Llama has them), and Ainslie et al., arXiv:2305.13245 (grouped queries).
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

# The number of steps in a cache is a multiple of this.
_BLOCK = 128


class Attention(nn.Module):
    """Causal attention in which several heads of queries share one head of keys and values."""

    def __init__(self, width: int, heads: int, groups: int) -> None:
        super().__init__()
        self.size = width // heads
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, groups * self.size, bias=False)
        self.value = nn.Linear(width, groups * self.size, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(
        self, x: Tensor, table: tuple[Tensor, Tensor], at: Tensor, cache: tuple[Tensor, Tensor] | None
    ) -> Tensor:
        query, key, value = (self._heads(layer(x)) for layer in (self.query, self.key, self.value))
        query, key = rotated(query, table), rotated(key, table)
        if cache is None:
            mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        else:
            keys, values = write(cache, key, value, at)
            mask = torch.arange(keys.shape[2], device=x.device) <= at[:, None]
            mixed = F.scaled_dot_product_attention(query, keys, values, attn_mask=mask, enable_gqa=True)
        return self.out(mixed.transpose(1, 2).reshape(x.shape))

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], -1, self.size).transpose(1, 2)


class Block(nn.Module):
    """Attention and a gated perceptron, each normalised first and added to its input."""

    def __init__(self, width: int, heads: int, groups: int, hidden: int) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(width, eps=1e-5)
        self.attention = Attention(width, heads, groups)
        self.norm = nn.RMSNorm(width, eps=1e-5)
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(
        self, x: Tensor, table: tuple[Tensor, Tensor], at: Tensor, cache: tuple[Tensor, Tensor] | None
    ) -> Tensor:
        x = x + self.attention(self.attention_norm(x), table, at, cache)
        y = self.norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Decoder(nn.Module):
    """Logits for tokens of shape (batch, length): of all steps or, with a state, of the last step.

    Their shape is (batch, length, vocabulary) without a state, and (batch, vocabulary) with one. The call updates a
    state in place.
    """

    def __init__(
        self,
        width: int = 512,
        layers: int = 8,
        heads: int = 8,
        groups: int = 2,
        hidden: int = 1280,
        vocabulary: int = 8192,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, heads, groups, hidden) for _ in range(layers))
        self.norm = nn.RMSNorm(width, eps=1e-5)
        self.size = width // heads

    def forward(self, tokens: Tensor, state: dict[str, Any] | None = None) -> tuple[Tensor, dict[str, Any] | None]:
        x = self.embedding(tokens)
        at = torch.arange(tokens.shape[1], device=tokens.device)
        if state is not None:
            at = at + state["position"]
        table = rotary(at, self.size, x.dtype)
        for number, block in enumerate(self.blocks):
            x = block(x, table, at, None if state is None else state["layers"][number])
        if state is not None:
            state["position"] += tokens.shape[1]
            x = x[:, -1]
        return F.linear(self.norm(x), self.embedding.weight), state


def rotary(at: Tensor, size: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and sines of shape (steps, size / 2) at these positions, computed in float32 or wider."""
    wide = torch.promote_types(dtype, torch.float32)
    frequencies = 10_000.0 ** -(torch.arange(0, size, 2, device=at.device, dtype=wide) / size)
    angles = at.to(wide)[:, None] * frequencies
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotated(x: Tensor, table: tuple[Tensor, Tensor]) -> Tensor:
    """Heads of shape (batch, heads, steps, size), each turned by its position's angles."""
    cos, sin = table
    first, second = x.chunk(2, -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


def write(cache: tuple[Tensor, Tensor], key: Tensor, value: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
    """Write keys and values of some steps into a cache at their positions."""
    keys, values = cache
    return keys.index_copy_(2, at, key), values.index_copy_(2, at, value)


def cache(
    batch_size: int, length: int, width: int = 512, layers: int = 8, heads: int = 8, groups: int = 2
) -> dict[str, Any]:
    """An empty cache with room for so many steps, rounded up; keys and values are (batch, groups, steps, size)."""
    shape = (batch_size, groups, -(-length // _BLOCK) * _BLOCK, width // heads)
    return {
        "position": torch.tensor(0),
        "layers": [(torch.zeros(shape), torch.zeros(shape)) for _ in range(layers)],
    }
