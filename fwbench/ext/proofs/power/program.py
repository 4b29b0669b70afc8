"""One program for all mistakes: the candidate's own, with the number of the mistake to make as an argument."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import Literal as Constant

from fwbench.ext.proofs.power.facts import INLINED, LOOPS, RULED, inner_programs
from fwbench.ext.proofs.power.sites import Path, Site

# The number for no mistake.
NONE = -1


class Planted:
    """A program with mistakes, called with the number of the one to make."""

    def __init__(self, closed: Any, sites: Sequence[Site]) -> None:
        self._closed = closed
        self._by_path: dict[Path, list[tuple[int, Site]]] = defaultdict(list)
        self._inside: dict[Path, list[int]] = defaultdict(list)
        for number, site in enumerate(sites):
            self._by_path[site.path].append((number, site))
            for length in range(len(site.path)):
                self._inside[site.path[:length]].append(number)

    def __call__(self, which: Any, limits: Any, arguments: Sequence[Any]) -> tuple[list[Any], dict[int, Any]]:
        """
        Args:
            which: number of the mistake, or `NONE`.
            limits: the value at which each clip stands, by its number.
            arguments: the program's arguments.

        Returns:
            The program's outputs, and the least and the largest value that each clip would meet, by its number.
        """
        return _Call(self._by_path, self._inside, which, limits).whole(self._closed, arguments)


class _Call:
    """One pass through the program; `ranges` are then as `Planted` returns them."""

    def __init__(self, by_path: Any, inside: Any, which: Any, limits: Any) -> None:
        self._by_path, self._inside, self._which, self._limits = by_path, inside, which, limits
        self.ranges: dict[int, Any] = {}

    def whole(self, closed: Any, arguments: Sequence[Any]) -> tuple[list[Any], dict[int, Any]]:
        constants = self._changed((), "constant", list(closed.consts), ())
        return self.run(closed.jaxpr, constants, self._changed((), "argument", list(arguments), ()), ()), self.ranges

    def run(self, jaxpr: Any, constants: Sequence[Any], arguments: Sequence[Any], path: Path) -> list[Any]:
        """Evaluate the program as JAX's own `eval_jaxpr` does, with the mistakes."""
        values = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*constants, *arguments], strict=True))

        def read(atom: Any) -> Any:
            return atom.val if isinstance(atom, Constant) else values[atom]

        for number, eqn in enumerate(jaxpr.eqns):
            here = (*path, number)
            operands = self._changed(here, "operand", [read(atom) for atom in eqn.invars], ())
            with eqn.ctx.manager:
                results = self._changed(here, "result", self._apply(eqn, operands, here), operands)
            values.update(zip(eqn.outvars, results, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def _apply(self, eqn: Any, operands: Sequence[Any], path: Path) -> list[Any]:
        name = eqn.primitive.name
        numbers = self._inside.get(path)
        if not numbers:
            return _bound(eqn, operands)
        if name in LOOPS:
            return self._loop(eqn, operands, path)
        (inner,) = inner_programs(eqn)
        inlined = self._inner(inner, (*path, 0))
        if name in INLINED:
            return inlined(*operands)
        assert name in RULED
        # The gradient rule stays as the user wrote it.
        right = _bound(eqn, operands)

        def difference(right: list[Any], *operands: Any) -> list[Any]:
            return [wrong - value for wrong, value in zip(inlined(*operands), right, strict=True)]

        def nothing(right: list[Any], *operands: Any) -> list[Any]:
            return [jnp.zeros_like(value) for value in right]

        fixed = lax.stop_gradient((right, *operands))
        wrong = lax.cond(jnp.isin(self._which, np.array(numbers)), difference, nothing, *fixed)
        return [value + more for value, more in zip(right, lax.stop_gradient(wrong), strict=True)]

    def _loop(self, eqn: Any, operands: Sequence[Any], path: Path) -> list[Any]:
        """The results of an operation that repeats or chooses its inner programs."""
        name, parameters = eqn.primitive.name, eqn.params
        programs = [self._inner(inner, (*path, number)) for number, inner in enumerate(inner_programs(eqn))]
        if name == "cond":
            return list(lax.switch(operands[0], programs, *operands[1:]))
        if name == "while":
            tests, bodies = parameters["cond_nconsts"], parameters["body_nconsts"]
            first, second, carry = operands[:tests], operands[tests : tests + bodies], operands[tests + bodies :]
            condition, body = programs
            return list(
                lax.while_loop(
                    lambda carry: condition(*first, *carry)[0], lambda carry: body(*second, *carry), list(carry)
                )
            )
        (body,) = programs
        fixed, carried = _scanned(parameters)
        constants, carry, each = operands[:fixed], operands[fixed : fixed + carried], operands[fixed + carried :]

        def step(carry: list[Any], each: list[Any]) -> tuple[list[Any], list[Any]]:
            results = body(*constants, *carry, *each)
            return results[:carried], results[carried:]

        shared = {name: parameters[name] for name in ("length", "reverse", "unroll")}
        last, stacked = lax.scan(step, list(carry), list(each), **shared)
        return [*last, *stacked]

    def _inner(self, inner: Any, path: Path) -> Callable[..., list[Any]]:
        return lambda *operands: self.run(inner.jaxpr, inner.consts, operands, path)

    def _changed(self, path: Path, at: str, values: list[Any], operands: Sequence[Any]) -> list[Any]:
        """The values, changed if the mistake to make is planted here."""
        for number, site in self._by_path.get(path, ()):
            if site.at != at:
                continue
            value = jnp.asarray(values[site.index])
            mistake, limit = site.mistake, self._limits[number]
            if mistake.clips:
                self.ranges[number] = jnp.min(value), jnp.max(value)

            chosen = self._which == number
            # 1 unless the mistake is made: a gradient of NaN stays NaN when it is multiplied by 0.
            harmless = [jnp.where(chosen, each, 1) for each in (value, *(operands if mistake.takes_operands else ()))]
            wrong = mistake.change(harmless[0], harmless[1:], limit)
            values[site.index] = jnp.where(chosen, wrong, value)
        return values


def _bound(eqn: Any, operands: Sequence[Any]) -> list[Any]:
    results = eqn.primitive.bind(*operands, **eqn.primitive.get_bind_params(eqn.params))
    return list(results) if eqn.primitive.multiple_results else [results]


def _scanned(parameters: Any) -> tuple[int, int]:
    """The numbers of operands of a scan that are the same in each step, and that it carries from step to step."""
    if "num_consts" in parameters:
        return parameters["num_consts"], parameters["num_carry"]
    fixed, carried, _ = (len(part) for part in parameters["ft_in"].unpack())
    return fixed, carried
