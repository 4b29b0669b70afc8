"""Derived lanes: each runs another framework's networks in the form that an exporter has written.

The lanes come from packages of their own, which derive from the classes in `fwbench.ext.derived.adapter`.
"""

from fwbench.extensions import Extension

EXTENSION = Extension()
