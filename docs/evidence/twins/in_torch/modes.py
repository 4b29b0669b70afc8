"""Modes: training differs and inference is alike, or the reverse."""

import torch
from torch import nn
from torch.nn import functional as F


class Stack(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(24, 32), nn.Linear(32, 10)

    def forward(self, x):  # (batch, 24)
        return self.down(self.hidden(self.up(x)))


class Gated(Stack):
    """A gate that is soft in training and hard in inference."""

    def hidden(self, x):
        return x * torch.sigmoid(4 * x) if self.training else x * (x > 0)


class Straight(Stack):
    """Signs, with the gradient of the identity."""

    def hidden(self, x):
        return x + (torch.sign(x) - x).detach()


class Sharp(Stack):
    """Logits are divided by a temperature of 2 in inference alone."""

    def hidden(self, x):
        return torch.tanh(x) if self.training else torch.tanh(x) / 2


class Experts(nn.Module):
    """The best of four experts; in training their mixture."""

    def __init__(self):
        super().__init__()
        self.route, self.experts = nn.Linear(16, 4), nn.Linear(16, 40)

    def forward(self, x):  # (batch, 16)
        weights = self.route(x).softmax(-1)
        if not self.training:
            weights = F.one_hot(weights.argmax(-1), 4).to(x.dtype)
        return (self.experts(x).unflatten(-1, (4, 10)) * weights[:, :, None]).sum(1)


class Frozen(nn.Module):
    """Batch normalisation that uses the batch in training."""

    def __init__(self):
        super().__init__()
        self.up, self.norm, self.down = nn.Linear(24, 32), nn.BatchNorm1d(32), nn.Linear(32, 10)

    def forward(self, x):  # (batch, 24)
        return self.down(torch.relu(self.norm(self.up(x))))
