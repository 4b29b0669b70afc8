"""Sizes: what is wrong only at another batch size or length than the first one."""

import torch
from torch import nn


class Positions(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.zeros(40, 24))
        self.up, self.head = nn.Linear(24, 24), nn.Linear(24, 10)

    def forward(self, x):  # (batch, length, 24)
        return self.head(torch.tanh(self.up(x) + self.table[: x.shape[1]]).mean(1))


class Heads(nn.Module):
    """Attention of two heads."""

    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 10)

    def forward(self, x):  # (batch, length, 32)
        batch, length, _ = x.shape
        q, k, v = (part.view(batch, length, 2, 16).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        x = (q @ k.mT / 4).softmax(-1) @ v
        return self.out(x.transpose(1, 2).reshape(batch, length, 32)).mean(1)


class Causal(nn.Module):
    def __init__(self):
        super().__init__()
        self.qk, self.out = nn.Linear(24, 48), nn.Linear(24, 10)

    def forward(self, x):  # (batch, length, 24)
        q, k = self.qk(x).chunk(2, -1)
        hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
        return self.out((q @ k.mT).masked_fill(hidden, float("-inf")).softmax(-1) @ x)[:, -1]


class Chunks(nn.Module):
    """A recurrence h = 0.9 h + tanh(x W)."""

    def __init__(self):
        super().__init__()
        self.up, self.head = nn.Linear(16, 32), nn.Linear(32, 10)

    def forward(self, x):  # (batch, length, 16)
        h = 0
        for step in range(x.shape[1]):
            h = 0.9 * h + torch.tanh(self.up(x[:, step]))
        return self.head(h)


class Centred(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(24, 32), nn.Linear(32, 10)

    def forward(self, x):  # (batch, 24)
        x = torch.tanh(self.up(x))
        return self.down(x - x.mean(1, keepdim=True))
