"""Gives both sides of a proof the same random numbers in training mode, so that all their results can be compared."""

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from fwbench.ext.proofs.case import Array, Case, Side, side
from fwbench.ext.proofs.errors import bound
from fwbench.ext.proofs.lengths import relative
from fwbench.ext.proofs.randomness import KEYS, _keys
from fwbench.models import ModelError
from fwbench.models.importing import load

# The class of each framework's source. A framework without one shares no draws.
_SOURCES = {"torch": "fwbench.ext.proofs.draws.torch:Source", "jax": "fwbench.ext.proofs.draws.jax:Source"}

# Half of the numbers for a known probability lie within this share of it, so that another probability shows.
_NEAR = 1e-6

# Numbers are multiples of this, as those that JAX draws in float64.
_GRID = 2.0**-52

# Every draw of a size may be mirrored (u to 1 - u), as "kept above the rate" mirrors "kept below 1 - rate". With more
# sizes than these, all are or none is.
_MIRRORED = 3

# With more arrays of weights than these, a pass of JAX operator by operator takes a minute, so that draws which can be
# switched off are not shared: MobileNetV3 has 142.
_ARRAYS = 100

# Draws that a sentence lists.
_LISTED = 4

# A rate that differs by less may show in none of the numbers with a probability above one in 10,000.
_SHOWN = -math.log(1e-4)


@dataclass(frozen=True)
class Draw:
    """An array of random numbers that a network draws.

    Attributes:
        kind: the operator, such as `bernoulli`; empty if only bits are drawn.
        probability: that of a Bernoulli variable, for each number or for all, or the number with which the network
            compares uniform ones; None if nothing tells it.
    """

    shape: tuple[int, ...]
    kind: str = ""
    probability: Any = None

    @property
    def size(self) -> int:
        """The number of its numbers."""
        return math.prod(self.shape)

    @property
    def hides_rate(self) -> bool:
        """True if the network may compare its numbers with a rate that nothing tells."""
        return self.probability is None and self.kind in ("", "rand", "uniform")

    def __str__(self) -> str:
        rates = np.unique([] if self.probability is None else self.probability)
        rate = f", {rates[0]:.6g}" if len(rates) == 1 else ""
        return f"{' x '.join(map(str, self.shape)) or '1'} numbers{self.kind and f' ({self.kind}{rate})'}"


class Source(Protocol):
    """The random numbers of one side.

    Attributes:
        draws: the draws of a pass in training mode, in their order. A key, or a state of PyTorch's generator, that
            has drawn before draws nothing new: it gives the same numbers again.
        numbers: what each draw gives, as flat numbers in (0, 1); None while a pass shows the draws.
    """

    draws: list[Draw]
    numbers: Sequence[Array] | None

    def recording(self) -> AbstractContextManager[None]:
        """A context in which the side's draws come in the order of its program."""

    def runner(self, side: Any) -> Callable[[], Array]:
        """A function that computes the side's output in training mode at the main point."""


@dataclass(frozen=True)
class Agreement:
    """The result of comparing outputs of two sides with the same random numbers.

    Attributes:
        mirrored: for each pair of draws, whether the candidate's are mirrored; None if the sides do not agree.
        note: a sentence on what was compared, or on the draws that do not agree; empty if nothing is known of them.
    """

    mirrored: tuple[bool, ...] | None
    note: str = ""


@functools.cache
def agreed(case: Case, candidate: str) -> Agreement:
    """Try whether both sides of a case compute the same outputs from the same random numbers."""
    names = (case.model.reference, candidate)
    if not set(names) <= _SOURCES.keys():
        return Agreement(None)
    one, other = (side(name)(case) for name in names)
    is_large = len(one.shapes(case.model, case.sizes)) > _ARRAYS
    if not (one.may_draw() and other.may_draw()) or (is_large and _is_steady(one) and _is_steady(other)):
        return Agreement(None)
    try:
        sources = _sources(case, candidate)
        ours, theirs = (source.draws for source in sources)
        if not (ours and theirs):
            return Agreement(None)
        lists = f"{names[0]} draws {_listed(ours)}, and {names[1]} {_listed(theirs)}"
        if not (pairs := _pairs(ours, theirs)):
            return Agreement(None, lists)
        run, run_other = _run(one, sources[0]), _run(other, sources[1])
        apart, seeds = math.inf, _keys(one) if any(draw.hides_rate for draw in ours) else KEYS
        for mirrored in _orientations([ours[i].size for i, _ in pairs]):
            for seed in range(seeds):
                _deal(sources, pairs, mirrored, seed)
                error = relative(run(), run_other())
                if not error <= bound(case.model, "output"):
                    apart = min(apart, error)
                    break
            else:
                return Agreement(mirrored, _said(ours, seeds))
    # A network may fail where nothing is compiled, or draw what no source can give.
    except Exception:
        return Agreement(None)
    return Agreement(None, f"{lists}; from the same random numbers their outputs are {apart:.1e} apart")


