"""Networks that nobody can measure."""

import time

import torch
from torch import nn


class Right(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


class NoBatch(Right):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x).sum(0)


class Tuple(Right):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.layer(x), x


def raises() -> nn.Module:
    raise RuntimeError("the weights are on another machine")


def number() -> int:
    return 7


def endless() -> nn.Module:
    while True:
        time.sleep(1)
