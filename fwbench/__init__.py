"""fwbench: which framework runs my model faster, leaner and cheaper on this machine, and has that changed?

PYTEST_DONT_REWRITE: a plugin whose modules pytest-benchmark's own command has imported before pytest looks at them.
"""

__version__ = "0.1.0"
