"""Compares two networks that draw random numbers in training mode, as dropout does, by a permutation test."""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fwbench.ext.proofs.case import CHANCE, Array, Side
from fwbench.ext.proofs.errors import NotTheSame
from fwbench.ext.proofs.lengths import relative
from fwbench.models import ModelError

# Random keys for each side of a network of any size, and the most for a small one: 1,024 keys distinguish a dropout
# rate of 0.12 from one of 0.1.
KEYS, _MOST_KEYS = 32, 1_024

# Numbers of keys to try in turn. A side is not random if it gives the same output for all of them; so many are needed
# because stochastic depth of 0.05 acts in only one of ten batches of two samples.
_LOOKS = (2, 16, 128)

# Random deals of the outputs to the two sides, and deals held in memory at a time. By chance a result lies beyond all
# deals once in 10,000 times.
_DEALS, _CHUNK = 9_999, 500


@dataclass(frozen=True)
class Likeness:
    """The comparison of two sides' outputs over their random keys.

    Attributes:
        spread: mean distance between the candidate's outputs, relative to that between the reference's.
        resolution: the largest such ratio, or inverse of one, over all random deals: the smallest difference that the
            test can show.
        alike: whether neither the spread nor the place of the outputs is beyond all deals.
    """

    spread: float
    resolution: float
    alike: bool


def compare(reference: Array, candidate: Array) -> Likeness:
    """Compare two samples of outputs, each of shape (keys, numbers), by a permutation test.

    The test compares the outputs' mean distances within the sides and between them (Szekely and Rizzo, "Energy
    statistics", J. Stat. Plan. Inference 143, 2013). It assumes nothing about the distribution of the outputs.
    """
    outputs = np.concatenate([reference, candidate])
    # float32 is exact enough beside the scatter of keys, and halves time and memory.
    distances = _distances(outputs).astype(np.float32)
    keys, rows, total = len(reference), distances.sum(1, dtype=np.float64), distances.sum(dtype=np.float64)
    rng = np.random.default_rng(0)
    assigned = np.arange(len(outputs)) < keys
    chunks = []
    for begin in range(0, _DEALS + 1, _CHUNK):
        dealt = np.tile(assigned, (min(_CHUNK, _DEALS + 1 - begin), 1))
        # The first row is the true assignment.
        dealt[begin == 0 :] = rng.permuted(dealt[begin == 0 :], axis=1)
        within = np.einsum("ij,ij->i", dealt.astype(np.float32) @ distances, dealt, dtype=np.float64)
        between = dealt @ rows - within
        chunks.append(np.stack([within, total - 2 * between - within, between], axis=1))
    sums = np.concatenate(chunks)
    reference_mean, candidate_mean = sums[:, :2].T / (keys * (keys - 1))
    spreads = np.log(candidate_mean / reference_mean)
    places = 2 * sums[:, 2] / keys**2 - reference_mean - candidate_mean
    seen = float(np.max(np.abs(spreads[1:])))
    alike = abs(spreads[0]) <= seen and places[0] <= np.max(places[1:])
    return Likeness(float(np.exp(spreads[0])), math.exp(seen), bool(alike))


def is_random(side: Side) -> bool:
    """True if two keys give two outputs in training mode. Trying more keys shows rarer effects."""
    for keys in _LOOKS if side.may_draw() else ():
        first, *others = side.draws(keys)
        if any(relative(first, other) > CHANCE for other in others):
            return True
    return False


def check(reference: Side, candidate: Side, name: str) -> str:
    """Compare the random layers of two sides; return a sentence, which is empty if neither has any.

    Raises:
        NotTheSame: only one of them is random, or they are random in different ways.
        ModelError: the randomness of one of them cannot be switched off, as it draws in code of its own.
    """
    model = reference.case.model
    where = f"{model.name} (train)"
    random = {model.reference: is_random(reference), name: is_random(candidate)}
    if not any(random.values()):
        return ""
    steady = {model.reference: reference.is_steady(), name: candidate.is_steady()}
    if not all(steady.values()):
        still = min(steady, key=steady.__getitem__)
        raise ModelError(
            f"{where}: what {still} draws cannot be switched off, so nothing can be compared in training mode: draw it "
            "in a layer of the framework's own, such as Dropout"
        )
    if not all(random.values()):
        one, other = sorted(random, key=random.__getitem__, reverse=True)
        raise NotTheSame(
            f"{where}: {one} is random in training mode, as two keys give two outputs, and {other} is "
            f"not: give {other} the same dropout, or take it out of {one}"
        )
    # float32, as rounding does not matter here, and it is faster.
    coarse = [type(one)(replace(one.case, dtype="float32")) for one in (reference, candidate)]
    keys = _keys(reference)
    likeness = compare(*(one.draws(keys) for one in coarse))
    if not likeness.alike:
        raise NotTheSame(
            f"{where}: both are random in training mode, but not alike: over {keys} keys each the outputs "
            f"of {name} spread {likeness.spread:.3g} times as far as those of {model.reference}, which chance brings "
            "about less than once in 10,000 times: compare the rates"
        )
    return (
        "Both are random in training mode, and were compared without randomness; with it, the outputs of "
        f"{name} spread {likeness.spread:.2f} times as far as those of {model.reference} over {keys} keys "
        f"each. A factor beyond {likeness.resolution:.2f} would have shown, but not which layers draw."
    )


def _keys(side: Side) -> int:
    """The number of keys that a network of this size has time for, a power of two."""
    most = 1 << max(0, (side.room // side.case.batch_size).bit_length() - 1)
    return max(KEYS, min(_MOST_KEYS, most))


def _distances(outputs: Array) -> NDArray[np.float64]:
    """The distances between all pairs of rows."""
    centred = (outputs - outputs.mean(0)).astype(np.float64)
    squares = np.sum(centred**2, 1)
    return np.sqrt(np.maximum(squares[:, None] + squares - 2 * centred @ centred.T, 0))
