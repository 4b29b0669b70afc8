"""Watches the choices that a network in JAX makes while it runs."""

import math
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax._src import source_info_util
from jax.extend.core import Literal as Constant

import fwbench
from fwbench.ext.proofs.case import Point
from fwbench.ext.proofs.choices import COMPARISONS, Choice, Choices, Site
from fwbench.ext.proofs.jax import _AS_WRITTEN, JaxSide
from fwbench.ext.proofs.power.facts import CALLS, LAYOUT, LOOPS, RULED, inner_programs, is_real, is_variable
from fwbench.ext.proofs.power.program import _bound
from fwbench.ext.proofs.power.sites import _is_users
from fwbench.ext.proofs.where.calls import is_installed
from fwbench.frameworks.jax.options import known

# JAX's functions that choose for their caller. Others guard against numbers that are not finite, or turn an index.
_CHOOSING = {"_where", "where", "clip", "relu", "relu6", "hard_tanh", "maximum", "minimum", "select"}

# The attribute of a side that keeps its watched program.
_WATCHED = "_watched_program"

_OWN = str(Path(fwbench.__file__).parent)


def taken(side: JaxSide, point: Point) -> Choices:
    """The sides of their choices that the network, its loss and its own rules of differentiation take at a point."""
    arguments = side.arguments(point)
    with side.arithmetic():
        # All points of a case have one program.
        if (watched := vars(side).get(_WATCHED)) is None:
            watched = vars(side)[_WATCHED] = _watched(side, arguments)
        flags, noted = watched
        results = flags(*jax.tree.leaves(arguments))
    choices = Choices()
    for choice, (holds, fails) in zip(noted, results, strict=True):
        choices.note(choice, bool(holds), bool(fails))
    return choices


def _watched(side: JaxSide, arguments: Any) -> tuple[Any, list[Choice]]:
    """A compiled function from a side's arguments to two flags for each choice, the sides taken; and the choices."""
    program = jax.make_jaxpr(side.answer)(*arguments)
    parameters, state, inputs = arguments
    given = program.jaxpr.invars[len(parameters) :]
    counters = {variable: name for variable, name in zip(given, side.held(state), strict=False) if name}
    names = dict(zip(given[len(state) :], sorted(inputs), strict=True))
    # The loss's factor changes no forward pass.
    watches = [(program, _Watch(names, counters))] if side.case.wanted.loss == 1 else []
    if sites := {_site(eqn) for eqn in _every(program.jaxpr) if eqn.primitive.name == "custom_vjp_call"} - {None}:
        # What such a rule computes is at the line of its call. JAX's own rules compare, too, at other lines.
        gradient = jax.make_jaxpr(jax.grad(side.answer, has_aux=True))(*arguments)
        watches.append((gradient, _Watch({}, {}, only=sites)))

    def flags(*leaves: Any) -> list[tuple[Any, Any]]:
        for closed, watch in watches:
            watch.run(closed.jaxpr, closed.consts, leaves, None)
        return [sides for _, watch in watches for _, sides in watch.noted]

    leaves = jax.tree.leaves(arguments)
    compiled = jax.jit(flags).lower(*leaves).compile(compiler_options=known(_AS_WRITTEN))
    return compiled, [choice for _, watch in watches for choice, _ in watch.noted]


def _every(jaxpr: Any) -> Iterator[Any]:
    """The operations of a program, with those inside of functions and loops."""
    for eqn in jaxpr.eqns:
        yield eqn
        if eqn.primitive.name in CALLS or eqn.primitive.name in LOOPS:
            for inner in inner_programs(eqn):
                yield from _every(inner.jaxpr)


