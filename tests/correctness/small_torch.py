"""Small networks in PyTorch whose twins in `small_jax` are right, or wrong in one way each."""

import torch
from torch import nn
from torch.nn import functional as F


class Decay(nn.Module):
    """A parameter that starts at log 1..n, as Mamba's A_log does, and steps that a small bias shifts."""

    def __init__(self, states=16):
        super().__init__()
        self.A_log = nn.Parameter(torch.log(torch.arange(1.0, states + 1)))
        self.dt = nn.Parameter(torch.zeros(states))
        self.fc = nn.Linear(8, states)
        self.head = nn.Linear(states, 5)

    def forward(self, x):
        x = self.fc(x)
        steps = F.softplus(x + self.dt)
        return self.head(x * torch.exp(-torch.exp(self.A_log) * steps / 8))


def many_states():
    return Decay(64)


class Attention(nn.Module):
    """One block of a small GPT: rotary positions, causal attention of two heads, and a gated GELU."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(11, 16)
        self.qkv = nn.Linear(16, 48)
        self.norm = nn.LayerNorm(16, eps=1e-6)
        self.up = nn.Linear(16, 32)
        self.down = nn.Linear(16, 16)
        self.head = nn.Linear(16, 5)

    def forward(self, tokens):
        x = self.table(tokens)
        q, k, v = (part.unflatten(2, (2, 8)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True)
        x = self.norm(x + y.transpose(1, 2).flatten(2))
        gate, value = self.up(x).chunk(2, -1)
        return self.head((x + self.down(F.gelu(gate) * value)).mean(1))


def rotated(x):
    """Halves of the last axis turned by angles that grow with the position, the axis before it."""
    angles = torch.outer(torch.arange(x.shape[-2], dtype=x.dtype), 10.0 ** -torch.arange(4, dtype=x.dtype))
    one, other = x.chunk(2, -1)
    return torch.cat([one * angles.cos() - other * angles.sin(), other * angles.cos() + one * angles.sin()], -1)


class Conv(nn.Module):
    """A convolution just before batch normalisation, whose own bias has therefore no gradient but rounding."""

    def __init__(self, rate=0.0):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.fc = nn.Linear(8, 5)
        self.rate = rate

    def forward(self, x):
        x = F.relu(self.norm(self.conv(x))).mean((2, 3))
        return self.fc(F.dropout(x, self.rate, self.training))


class Frozen(Conv):
    """Its batch normalisation stays in inference mode."""

    def train(self, mode=True):
        super().train(mode)
        self.norm.eval()
        return self


def dropping():
    return Conv(0.5)


class Dense(nn.Module):
    """Dropout where nothing else differs between the modes."""

    def __init__(self, rate=0.5):
        super().__init__()
        self.up = nn.Linear(8, 32)
        self.drop = nn.Dropout(rate)
        self.down = nn.Linear(32, 5)

    def forward(self, x):
        return self.down(self.drop(F.relu(self.up(x))))


def dense():
    return Dense(0.0)
