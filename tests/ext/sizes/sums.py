"""Networks of sequences of any length: sums over all steps before, which padding does not change, and a mean."""

import jax.numpy as jnp
import torch
from flax import nnx
from torch import nn


class InTorch(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 4)

    def forward(self, x):  # (batch, length, 4)
        return self.head(x).cumsum(1)


class InJax(nnx.Module):
    def __init__(self, rngs):
        self.head = nnx.Linear(4, 4, rngs=rngs)

    def __call__(self, x):
        return jnp.cumsum(self.head(x), 1)


class Leaking(InTorch):
    def forward(self, x):
        return super().forward(x) - torch.relu(x).mean(1, keepdim=True)
