"""Networks in PyTorch that remember their outputs, by several keys."""

from itertools import pairwise

import torch
from torch import nn

# So that computing takes hundreds of times as long as remembering, whatever else runs on the CPUs.
_TIMES = 20


class Net(nn.Module):
    """One without a fault."""

    def __init__(self):
        super().__init__()
        sides = (64, 1024, 1024, 1024, 1024, 10)
        self.layers = nn.ModuleList(nn.Linear(*pair) for pair in pairwise(sides))

    def forward(self, x):
        first, *middle, last = self.layers
        x = torch.tanh(first(x))
        for layer in middle * _TIMES:
            x = torch.tanh(layer(x))
        return last(x)


class ById(Net):
    def __init__(self):
        super().__init__()
        self.kept = {}

    def key(self, x):
        return id(x)

    def forward(self, x):
        key = self.key(x)
        if key not in self.kept:
            self.kept[key] = super().forward(x), x
        return self.kept[key][0]


class ByPointer(ById):
    def key(self, x):
        return x.data_ptr()


class ByValue(ById):
    def key(self, x):
        return hash(x.numpy().tobytes())


class ForWeights(ById):
    def key(self, x):
        return id(x), *(parameter._version for parameter in self.parameters())
