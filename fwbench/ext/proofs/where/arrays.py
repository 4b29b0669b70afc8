"""Distances between two arrays, each in the layout of its framework."""

import numpy as np

from fwbench.ext.proofs.where.calls import Array


def distance(one: Array, other: Array) -> float:
    """Norm of the difference of two arrays of one shape over the second's norm; equal infinities do not differ."""
    equal = (one == other) | (np.isnan(one) & np.isnan(other))
    difference = np.subtract(one, other, out=np.zeros(one.shape), where=~equal)
    size = float(np.linalg.norm(other[np.isfinite(other)]))
    return float(np.linalg.norm(difference)) / size if size else float(not equal.all())


def aligned(candidate: Array, reference: Array) -> Array:
    """The candidate's array in the reference's shape, with channels moved if that is nearer; sizes must be equal."""
    moved = [np.moveaxis(candidate, *axes) for axes in ((-1, 1), (1, -1)) if candidate.ndim > 2]
    options = [array.reshape(reference.shape) for array in (candidate, *moved)]
    return min(options, key=lambda array: distance(array, reference))


def ordered(*arrays: Array) -> list[Array]:
    """The numbers of each array in ascending order."""
    return [np.sort(array, axis=None) for array in arrays]


def apart(candidate: Array | None, reference: Array | None) -> float | None:
    """The distance of two arrays, each in its own layout; None if one is missing or the sizes differ.

    If the shapes differ, as when batch and length are exchanged, a smaller distance of the sorted values counts.
    """
    if candidate is None or reference is None or candidate.size != reference.size:
        return None
    error = distance(aligned(candidate, reference), reference)
    return error if candidate.shape == reference.shape else min(error, distance(*ordered(candidate, reference)))
