"""Gates, which may fail a run of the suite besides its tests: for other programs, a slower head, a worse record."""

from fwbench.gates.choose import choose
from fwbench.gates.contract import Gate

__all__ = ["Gate", "choose"]
