"""Plants mistakes in a candidate's JAX program, and counts those that its proof would find."""

import functools
import itertools
import math
import time
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from fwbench.ext.proofs.case import MAIN, Point, Side
from fwbench.ext.proofs.errors import FORWARD, Errors, Quantity, bound, gradient_errors, measure
from fwbench.ext.proofs.jax import JaxSide, State, options
from fwbench.ext.proofs.power.mistakes import KINDS
from fwbench.ext.proofs.power.program import NONE, Planted
from fwbench.ext.proofs.power.sites import Site, sites
from fwbench.models.store import Power
from fwbench.models.weights import is_statistic

_MOST = 120
_GOLDEN = (math.sqrt(5) - 1) / 2


def power(
    side: JaxSide, reference: Side, points: Sequence[Point], most: int = _MOST, seconds: float = math.inf
) -> Power:
    """Count the mistakes, planted in a side's program, that its proof would find.

    The program with a mistake is compared with the one without it, at one point after the other, until an error exceeds
    its bound.

    Args:
        reference: the proof's other side, whose rounding it admits.
        points: the proof's points; clips stand beyond the values seen at the first.
        most: the most mistakes to plant, evenly over their kinds and the program's depth.
        seconds: time after which no more are tried; mistakes that were not tried by then do not count.
    """
    programs = _Programs(side, points[0], most)
    end = time.monotonic() + seconds
    tried = [number for number in range(len(programs.sites)) if not programs.is_harmless(number)]
    missed = tried
    for point in points:
        right, left = _Mistaken(programs, NONE), []
        # The others are compared with it as the proof compares it with the reference.
        vars(right)["rounding"] = reference.rounding
        for position, number in enumerate(missed):
            if missed is tried and time.monotonic() > end:
                tried = tried[:position]
                break
            if not _differs(_Mistaken(programs, number), right, point):
                left.append(number)
        missed = left
    return Power(len(tried), len(tried) - len(missed), tuple(map(programs.name, missed)), programs.possible)


class _Programs:
    """A side's programs with the chosen mistakes.

    Attributes:
        sites: the mistakes, by their numbers.
        possible: number of mistakes that could have been chosen.
        apply: a forward pass, given arguments, the number of a mistake, and the limits of clips.
        differentiate: the same with gradients.
        limits: the value at which each clip stands, by its number.
    """

    def __init__(self, side: JaxSide, first: Point, most: int) -> None:
        self.side = side
        arguments = _weighed(side, first)
        # Buffers are constants here, as no point of a proof's power makes calls that change them.
        buffers = {name: array for name, array in side.arguments(first)[1].items() if not is_statistic(name)}

        def own(parameters: State, statistics: State, inputs: State) -> Any:
            loss, (output, after) = side.answer(parameters, {**buffers, **statistics}, inputs)
            return loss, (output, {name: after[name] for name in statistics})

        with side.arithmetic():
            program, shape = jax.make_jaxpr(own, return_shape=True)(*arguments)
        structure = jax.tree.structure(shape)
        names = [str(path[-1].key) for path, _ in jax.tree_util.tree_flatten_with_path(arguments)[0]]
        # fwbench computes the losses that have a name.
        every = sites(program, names, len(arguments[0]), loss=not isinstance(side.case.model.loss, str))
        self.sites, self.possible = _spread(every, most), len(every)
        self.limits = np.zeros(len(self.sites))
        planted = Planted(program, self.sites)

        def answer(parameters: State, statistics: State, inputs: State, which: Any, limits: Any) -> Any:
            outputs, ranges = planted(which, limits, jax.tree.leaves((parameters, statistics, inputs)))
            loss, rest = jax.tree.unflatten(structure, outputs)
            return loss, (rest, ranges)

        compiled = functools.partial(jax.jit, compiler_options=options(side.case.model))
        self.apply = compiled(answer)
        self.differentiate = compiled(jax.value_and_grad(answer, has_aux=True))
        # Keep the arguments at the last point only.
        self.arguments = functools.lru_cache(maxsize=1)(functools.partial(_weighed, side))
        with side.arithmetic():
            _, (_, ranges) = self.apply(*self.arguments(first), NONE, self.limits)
        for number, (low, high) in ranges.items():
            self.limits[number] = self.sites[number].mistake.limit(float(low), float(high))

    def name(self, number: int) -> str:
        """A mistake and its place."""
        return self.sites[number].name(self.limits[number])

    def is_harmless(self, number: int) -> bool:
        """True if a clip changes nothing for any weights: no value reaches it, or none that matters."""
        site, limit = self.sites[number], self.limits[number]
        low, high = site.range
        return site.mistake.clips and bool(limit <= low if site.mistake.low else limit >= high)


class _Mistaken(JaxSide):
    """A side with one of the mistakes, or with none.

    Attributes:
        changes_values: whether its forward pass may differ from the right one.
    """

    def __init__(self, programs: _Programs, number: int) -> None:
        Side.__init__(self, programs.side.case)
        self._programs = programs
        self._apply = lambda *arguments: _without_ranges(programs.apply(*arguments, number, programs.limits))
        self._differentiate = lambda *arguments: self._gradients(*arguments, number, programs.limits)
        self.changes_values = number == NONE or programs.sites[number].mistake.forward

    def arguments(self, point: Point = MAIN) -> tuple[State, State, State]:
        return self._programs.arguments(point)

    def _gradients(self, *arguments: Any) -> Any:
        answer, gradients = self._programs.differentiate(*arguments)
        return _without_ranges(answer), gradients


def _weighed(side: JaxSide, point: Point) -> tuple[State, State, State]:
    """A side's arguments at a point, without buffers."""
    parameters, state, inputs = side.arguments(point)
    return parameters, {name: array for name, array in state.items() if is_statistic(name)}, inputs


def _without_ranges(answer: Any) -> Any:
    loss, (rest, _) = answer
    return loss, rest


def _differs(wrong: _Mistaken, right: _Mistaken, point: Point) -> bool:
    """True if an error exceeds its bound; the cheapest errors are computed first."""
    model = right.case.model

    def exceeds(quantity: Quantity, errors: Errors) -> bool:
        # A result that is not a number is beyond every bound.
        return not all(error <= bound(model, quantity) for error in errors.values())

    # A mistake in a gradient leaves the forward pass unchanged.
    forward = FORWARD if wrong.changes_values else ()
    if any(exceeds(quantity, measure(quantity, right, wrong, point)) for quantity in forward):
        return True
    actual, expected = wrong.backward(point).gradients, right.backward(point).gradients
    rounding = right.rounding(point).gradients
    for name in sorted(expected, key=lambda name: expected[name].size):
        errors = gradient_errors(
            {name: actual[name]}, {name: expected[name]}, {name: rounding[name]}, bound(model, "gradients")
        )
        if exceeds("gradients", errors):
            return True
    return False


def _spread(everything: Sequence[Site], most: int) -> list[Site]:
    """Choose at most so many sites, spread evenly over their kinds and over the program."""
    kinds = [[site for site in everything if site.mistake.kind == kind] for kind in KINDS]
    # Steps of the golden ratio around a circle are spread evenly, however many are taken.
    ordered = [[kind[i] for i in sorted(range(len(kind)), key=lambda i: i * _GOLDEN % 1)] for kind in kinds]
    turns = itertools.chain.from_iterable(itertools.zip_longest(*ordered))
    return [site for site in turns if site is not None][:most]
