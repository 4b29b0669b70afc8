"""A small attention block in PyTorch, and what its author may make of it: another order of sums, or something else."""

import torch
from torch import nn
from torch.nn import functional

WIDTH = 32


class Base(nn.Module):
    scale, epsilon = WIDTH**-0.5, 1e-5

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH, eps=self.epsilon)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.head = nn.Linear(WIDTH, 5)

    def attend(self, q, k, v):
        return torch.softmax(q @ k.transpose(1, 2) * self.scale, -1) @ v

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        return self.head((x + self.attend(q, k, v)).mean(1))


class Reordered(Base):
    """Right: each sum in another order."""

    def attend(self, q, k, v):
        back = torch.arange(k.shape[1] - 1, -1, -1)
        return functional.scaled_dot_product_attention(q, k[:, back], v[:, back])

    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        normed = (x - mean) / (((x - mean) ** 2).sum(-1, keepdim=True) / WIDTH + self.epsilon).sqrt()
        q, k, v = self.qkv(normed * self.norm.weight + self.norm.bias).chunk(3, -1)
        pooled = (x + self.attend(q, k, v)).flip(1).sum(1) / x.shape[1]
        return (pooled[:, None] * self.head.weight).flip(-1).sum(-1) + self.head.bias


class Scaled(Base):
    scale = WIDTH**-0.5 * 1.02


class Loosened(Base):
    epsilon = 1e-2


class Unbiased(Base):
    """Wrong, and has fewer weights."""

    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(WIDTH, eps=self.epsilon)


class Renamed(Base):
    """Right, but its weights are drawn by other names."""

    def __init__(self):
        super().__init__()
        self.project = self.qkv
        del self.qkv

    def forward(self, x):
        q, k, v = self.project(self.norm(x)).chunk(3, -1)
        return self.head((x + self.attend(q, k, v)).mean(1))
