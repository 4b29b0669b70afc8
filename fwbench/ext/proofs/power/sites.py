"""Finds the places in a JAX program where a planted mistake changes something."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, Literal

import numpy as np
from jax._src import source_info_util

from fwbench.ext.proofs.power import mistakes
from fwbench.ext.proofs.power.facts import (
    CALLS,
    COMPARING,
    EVERYWHERE,
    INLINED,
    LAYOUT,
    LOOPS,
    NOTHING,
    Known,
    Range,
    behind,
    even,
    inner_programs,
    is_real,
    is_variable,
    known_numbers,
    reached,
    results,
    windows,
)
from fwbench.ext.proofs.power.mistakes import Mistake
from fwbench.ext.proofs.where.calls import is_installed

Path = tuple[int, ...]

_CLIPPED = {"dot_general", "conv_general_dilated", "custom_vjp_call", "add", "neg", "exp", "log"}
# Operations that only move or choose values. Mistakes are planted where the values are made.
_NEUTRAL = LAYOUT | set(INLINED) | set(LOOPS) | {"select_n", "concatenate", "pad", "split"}


@dataclass(frozen=True)
class Site:
    """One mistake at one place of the program.

    Attributes:
        path: for each operation around it, from the outside in, that one's number and its inner program's; then the
            operation's own number. Empty: the whole program.
        at: the kind of value that is changed; `index` is its number among those of its kind.
        place: file and line of the user's code that computes it, or the argument's name.
        range: the values beyond which a clip changes nothing for any weights.
    """

    path: Path
    at: Literal["operand", "result", "argument", "constant"]
    index: int
    mistake: Mistake
    place: str
    range: Range = EVERYWHERE

    def name(self, limit: float) -> str:
        """The mistake and its place in words; `limit` is the value at which a clip stands."""
        what = f"clip at {limit:.3g}" if self.mistake.clips else self.mistake.what
        return f"{what} ({self.place})" if self.place else what


class _Scope:
    """The relation of an inner program's operations to the whole program.

    Args:
        alive, sloped: for each output of the program, whether it matters, and whether its gradient does.
        ends: the windows of the outputs.

    Attributes:
        alive: the variables on which an output depends.
        sloped: those through which the loss's gradient flows.
        windows: by variable, the values beyond which its size makes no difference.
        seen: whether values can be observed from outside and gradients changed; false inside loops and gradient rules.
    """

    def __init__(
        self, path: Path, place: str, jaxpr: Any, alive: list[bool], sloped: list[bool], seen: bool, ends: list[Range]
    ) -> None:
        self.path, self.place, self.seen = path, place, seen
        self.alive = reached(jaxpr, alive, by_gradients=False)
        self.sloped = reached(jaxpr, sloped, by_gradients=True)
        self.windows = windows(jaxpr, ends)


def sites(closed: Any, names: Sequence[str], parameters: int, *, loss: bool = True) -> list[Site]:
    """All places at which a mistake can change something, in the order of the program.

    Args:
        closed: the program; its first output is the loss, its second one the network's output.
        names: the names of its arguments, parameters first.
        parameters: the number of parameters.
        loss: whether the loss is the candidate's own, so that mistakes are planted after the network's output, too.
    """
    jaxpr = closed.jaxpr
    walk = _Walk(set() if loss else behind(jaxpr, jaxpr.outvars[1]))
    count = len(jaxpr.outvars)
    first = [index == 0 for index in range(count)]
    scope = _Scope((), "", jaxpr, [True] * count, first, True, [EVERYWHERE] * count)
    known = []
    for index, (variable, name) in enumerate(zip(jaxpr.invars, names, strict=True)):
        known.append(Known(slope=is_real(variable.aval) and index < parameters))
        if not is_real(variable.aval) or variable not in scope.alive:
            continue
        window = scope.windows.get(variable, EVERYWHERE)
        walk.sites.extend(
            Site((), "argument", index, mistake, name or "input", window) for mistake in mistakes.of_values(given=True)
        )
        if index < parameters and variable in scope.sloped:
            walk.sites.extend(Site((), "argument", index, mistake, "") for mistake in mistakes.of_gradient(name))
    for index, (variable, value) in enumerate(zip(jaxpr.constvars, closed.consts, strict=True)):
        if variable in scope.alive and is_real(variable.aval):
            walk.sites.extend(
                Site((), "constant", index, mistake, "") for mistake in mistakes.of_constant(value, False)
            )
    walk.program(jaxpr, [*(Known(varies=False) for _ in closed.consts), *known], scope)
    return walk.sites


@dataclass
class _Walk:
    """Goes through a program once and collects the mistakes that can be planted.

    Attributes:
        others: the variables that code other than the candidate's computes.
    """

    others: set[Any]
    sites: list[Site] = field(default_factory=list)

    def program(self, jaxpr: Any, arguments: Sequence[Known], scope: _Scope) -> list[Known]:
        """Walk through a program; return the facts known about its outputs."""
        known: dict[Any, Known] = dict(zip([*jaxpr.constvars, *jaxpr.invars], arguments, strict=True))

        def read(atom: Any) -> Known:
            if is_variable(atom):
                return known.get(atom, Known())
            return Known((float(atom.val),) * 2 if np.ndim(atom.val) == 0 else EVERYWHERE, varies=False)

        unsigned, stable = even(jaxpr), known_numbers(jaxpr)
        for number, eqn in enumerate(jaxpr.eqns):
            if self.others.issuperset(eqn.outvars):
                continue
            given = [read(atom) for atom in eqn.invars]
            here, place = (*scope.path, number), _place(eqn, scope.place)
            made = self._inside(eqn, given, here, place, scope) or results(eqn, given, number in stable)
            known.update(zip(eqn.outvars, made, strict=True))
            if any(variable in scope.alive for variable in eqn.outvars):
                self._operands(eqn, given, here, place)
                self._results(eqn, made, here, place, scope, unsigned)
        return [read(atom) for atom in jaxpr.outvars]

    def _inside(self, eqn: Any, given: Sequence[Known], path: Path, place: str, scope: _Scope) -> list[Known]:
        """The facts known about the results of an operation with an inner program; an empty list for others."""
        name = eqn.primitive.name
        if name in LOOPS:
            unknown = Known(slope=any(each.slope for each in given))
            for number, inner in enumerate(inner_programs(eqn)):
                jaxpr = inner.jaxpr
                count = len(jaxpr.outvars)
                every, none, open_ = [True] * count, [False] * count, [EVERYWHERE] * count
                deeper = _Scope((*path, number), "", jaxpr, every, none, False, open_)
                self.program(jaxpr, [unknown] * len([*jaxpr.constvars, *jaxpr.invars]), deeper)
            return [unknown] * len(eqn.outvars)
        if name not in CALLS:
            return []
        jaxpr = inner_programs(eqn)[0].jaxpr
        alive, sloped = ([variable in each for variable in eqn.outvars] for each in (scope.alive, scope.sloped))
        ends = [scope.windows.get(variable, EVERYWHERE) for variable in eqn.outvars]
        place = "" if _is_users(eqn, jaxpr) else place
        deeper = _Scope((*path, 0), place, jaxpr, alive, sloped, scope.seen and name in INLINED, ends)
        return self.program(jaxpr, [*(Known(varies=False) for _ in jaxpr.constvars), *given], deeper)

    def _operands(self, eqn: Any, given: Sequence[Known], path: Path, place: str) -> None:
        name = eqn.primitive.name
        if name in COMPARING and not any(each.varies for each in given):
            return
        for index, atom in enumerate(eqn.invars):
            if not is_real(atom.aval):
                continue
            planted = [] if given[index].range == NOTHING else mistakes.of_operand(name, index, atom.aval)
            if not is_variable(atom) and np.ndim(atom.val) == 0 and math.isfinite(atom.val):
                planted = [*planted, *mistakes.of_constant(atom.val, name == "add")]
            self.sites.extend(Site(path, "operand", index, mistake, place) for mistake in planted)

    def _results(
        self, eqn: Any, made: Sequence[Known], path: Path, place: str, scope: _Scope, unsigned: set[Any]
    ) -> None:
        name = eqn.primitive.name
        if name in _NEUTRAL:
            return
        operands = [atom.aval for atom in eqn.invars]
        for index, (variable, known) in enumerate(zip(eqn.outvars, made, strict=True)):
            if variable not in scope.alive or not known.varies or not is_real(variable.aval):
                continue
            clips = scope.seen and name in _CLIPPED and variable.aval.size > 1
            planted = [each for each in mistakes.of_values() if clips or not each.clips]
            planted += mistakes.of_result(name, operands, variable.aval)
            if variable in unsigned:
                planted = [each for each in planted if each.kind != "difference swapped"]
            if scope.seen and known.slope and variable in scope.sloped:
                planted += mistakes.of_gradient()
            low, high = scope.windows.get(variable, EVERYWHERE)
            ends = max(low, known.range[0]), min(high, known.range[1])
            self.sites.extend(Site(path, "result", index, mistake, place, ends) for mistake in planted)


def _place(eqn: Any, outer: str) -> str:
    """The place of the enclosing operation, or, if that has none, file and line of the user's code."""
    frames = _frames(eqn)
    return outer or (f"{PurePath(frames[0].file_name).name}:{frames[0].start_line}" if frames else "")


def _frames(eqn: Any) -> list[Any]:
    """The calls that led to an operation, innermost first: the user's, or else those of an installed library."""
    frames = list(source_info_util.user_frames(eqn.source_info.traceback))
    return [frame for frame in frames if not is_installed(frame.file_name)] or frames


def _is_users(eqn: Any, jaxpr: Any) -> bool:
    """True if the program inside an operation is a function of the user's code.

    JAX traces a function of its own once, for its first caller. The operations inside carry that caller's name then.
    """
    functions = {frame.function_name.split(".")[-1] for inner in jaxpr.eqns[:1] for frame in _frames(inner)}
    return eqn.params.get("name") in functions
