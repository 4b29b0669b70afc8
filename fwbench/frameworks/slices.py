"""Equal slices of a batch along its first axis: one for each rank of a program over several devices."""

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from fwbench.frameworks.contract import Ranks


def share(ranks: Ranks | None, array: NDArray[Any]) -> NDArray[Any]:
    """This rank's slice of an array of samples; without ranks the whole array."""
    if ranks is None:
        return array
    samples = len(array) // ranks.size
    return array[ranks.rank * samples : (ranks.rank + 1) * samples]


def shares(ranks: Ranks | None, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """This rank's slice of each input of a batch."""
    return {name: share(ranks, array) for name, array in arrays.items()}
