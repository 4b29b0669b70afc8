"""PyTorch, eager and compiled."""
