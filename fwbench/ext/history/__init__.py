"""Trends over all saved runs, and their changes."""

from fwbench.extensions import Extension

EXTENSION = Extension(
    commands={"history": ("trends over all saved runs, and where they have changed", "fwbench.ext.history.command")}
)
