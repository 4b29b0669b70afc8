"""JAX: the networks in Flax NNX, called through `jax.jit` over flat leaves."""

from fwbench.frameworks.jax.adapter import FRAMEWORK

__all__ = ["FRAMEWORK"]
