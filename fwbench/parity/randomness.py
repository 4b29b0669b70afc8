"""Whether two networks that draw random numbers while training draw alike."""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fwbench.parity.case import Array, Side
from fwbench.parity.errors import NotTheSame

# Random keys for each side.
KEYS = 32

# How often the outputs are dealt anew to the two sides. A result beyond all deals has a probability of one in 10,000 by
# chance.
_DEALS = 9_999


@dataclass(frozen=True)
class Likeness:
    """How the outputs of two sides over their keys compare.

    Attributes:
        spread: how many times as far the candidate's outputs lie from each other as the reference's.
        resolution: the largest such ratio, or its inverse, that dealing the outputs anew makes: the smallest difference
            that would have been seen.
        alike: whether neither the spread nor the place of the outputs is beyond all deals.
    """

    spread: float
    resolution: float
    alike: bool


def compare(reference: Array, candidate: Array) -> Likeness:
    """Compare two samples of outputs, each of shape (keys, numbers), by a permutation test.

    Outputs are told apart by their mean distances within the sides and between them (Szekely and Rizzo, "Energy
    statistics", J. Stat. Plan. Inference 143, 2013), which needs no assumption on how they are distributed.
    """
    outputs = np.concatenate([reference, candidate])
    distances = _distances(outputs)
    keys = len(reference)
    dealt = np.tile(np.arange(len(outputs)) < keys, (_DEALS + 1, 1)).astype(np.float64)
    # The first row is the true assignment.
    dealt[1:] = np.random.default_rng(0).permuted(dealt[1:], axis=1)
    within = [((one @ distances) * one).sum(1) / (keys * (keys - 1)) for one in (dealt, 1 - dealt)]
    between = ((dealt @ distances) * (1 - dealt)).sum(1) / keys**2
    spreads = np.log(within[1] / within[0])
    places = 2 * between - within[0] - within[1]
    seen = float(np.max(np.abs(spreads[1:])))
    alike = abs(spreads[0]) <= seen and places[0] <= np.max(places[1:])
    return Likeness(float(np.exp(spreads[0])), math.exp(seen), bool(alike))


def check(reference: Side, candidate: Side, name: str) -> str:
    """Compare the random layers of two sides; return a sentence, if both have some.

    Raises:
        NotTheSame: one of them alone is random, or they are random in different ways.
    """
    model = reference.case.model
    where = f"{model.name} (train)"
    random = {model.reference: reference.is_random(), name: candidate.is_random()}
    if not any(random.values()):
        return ""
    if not all(random.values()):
        one, other = sorted(random, key=random.__getitem__, reverse=True)
        raise NotTheSame(
            f"{where}: {one} is random in training mode, as two keys give two outputs, and {other} is "
            f"not: give {other} the same dropout, or take it out of {one}"
        )
    steady = {model.reference: reference.is_steady(), name: candidate.is_steady()}
    if not all(steady.values()):
        still = min(steady, key=steady.__getitem__)
        raise NotTheSame(
            f"{where}: both are random in training mode, and what {still} draws cannot be switched off, so nothing "
            "can be compared: draw it in a layer of the framework's own, such as Dropout"
        )
    # float32, as rounding does not matter here, and it is faster.
    coarse = [type(one)(replace(one.case, dtype="float32")) for one in (reference, candidate)]
    likeness = compare(*(one.draws(KEYS) for one in coarse))
    if not likeness.alike:
        raise NotTheSame(
            f"{where}: both are random in training mode, but not alike: over {KEYS} keys each the outputs "
            f"of {name} spread {likeness.spread:.3g} times as far as those of {model.reference}, which chance brings "
            "about less than once in 10,000 times: compare the rates"
        )
    return (
        "Both are random in training mode, and were compared without randomness; with it, the outputs of "
        f"{name} spread {likeness.spread:.2f} times as far as those of {model.reference} over {KEYS} keys "
        f"each. A factor beyond {likeness.resolution:.2f} would have shown, but not which layers draw."
    )


def _distances(outputs: Array) -> NDArray[np.float64]:
    """The distances between every two rows."""
    centred = (outputs - outputs.mean(0)).astype(np.float64)
    squares = np.sum(centred**2, 1)
    return np.sqrt(np.maximum(squares[:, None] + squares - 2 * centred @ centred.T, 0))
