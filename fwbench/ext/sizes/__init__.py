"""Inference whose calls each take a list of sizes in turn, in PyTorch and JAX."""

from fwbench.extensions import Extension

_PROGRAMS = {"torch": f"{__package__}.torch:MixedInference", "jax": f"{__package__}.jax:MixedForward"}

EXTENSION = Extension(kinds={"sizes": _PROGRAMS})
