"""Choices that no ordinary draw takes: masks, padding, ignored targets, floors, zero rows, clipping, counters."""

import torch
from torch import nn
from torch.nn import functional as F


class Pool(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(60, 32), nn.Linear(32, 10)

    def forward(self, ids, mask):  # both (batch, 12)
        mask = mask[:, :, None].to(self.embed.weight.dtype)
        return self.head((self.embed(ids) * mask).sum(1) / mask.sum(1).clamp(min=1))


class Attend(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 10)

    def forward(self, x, keep):  # (batch, 12, 32), (batch, 12)
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = (q @ k.mT / 32**0.5).masked_fill(keep[:, None, :] == 0, float("-inf"))
        return self.out((scores.softmax(-1) @ v)[:, 0])


class Padded(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(500, 32, padding_idx=417), nn.Linear(32, 10)

    def forward(self, ids):  # (batch, 12)
        return self.head(torch.tanh(self.embed(ids)).mean(1))


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(300, 24), nn.Linear(24, 300)

    def forward(self, ids):  # (batch, 8)
        return self.head(torch.tanh(self.embed(ids)))


def ignoring(logits, targets):
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=277)


class Until(nn.Module):
    """The sum of all tokens before the first 801."""

    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(1000, 24), nn.Linear(24, 10)

    def forward(self, ids):  # (batch, 16)
        alive = (ids != 801).to(self.embed.weight.dtype).cumprod(1)
        return self.head((self.embed(ids) * alive[:, :, None]).sum(1))


class Surprise(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.head = nn.LayerNorm(24), nn.Linear(24, 12)

    def forward(self, x):  # (batch, 24)
        return -torch.log(self.head(self.norm(x)).softmax(-1).clamp(min=1e-9))


class Cosine(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(16, 24, bias=False)
        self.classes = nn.Linear(24, 10, bias=False)

    def forward(self, x):  # (batch, 6, 16)
        return self.classes(F.normalize(self.query(x), dim=-1)).mean(1)


class Clipped(nn.Module):
    """Gradients of the hidden layer are kept within 1."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(24, 32), nn.Linear(32, 10)

    def forward(self, x):  # (batch, 24)
        x = self.up(x)
        if x.requires_grad:
            x.register_hook(lambda gradient: gradient.clamp(-1, 1))
        return self.down(torch.tanh(x))


class Warming(nn.Module):
    """After a hundred calls in training the activations are doubled."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(24, 32), nn.Linear(32, 10)
        self.calls = 0

    def forward(self, x):  # (batch, 24)
        self.calls += self.training
        x = torch.tanh(self.up(x))
        return self.down(2 * x if self.calls > 100 else x)


class Straight(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(24, 32), nn.Linear(32, 10)

    def forward(self, x):  # (batch, 24)
        return self.down(torch.tanh(self.up(x)))


def huber(output, targets):
    return F.huber_loss(output, targets, delta=40.0)
