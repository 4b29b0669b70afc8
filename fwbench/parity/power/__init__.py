"""The power of a proof: the mistakes that it finds of those planted in the candidate's own program, one at a time.

This module imports no framework, as a stored proof holds a `Power`.
"""

from dataclasses import dataclass

from fwbench.record.decoding import Decoded

# Most mistakes that a sentence lists.
_LISTED = 6

_MODES = {"eval": "inference", "train": "training"}


@dataclass(frozen=True)
class Power(Decoded):
    """The counts of planted mistakes, and of those that a proof finds at its points and with its bounds.

    Attributes:
        planted: number of mistakes, each tried by itself.
        found: number of those that cause an error beyond its bound at one of the points.
        missed: name and place of each of the others.
        possible: number of mistakes that could have been planted; the planted ones are spread evenly over kinds and
            depth.
        modes: modes of the programs in which they were planted; empty if an older proof does not record them.
    """

    planted: int
    found: int
    missed: tuple[str, ...]
    possible: int
    modes: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """In words: `would have found 187 of 190 mistakes planted in inference; not found: clip at -2 (a.py:41)`."""
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
