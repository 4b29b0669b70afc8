"""No framework at all: prices the harness itself."""

from fwbench.frameworks.noop.adapter import FRAMEWORK

__all__ = ["FRAMEWORK"]