class _Watch:
    """Runs a program as JAX's own `eval_jaxpr` does, and notes comparisons, masks and limits of the user's code.

    Attributes:
        noted: each choice, with a flag for each of its two sides that is true if the side is taken.
    """

    def __init__(
        self, names: dict[Any, str], counters: dict[Any, str], only: Collection[Site | None] | None = None
    ) -> None:
        """
        Args:
            only: the expressions whose choices are noted; None: all.
        """
        self._names, self._only = names | counters, only
        self._counters = set(counters)
        # Single numbers of the program that reach one of JAX's functions as its arguments.
        self._numbers: dict[Any, float] = {}
        self.noted: list[tuple[Choice, tuple[Any, Any]]] = []

    def run(self, jaxpr: Any, constants: Sequence[Any], arguments: Sequence[Any], caller: Site | None) -> list[Any]:
        """
        Args:
            caller: the user's expression that calls one of JAX's functions, if this is that function's program.
        """
        values = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*constants, *arguments], strict=True))

        def read(atom: Any) -> Any:
            return atom.val if isinstance(atom, Constant) else values[atom]

        for eqn in jaxpr.eqns:
            operands = [read(atom) for atom in eqn.invars]
            with eqn.ctx.manager:
                results = self._apply(eqn, operands, caller)
            values.update(zip(eqn.outvars, results, strict=True))
            if eqn.primitive.name in LAYOUT:
                self._passed(eqn.outvars[:1], eqn.invars[:1])
            elif eqn.primitive.name == "add":
                variables = [atom for atom in eqn.invars if is_variable(atom)]
                # A counter's next number has the counter's name.
                if len(variables) == 1 and variables[0] in self._counters:
                    self._passed(eqn.outvars, variables)
        return [read(atom) for atom in jaxpr.outvars]

    def _apply(self, eqn: Any, operands: Sequence[Any], caller: Site | None) -> list[Any]:
        site = caller or _site(eqn)
        name = eqn.primitive.name
        if name in CALLS and site:
            (inner,) = inner_programs(eqn)
            own = name not in RULED and _is_users(eqn, inner.jaxpr)
            if own or name in RULED or eqn.params.get("name") in _CHOOSING:
                self._passed(inner.jaxpr.invars, eqn.invars)
                return self.run(inner.jaxpr, inner.consts, operands, caller if own else site)
        noted = site and (self._only is None or site in self._only)
        for how, number, atom, mask in self._made(eqn, operands) if noted else ():
            choice = Choice(site, how, number, self._name(atom))  # type: ignore[arg-type]
            self.noted.append((choice, (jnp.any(mask), ~jnp.all(mask))))
        return _bound(eqn, operands)

    def _passed(self, variables: Sequence[Any], atoms: Sequence[Any]) -> None:
        """Note that variables hold the values of these operands, in any shape and type."""
        for variable, atom in zip(variables, atoms, strict=True):
            if (name := self._name(atom)) is not None:
                self._names[variable] = name
            if (number := self._number(atom)) is not None:
                self._numbers[variable] = number

    def _number(self, atom: Any) -> float | None:
        """The single number that an operand is in the program; None if it is none."""
        if is_variable(atom):
            return self._numbers.get(atom)
        return None if jnp.ndim(atom.val) else float(atom.val)

    def _name(self, atom: Any) -> str | None:
        """The name of the input that an operand holds; None if it holds none."""
        return self._names.get(atom) if atom is not None and is_variable(atom) else None

    def _made(self, eqn: Any, operands: Sequence[Any]) -> Iterator[tuple[str, float | None, Any, Any]]:
        """The choices of an operation: how, a number, the variable that is compared, the mask of the condition."""
        name, atoms = eqn.primitive.name, eqn.invars
        if name in COMPARISONS and atoms[0] is not atoms[1]:
            number = self._number(atoms[1])
            # This comparison makes an index below 0 count from the end.
            turned = name == "lt" and number == 0 and not is_real(atoms[0].aval)
            if not turned and (number is None or math.isfinite(number)):
                compared = None if number is None else atoms[0]
                yield name, number, compared, eqn.primitive.bind(*operands, **eqn.params)
        # A condition that shapes decide is a number in the program.
        elif name == "select_n" and is_real(eqn.outvars[0].aval) and is_variable(mask := atoms[0]):
            if mask.aval.dtype == bool:
                yield "mask", None, atoms[0], operands[0]
        elif name == "cond":
            yield "mask", None, atoms[0], operands[0] != 0
        elif name == "clamp":
            for how, atom, limit in (("below", atoms[0], operands[0]), ("above", atoms[2], operands[2])):
                yield how, self._number(atom), None, operands[1] < limit if how == "below" else operands[1] > limit
        elif name in ("max", "min"):
            which = next((index for index in (1, 0) if self._number(atoms[index]) is not None), None)
            if which is not None and math.isfinite(limit := self._number(atoms[which]) or 0.0):
                x = operands[1 - which]
                yield ("below", limit, None, x < limit) if name == "max" else ("above", limit, None, x > limit)


def _site(eqn: Any) -> Site | None:
    """The expression of the user's code that called JAX; None where a library did."""
    frame = next(iter(source_info_util.user_frames(eqn.source_info.traceback)), None)
    if frame is None or is_installed(frame.file_name) or frame.file_name.startswith(_OWN):
        return None
    return frame.file_name, frame.start_line, frame.end_column
