"""fwbench: which framework runs my model faster, leaner and cheaper on this machine, and has that changed?"""

__version__ = "0.1.0"
