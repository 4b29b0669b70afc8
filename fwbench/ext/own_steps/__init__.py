"""Training steps of the user's own, with the state that their function makes, in PyTorch and JAX."""

from fwbench.extensions import Extension

EXTENSION = Extension(steps={name: f"fwbench.ext.own_steps.{name}:OwnStep" for name in ("torch", "jax")})
