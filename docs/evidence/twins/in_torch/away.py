"""Mistakes that show only away from the initial weights: scales of zero, layer scale, gates."""

import torch
from torch import nn


class Scaled(nn.Module):
    """A residual block behind a layer scale of 1e-6."""

    def __init__(self):
        super().__init__()
        self.up, self.down, self.head = nn.Linear(24, 48), nn.Linear(48, 24), nn.Linear(24, 10)
        self.gamma = nn.Parameter(torch.full((24,), 1e-6))

    def forward(self, x):  # (batch, 24)
        return self.head(x + self.gamma * self.down(torch.tanh(self.up(x))))


class Gate(nn.Module):
    """Flamingo's gate, closed at first."""

    def __init__(self):
        super().__init__()
        self.up, self.head = nn.Linear(24, 24), nn.Linear(24, 10)
        self.gate = nn.Parameter(torch.zeros(1))

    def forward(self, x):  # (batch, 24)
        return self.head(x + torch.tanh(self.gate) * torch.tanh(self.up(x)))


class Adapter(nn.Module):
    """Low-rank adaptation, whose second matrix is zero at first."""

    def __init__(self):
        super().__init__()
        self.base, self.down, self.up = nn.Linear(24, 10), nn.Linear(24, 4, bias=False), nn.Linear(4, 10, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):  # (batch, 24)
        return self.base(x) + 16 / 4 * self.up(self.down(x))


class Temperature(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.head = nn.Linear(24, 32), nn.Linear(32, 10)
        self.temperature = nn.Parameter(torch.zeros(1))

    def forward(self, x):  # (batch, 24)
        return self.head(torch.tanh(self.up(x))) * self.temperature.clamp(max=4.6).exp()


class Bias(nn.Module):
    """Attention with a bias by relative position, zero at first."""

    def __init__(self):
        super().__init__()
        self.qk, self.head = nn.Linear(24, 48), nn.Linear(24, 10)
        self.table = nn.Parameter(torch.zeros(31))

    def forward(self, x):  # (batch, 16, 24)
        q, k = self.qk(x).chunk(2, -1)
        place = torch.arange(16, device=x.device)
        bias = self.table[place[None, :] - place[:, None] + 15]
        return self.head((q @ k.mT / 24**0.5 + bias).softmax(-1) @ x)[:, 3]


class Modulated(nn.Module):
    """Adaptive normalisation: shift and scale of x come from c, and are zero at first."""

    def __init__(self):
        super().__init__()
        self.norm, self.modulation = nn.LayerNorm(24, elementwise_affine=False), nn.Linear(16, 48)
        self.head = nn.Linear(24, 10)
        nn.init.zeros_(self.modulation.weight)
        nn.init.zeros_(self.modulation.bias)

    def forward(self, x, c):  # (batch, 24), (batch, 16)
        shift, scale = self.modulation(torch.tanh(c)).chunk(2, -1)
        return self.head(self.norm(x) * (1 + scale) + shift)
