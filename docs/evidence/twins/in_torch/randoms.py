"""Random layers: rates, places, scales, and stochastic depth."""

import torch
from torch import nn
from torch.nn import functional as F


class Dropped(nn.Module):
    def __init__(self, rate=0.1):
        super().__init__()
        self.up, self.down, self.drop = nn.Linear(24, 64), nn.Linear(64, 10), nn.Dropout(rate)

    def forward(self, x):  # (batch, 24)
        return self.down(self.drop(torch.relu(self.up(x))))


class DroppedMore(Dropped):
    def __init__(self):
        super().__init__(0.3)


class Branch(nn.Module):
    """Dropout of a residual branch."""

    def __init__(self):
        super().__init__()
        self.up, self.head, self.drop = nn.Linear(24, 24), nn.Linear(24, 10), nn.Dropout(0.2)

    def forward(self, x):  # (batch, 24)
        return self.head(x + self.drop(torch.tanh(self.up(x))))


class Deep(nn.Module):
    """Stochastic depth: each sample loses the branch with probability 0.25."""

    def __init__(self):
        super().__init__()
        self.up, self.head = nn.Linear(24, 24), nn.Linear(24, 10)

    def forward(self, x):  # (batch, 24)
        branch = torch.tanh(self.up(x))
        if self.training:
            branch = branch * torch.bernoulli(torch.full_like(branch[:, :1], 0.75)) / 0.75
        return self.head(x + branch)


class Channels(nn.Module):
    """Dropout of whole features, alike at all 12 places."""

    def __init__(self):
        super().__init__()
        self.up, self.head, self.drop = nn.Linear(16, 32), nn.Linear(32, 10), nn.Dropout1d(0.2)

    def forward(self, x):  # (batch, 12, 16)
        return self.head(self.drop(torch.tanh(self.up(x)).mT).mean(2))


class Noise(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(24, 32), nn.Linear(32, 10)

    def forward(self, x):  # (batch, 24)
        x = torch.tanh(self.up(x))
        return self.down(x + 0.1 * torch.randn_like(x) if self.training else x)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 10)

    def forward(self, x):  # (batch, 12, 32)
        q, k, v = self.qkv(x).chunk(3, -1)
        weights = F.dropout((q @ k.mT / 32**0.5).softmax(-1), 0.1, self.training)
        return self.out((weights @ v).mean(1))
