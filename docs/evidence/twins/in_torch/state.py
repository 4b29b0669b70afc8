"""State over calls: running statistics, moving averages, counters."""

import torch
from torch import nn


class Batch(nn.Module):
    momentum = 0.1

    def __init__(self):
        super().__init__()
        self.up, self.norm = nn.Linear(24, 32), nn.BatchNorm1d(32, momentum=self.momentum)
        self.down = nn.Linear(32, 10)

    def forward(self, x):  # (batch, 24)
        return self.down(torch.tanh(self.norm(self.up(x))))


class Cumulative(Batch):
    momentum = None  # the average of all batches


class Centre(nn.Module):
    """Activations less their moving average, which training moves."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(24, 32), nn.Linear(32, 10)
        self.register_buffer("centre", torch.zeros(32))

    def forward(self, x):  # (batch, 24)
        x = torch.tanh(self.up(x))
        if self.training:
            with torch.no_grad():
                self.centre.mul_(0.95).add_(0.05 * x.mean(0))
        return self.down(x - self.centre)
