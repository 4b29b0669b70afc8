"""What float64 hides: overflow, detours through half precision, cancellation."""

import torch
from torch import nn
from torch.nn import functional as F


class Similar(nn.Module):
    """Softmax over a hundred times the cosines of all pairs."""

    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Linear(16, 24), nn.Linear(24, 10)

    def forward(self, x):  # (batch, 12, 16)
        x = F.normalize(self.embed(x), dim=-1)
        return self.head((100 * x @ x.mT).softmax(-1) @ x).mean(1)


class Hashed(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(61, 24), nn.Linear(24, 10)

    def forward(self, ids):  # (batch, 16)
        return self.head(self.embed((ids * 40503 + 7) % 61).mean(1))


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(24, 48), nn.Linear(48, 10)

    def forward(self, x):  # (batch, 24)
        return self.down(torch.tanh(self.up(x)))


class Spread(nn.Module):
    """Standard deviation and other moments of 24 numbers."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(24, 10)

    def forward(self, x):  # (batch, 24)
        x = x - x.mean(-1, keepdim=True)
        return self.head(x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt())


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(24, 10)

    def forward(self, x):  # (batch, 24)
        return self.head(1e5 * torch.log1p(1e-5 * x))


class Soft(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(24, 10)

    def forward(self, x):  # (batch, 24)
        return self.head(F.softplus(x))


class Near(nn.Module):
    """Distances of points to each other."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(12, 10)

    def forward(self, x):  # (batch, 12, 16)
        return self.head((x[:, :, None] - x[:, None]).square().sum(-1)).mean(1)


class Clock(nn.Module):
    """Seconds as a phase of the minute."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(32, 10)

    def forward(self, seconds):  # (batch, 16)
        phase = (seconds % 60).to(self.head.weight.dtype) * (2 * torch.pi / 60)
        return self.head(torch.cat([phase.sin(), phase.cos()], -1))


class Energy(nn.Module):
    """Logarithm of a sum of exponentials."""

    def __init__(self):
        super().__init__()
        self.up = nn.Linear(24, 160)

    def forward(self, x):  # (batch, 24)
        return self.up(x).unflatten(-1, (10, 16)).logsumexp(-1)
