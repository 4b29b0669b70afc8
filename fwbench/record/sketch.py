"""Sketches: a few numbers that stand for the arrays that a program computed, so that two records can be compared.

A group of numbers is folded into a few slots: each number gets a random sign, and every slot sums its share. The signs
depend on the group's name and length alone, so two programs that compute the same arrays make the same slots, and the
distance between two programs' slots estimates the distance between their arrays (Alon, Matias and Szegedy, STOC 1996).
Where a group has no more numbers than slots, each slot holds one number, and the distance is exact.
"""

import base64
import binascii
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

# The rounding unit of each precision, as a share of a number, and the number of units by which a program's weights are
# moved. That number is large in fp32, so that a network with kinks (ReLU, a maximum) passes some of them: rounding
# seldom passes one, but then turns the gradient of a whole neuron on or off. fp64 has fp32's, as slots are float32.
UNIT = {"fp64": 2.0**-22, "fp32": 2.0**-22, "tf32": 2.0**-11, "bf16": 2.0**-8}
STEPS = {"fp64": 64, "fp32": 64, "tf32": 8, "bf16": 1}


@dataclass(frozen=True, eq=False)
class Sketch:
    """Groups of numbers, folded.

    Attributes:
        names: a name for each group.
        slots: sums, float32 of shape (groups, slots).
        norms: length (L2) of each group's numbers, shape (groups,).
        moved: length by which each group moved when every weight moved by `STEPS` rounding units of the precision and
            random layers drew again, shape (groups,). NaN if the program's weights could not be moved.
    """

    names: tuple[str, ...]
    slots: NDArray[np.float32]
    norms: NDArray[np.float32]
    moved: NDArray[np.float32]

    def to_json(self) -> dict[str, Any]:
        """JSON primitives: packed bytes as base64; norms and movements keep three digits, which is all they need."""
        return {
            "names": _text(zlib.compress("\n".join(self.names).encode())),
            "slots": _text(self.slots.astype("<f4").tobytes()),
            "norms": _text(_short(self.norms)),
            "moved": _text(_short(self.moved)),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Sketch":
        """The inverse of `to_json`.

        Raises:
            ValueError: the parts cannot be unpacked, or do not have the lengths that belong together.
        """
        try:
            parts = {name: base64.b64decode(data[name], validate=True) for name in ("names", "slots", "norms", "moved")}
            names = tuple(zlib.decompress(parts["names"]).decode().split("\n"))
            slots = np.frombuffer(parts["slots"], "<f4").reshape(len(names), -1)
            norms, moved = (_long(parts[name]) for name in ("norms", "moved"))
        except (KeyError, TypeError, binascii.Error, zlib.error) as error:
            raise ValueError(f"a sketch cannot be unpacked ({error})") from None
        if not slots.size or not len(names) == len(norms) == len(moved):
            raise ValueError("a sketch's parts do not have the lengths that belong together")
        return cls(names, slots, norms, moved)


def _text(packed: bytes) -> str:
    return base64.b64encode(packed).decode()


def _short(array: NDArray[np.float32]) -> bytes:
    """The upper half of each float32: its range and three digits."""
    return (array.astype("<f4").view("<u4") >> 16).astype("<u2").tobytes()


def _long(packed: bytes) -> NDArray[np.float32]:
    return (np.frombuffer(packed, "<u2").astype("<u4") << 16).view("<f4")
