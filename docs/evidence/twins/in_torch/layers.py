"""Numerics of layers: epsilons, variances, activations, gates, axes, rotation, padding, resizing, pooling."""

import torch
from torch import nn
from torch.nn import functional as F


# A layer norm by hand between two linear layers.
class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(24, 48), nn.Linear(48, 10)
        self.weight = nn.Parameter(torch.ones(48))

    def forward(self, x):  # (batch, 24)
        x = self.up(x)
        x = x - x.mean(-1, keepdim=True)
        return self.down(self.weight * x / torch.sqrt(x.var(-1, keepdim=True, unbiased=False) + 1e-5))


# A GRU and an LSTM over 16 steps.
class Gru(nn.Module):
    def __init__(self):
        super().__init__()
        self.into, self.hidden = nn.Linear(16, 96), nn.Linear(32, 96)

    def forward(self, x):  # (batch, 16, 16)
        h = x.new_zeros(x.shape[0], 32)
        for step in range(x.shape[1]):
            r, z, n = self.into(x[:, step]).chunk(3, -1)
            hr, hz, hn = self.hidden(h).chunk(3, -1)
            r, z = torch.sigmoid(r + hr), torch.sigmoid(z + hz)
            h = (1 - z) * torch.tanh(n + r * hn) + z * h
        return h


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.head = nn.LSTMCell(16, 24), nn.Linear(24, 10)

    def forward(self, x):
        h = c = x.new_zeros(x.shape[0], 24)
        for step in range(x.shape[1]):
            h, c = self.cell(x[:, step], (h, c))
        return self.head(h)


# Attention with a rotation of its queries and keys.
class Rotary(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 10)

    def turned(self, x):
        half, angle = x.shape[-1] // 2, torch.arange(x.shape[1], device=x.device, dtype=x.dtype)[:, None]
        angle = angle * 100.0 ** (-torch.arange(half, device=x.device, dtype=x.dtype) / half)
        left, right = x[..., :half], x[..., half:]
        return torch.cat([left * angle.cos() - right * angle.sin(), right * angle.cos() + left * angle.sin()], -1)

    def forward(self, x):  # (batch, 16, 32)
        q, k, v = self.qkv(x).chunk(3, -1)
        weights = (self.turned(q) @ self.turned(k).mT / 32**0.5).softmax(-1)
        return self.out((weights @ v).mean(1))


# Images of 15 and 16 pixels: convolution at stride 2, pooling, resizing.
class Images(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.Linear(16, 10)

    def forward(self, x):  # (batch, 3, 16, 16)
        x = F.gelu(self.conv(x))
        x = F.avg_pool2d(x, 3, stride=1, padding=1, count_include_pad=False)
        x = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
        return self.head((x * x).mean((2, 3)))
