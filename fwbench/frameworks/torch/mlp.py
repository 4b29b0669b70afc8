"""The MNIST MLP: 784-256-128-10 with ReLU."""

import torch
from torch import nn


class MLP(nn.Module):
    """Logits of shape (batch, 10) from flat pixels of shape (batch, 784)."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(784, 256)
        self.fc2 = nn.Linear(256, 128)
        self.fc3 = nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.fc1(x))
        x = torch.relu(self.fc2(x))
        return self.fc3(x)
