"""Gates, which may fail a run of the suite besides its tests: for other programs, a slower head, a worse record."""

from fwbench.gates.contract import Gate
from fwbench.gates.options import choose

__all__ = ["Gate", "choose"]