def sides(case: Case, candidate: str, main: Case) -> tuple[Side, Side]:
    """The reference's side of a case and the candidate's, which share their draws if they agree so.

    Args:
        main: the case of the proof in the same mode, which tells whether they agree.

    Raises:
        ModelError: they agree there, and here their draws differ in number or size.
    """
    one, other = (side(name)(case) for name in (case.model.reference, candidate))
    if case.mode == "train" and (mirrored := agreed(main, candidate).mirrored) is not None:
        sources = _sources(replace(case, dtype="float64"), candidate)
        pairs = _pairs(*(source.draws for source in sources))
        if len(pairs) != len(mirrored):
            raise ModelError(f"{case.model.name} (train): the draws of both sides do not match at {case.sizes}")
        _deal(sources, pairs, mirrored, 0)
        one.source, other.source = sources
    return one, other


@functools.cache
def _sources(case: Case, candidate: str) -> tuple[Source, Source]:
    """The sources of both sides, which know the draws of a pass."""
    found = []
    for name in (case.model.reference, candidate):
        source: Source = load(_SOURCES[name])()
        run = _run(side(name)(case), source)
        with source.recording():
            run()
        found.append(source)
    return found[0], found[1]


def _is_steady(one: Side) -> bool:
    try:
        return one.is_steady()
    # What draws outside of layers may not run without a key.
    except ModelError:
        return False


def _run(one: Side, source: Source) -> Callable[[], Array]:
    one.source = source
    return source.runner(one)


def _pairs(ours: Sequence[Draw], theirs: Sequence[Draw]) -> list[tuple[int, int]]:
    """The places of draws that take the same numbers: the first of a size and so on; empty if they do not match."""
    orders = [sorted(range(len(draws)), key=lambda i: draws[i].size) for draws in (ours, theirs)]
    sizes = [[draws[i].size for i in order] for draws, order in zip((ours, theirs), orders, strict=True)]
    return list(zip(*orders, strict=True)) if sizes[0] == sizes[1] else []


def _orientations(sizes: Sequence[int]) -> Iterator[tuple[bool, ...]]:
    """For each draw, whether it is mirrored: all that are worth trying."""
    every = list(dict.fromkeys(sizes))
    if len(every) > _MIRRORED:
        every = every[:1]
    for mirrored in itertools.product((False, True), repeat=len(every)):
        of_size = dict(zip(every, mirrored, strict=True))
        yield tuple(of_size.get(size, mirrored[0]) for size in sizes)


def _deal(
    sources: tuple[Source, Source], pairs: Sequence[tuple[int, int]], mirrored: Sequence[bool], seed: int
) -> None:
    one, other = sources
    given = [_numbers(draw, (seed, place)) for place, draw in enumerate(one.draws)]
    taken = {
        j: _laid_out(1 - given[i] if mirror else given[i], one.draws[i].shape, other.draws[j].shape)
        for (i, j), mirror in zip(pairs, mirrored, strict=True)
    }
    one.numbers, other.numbers = given, [taken[j] for j in range(len(taken))]


def _numbers(draw: Draw, seed: tuple[int, int]) -> Array:
    """Numbers for a draw, uniform in (0, 1), half of them next to its probability if that is known."""
    rng = np.random.default_rng(seed)
    numbers = rng.random(draw.size)
    if draw.probability is not None:
        sides = rng.choice([-_NEAR, 0, 0, _NEAR], draw.size)
        near = np.broadcast_to(draw.probability, draw.shape).ravel() * (1 + sides)
        numbers = np.where(sides == 0, numbers, near)
    if seed[0] == 0:
        # Both sides of a comparison are taken in the pass in which everything is compared.
        numbers[[0, -1]] = _NEAR, 1 - _NEAR
    return np.clip(np.floor(numbers / _GRID), 1, 1 / _GRID - 1) * _GRID


def _laid_out(numbers: Array, shape: Sequence[int], other: Sequence[int]) -> Array:
    """Numbers in the order of another shape, whose channels may be last and not next to the batch, or the reverse."""
    one, two = (tuple(size for size in sizes if size > 1) for sizes in (shape, other))
    for source, target in ((1, -1), (-1, 1)):
        if len(one) > 2 and one != two and (moved := np.moveaxis(numbers.reshape(one), source, target)).shape == two:
            return moved.ravel()
    return numbers


def _listed(draws: Sequence[Draw]) -> str:
    more = [f"{len(draws) - _LISTED} more"] if len(draws) > _LISTED else []
    return " and ".join([*map(str, draws[:_LISTED]), *more])


def _said(draws: Sequence[Draw], seeds: int) -> str:
    """A sentence on what was compared, with the difference in rates that would have shown."""
    rates = [_SHOWN / (draw.size * seeds) for draw in draws if draw.hides_rate]
    rates += [2 * _NEAR for draw in draws if draw.probability is not None]
    shown = f". A rate that is off by {max(rates):.1g} would have shown" if rates else ""
    return (
        f"Both draw random numbers in training mode, {_listed(draws)}, and everything was compared with the same "
        f"numbers in both, and so were the outputs of {seeds} passes with other numbers{shown}."
    )
