"""Training steps of the user's own, with the state that their function makes, in PyTorch and JAX."""

from fwbench.extensions import Extension

_PROGRAMS = {"torch": f"{__package__}.torch:OwnStep", "jax": f"{__package__}.jax:OwnStep"}

EXTENSION = Extension(kinds={"own_steps": _PROGRAMS})
