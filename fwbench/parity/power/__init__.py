"""How many mistakes a proof would have found: mistakes are planted in the candidate's own program, one at a time.

This module imports no framework: a stored proof holds a `Power`.
"""

from dataclasses import dataclass

from fwbench.record.decoding import Decoded

# Most mistakes that a sentence lists.
_LISTED = 6


@dataclass(frozen=True)
class Power(Decoded):
    """What a proof at its points and with its bounds makes of planted mistakes.

    Attributes:
        planted: mistakes, each tried by itself.
        found: how many of them an error beyond its bound shows at one of the points.
        missed: a name and a place of each of the others.
        possible: mistakes that could have been planted; those that were are spread evenly over kinds and depth.
    """

    planted: int
    found: int
    missed: tuple[str, ...]
    possible: int

    @property
    def sentence(self) -> str:
        """For example `would have found 187 of 190 planted mistakes; not found: clip at -2 (mixer.py:41)`."""
        counted = f"would have found {self.found} of {self.planted} planted mistakes"
        more = [f"and {len(self.missed) - _LISTED} more"] if len(self.missed) > _LISTED else []
        return counted + ("; not found: " + ", ".join([*self.missed[:_LISTED], *more]) if self.missed else "")

    def __add__(self, other: "Power") -> "Power":
        """The power over two modes together."""
        missed = (*self.missed, *other.missed)
        counts = self.planted + other.planted, self.found + other.found
        return Power(*counts, tuple(dict.fromkeys(missed)), self.possible + other.possible)
