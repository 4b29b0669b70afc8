"""How many mistakes a proof would have found: mistakes are planted in the candidate's own program, one at a time.

This module imports no framework: a stored proof holds a `Power`.
"""

from dataclasses import dataclass

from fwbench.record.decoding import Decoded

# Most mistakes that a sentence lists.
_LISTED = 6

_MODES = {"eval": "inference", "train": "training"}


@dataclass(frozen=True)
class Power(Decoded):
    """What a proof at its points and with its bounds makes of planted mistakes.

    Attributes:
        planted: mistakes, each tried by itself.
        found: how many of them an error beyond its bound shows at one of the points.
        missed: a name and a place of each of the others.
        possible: mistakes that could have been planted; those that were are spread evenly over kinds and depth.
        modes: of the programs in which they were planted; empty if an older proof does not say.
    """

    planted: int
    found: int
    missed: tuple[str, ...]
    possible: int
    modes: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """For example `would have found 187 of 190 mistakes planted in inference; not found: clip at -2 (a.py:41)`."""
        planted = f"mistakes planted in {' and '.join(map(_MODES.__getitem__, self.modes))}" if self.modes else ""
        counted = f"would have found {self.found} of {self.planted} {planted or 'planted mistakes'}"
        more = [f"and {len(self.missed) - _LISTED} more"] if len(self.missed) > _LISTED else []
        return counted + ("; not found: " + ", ".join([*self.missed[:_LISTED], *more]) if self.missed else "")

    def __add__(self, other: "Power") -> "Power":
        """The power over two modes together."""
        missed = (*self.missed, *other.missed)
        counts = self.planted + other.planted, self.found + other.found
        modes = tuple(dict.fromkeys((*self.modes, *other.modes)))
        return Power(*counts, tuple(dict.fromkeys(missed)), self.possible + other.possible, modes)
