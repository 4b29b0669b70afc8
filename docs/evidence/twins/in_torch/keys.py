"""Functional training with a key: rates, branches, keys used twice."""

import torch
from torch import nn


class Twice(nn.Module):
    """Two draws of dropout of one activation, added."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(24, 64), nn.Linear(64, 10)
        self.first, self.second = nn.Dropout(0.5), nn.Dropout(0.5)

    def forward(self, x):  # (batch, 24)
        x = torch.tanh(self.up(x))
        return self.down(self.first(x) + self.second(x))


class Once(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down, self.drop = nn.Linear(24, 64), nn.Linear(64, 10), nn.Dropout(0.2)

    def forward(self, x):  # (batch, 24)
        return self.down(self.drop(torch.tanh(self.up(x))))
