"""PyTorch, eager and compiled."""

from fwbench.frameworks.torch.adapter import FRAMEWORK

__all__ = ["FRAMEWORK"]
