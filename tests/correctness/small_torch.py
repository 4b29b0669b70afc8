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
