"""Calls of a network with a state, such as a cache, in PyTorch and JAX: a prompt, or one further step."""

from fwbench.extensions import Extension

_PROGRAMS = {"torch": f"{__package__}.torch:Stateful", "jax": f"{__package__}.jax:Stateful"}

EXTENSION = Extension(kinds={"state": _PROGRAMS})
