"""Facts about a JAX program that hold for all weights: the values that matter, and the limits between which they lie.

A mistake that changes nothing for any weights says nothing about a proof. The places of such mistakes are recognised by
rule, none by trial:

- a value on which no output depends, or through which no gradient flows;
- a number that meets only other numbers, as in a comparison of sizes;
- the largest logit, which a softmax subtracts to avoid overflow: any other number would do (`_shifts`);
- the sign of a value that is squared everywhere (`even`);
- a value computed from padding alone, as by most taps of a kernel that is wider than the image (`_box`);
- a clip that no value reaches (`_result_range`), or beyond which the next operation makes all values equal (`windows`).
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal as Constant

# Calls whose results and gradients are those of their inner program.
INLINED = {"jit": "jaxpr", "pjit": "jaxpr", "closed_call": "call_jaxpr", "core_call": "call_jaxpr", "remat2": "jaxpr"}
# Calls with a gradient rule of their own, which a mistake inside does not change.
RULED = {"custom_jvp_call": "call_jaxpr", "custom_vjp_call": "call_jaxpr"}
CALLS = {**INLINED, **RULED}
LOOPS = {"scan": ("jaxpr",), "while": ("cond_jaxpr", "body_jaxpr"), "cond": ("branches",)}

# Operations that only move values. A mistake in their result is planted in their operand.
_SAME = {"copy", "copy_p", "convert_element_type", "optimization_barrier", "stop_gradient"}
_MOVED = {"reshape", "broadcast_in_dim", "transpose", "squeeze", "expand_dims", "rev"}
LAYOUT = _SAME | _MOVED | {"slice", "dynamic_slice", "gather"}
COMPARING = {"eq", "ne", "lt", "le", "gt", "ge"}
_CHOOSING = {"select_n", "concatenate", "pad"}
_LARGEST = {"reduce_max", "reduce_min", "reduce_window_max", "cummax", "cummin"}
_FLAT = COMPARING | {"stop_gradient", "floor", "ceil", "round", "sign", "argmax", "argmin", "is_finite", "iota"}
_EVEN = {"square", "abs", "cos"}
_ENDS = {"logistic": (0.0, 1.0), "tanh": (-1.0, 1.0), "erf": (-1.0, 1.0), "erfc": (0.0, 2.0)}

Range = tuple[float, float]
# By an operation, the range of its result, given those of its operands.
_RANGES: dict[str, Callable[..., Range]] = {
    "exp": lambda x: (float(np.exp(x[0])), float(np.exp(x[1]))),
    "log": lambda x: (float(np.log(x[0])), float(np.log(x[1]))),
    "neg": lambda x: (-x[1], -x[0]),
    "add": lambda x, y: (x[0] + y[0], x[1] + y[1]),
    "sub": lambda x, y: (x[0] - y[1], x[1] - y[0]),
}
EVERYWHERE: Range = (-math.inf, math.inf)
NOTHING: Range = (0.0, 0.0)


@dataclass(frozen=True)
class Known:
    """The facts about a value that hold for all weights.

    Attributes:
        range: the least and the largest value that it can have.
        varies: whether it depends on weights or inputs.
        slope: whether a parameter's gradient flows through it.
        box: by axis the first index and the index after the last; outside it is 0, as padding is. None: nowhere.
    """

    range: Range = EVERYWHERE
    varies: bool = True
    slope: bool = False
    box: tuple[tuple[int, int], ...] | None = None


def inner_programs(eqn: Any) -> list[Any]:
    """The programs inside an operation, in order, each with its constants; JAX holds some without."""
    name = eqn.primitive.name
    inner: list[Any] = []
    for parameter in LOOPS[name] if name in LOOPS else (CALLS[name],):
        value = eqn.params[parameter]
        inner += value if isinstance(value, tuple) else [value]
    return [each if hasattr(each, "consts") else SimpleNamespace(jaxpr=each, consts=()) for each in inner]


def is_variable(atom: Any) -> bool:
    """True if an operand is a variable, not a number in the program."""
    return not isinstance(atom, Constant)


def is_real(aval: Any) -> bool:
    """True if an array is of floating point."""
    return jnp.issubdtype(aval.dtype, np.floating)


def reached(jaxpr: Any, outputs: Sequence[bool], *, by_gradients: bool) -> set[Any]:
    """The variables on which some outputs depend, or through which these outputs' gradients flow."""
    variables = {atom for atom, wanted in zip(jaxpr.outvars, outputs, strict=True) if wanted and is_variable(atom)}
    ignored = set(_shifts(jaxpr))
    for number, eqn in reversed(list(enumerate(jaxpr.eqns))):
        wanted, name = [variable in variables for variable in eqn.outvars], eqn.primitive.name
        if not any(wanted) or (by_gradients and name in _FLAT):
            continue
        operands = [atom for index, atom in enumerate(eqn.invars) if (number, index) not in ignored]
        if name in CALLS:
            inner = inner_programs(eqn)[0].jaxpr
            inside = reached(inner, wanted, by_gradients=by_gradients)
            operands = [atom for atom, variable in zip(eqn.invars, inner.invars, strict=True) if variable in inside]
        variables |= {atom for atom in operands if is_variable(atom) and (not by_gradients or is_real(atom.aval))}
    return variables


def behind(jaxpr: Any, variable: Any) -> set[Any]:
    """The variables that are computed from a variable, without itself."""
    variables = {variable}
    for eqn in jaxpr.eqns:
        if any(is_variable(atom) and atom in variables for atom in eqn.invars):
            variables |= set(eqn.outvars)
    return variables - {variable}


def even(jaxpr: Any) -> set[Any]:
    """The variables whose sign no use depends on, as they are squared or made positive wherever they are used."""
    odd = {atom for atom in jaxpr.outvars if is_variable(atom)}
    used = set()
    for eqn in jaxpr.eqns:
        variables = {atom for atom in eqn.invars if is_variable(atom)}
        used |= variables
        if eqn.primitive.name not in _EVEN and not _squares(eqn):
            odd |= variables
    return used - odd


def windows(jaxpr: Any, outputs: Sequence[Range]) -> dict[Any, Range]:
    """By variable, the values beyond which its size makes no difference, such as those below 0 before a ReLU.

    The argument has the same values of each output.
    """
    ends: dict[Any, Range] = {}

    def widen(atom: Any, window: Range) -> None:
        if is_variable(atom):
            low, high = ends.get(atom, window)
            ends[atom] = min(low, window[0]), max(high, window[1])

    for atom, window in zip(jaxpr.outvars, outputs, strict=True):
        widen(atom, window)
    for eqn in reversed(jaxpr.eqns):
        behind = [ends.get(variable, (math.inf, -math.inf)) for variable in eqn.outvars]
        name = eqn.primitive.name
        if name in CALLS:
            inner = inner_programs(eqn)[0].jaxpr
            inside = windows(inner, behind)
            before = [inside.get(variable, EVERYWHERE) for variable in inner.invars]
        elif name in LAYOUT or name in _LARGEST:
            before = [behind[0]] * len(eqn.invars)
        elif name in ("max", "min") and not all(map(is_variable, eqn.invars)) and is_real(eqn.outvars[0].aval):
            constant = next(float(atom.val) for atom in eqn.invars if not is_variable(atom))
            low, high = behind[0]
            before = [(max(low, constant), high) if name == "max" else (low, min(high, constant))] * 2
        else:
            before = [EVERYWHERE] * len(eqn.invars)
        for atom, window in zip(eqn.invars, before, strict=True):
            widen(atom, window)
    return ends


def known_numbers(jaxpr: Any) -> set[int]:
    """The numbers of the operations that subtract the largest of some values from these values."""
    return {number for number, index in _shifts(jaxpr) if index == 1 and jaxpr.eqns[number].primitive.name == "sub"}


def results(eqn: Any, operands: Sequence[Known], subtracts_largest: bool) -> list[Known]:
    """The facts known about an operation's results."""
    ends = [operand.range for operand in operands]
    with np.errstate(all="ignore"):
        low, high = _result_range(eqn, ends)
    if subtracts_largest:
        high = min(high, 0.0)
    slope = eqn.primitive.name not in _FLAT and any(operand.slope for operand in operands)
    # A limit that is not a number, such as infinity less infinity, is no limit.
    bounds = -math.inf if math.isnan(low) else low, math.inf if math.isnan(high) else high
    box = _box(eqn, operands)
    if box and any(first >= last for first, last in box):
        bounds = NOTHING
    varies = bounds != NOTHING and any(operand.varies for operand in operands)
    return [Known(bounds, varies, slope and is_real(variable.aval), box) for variable in eqn.outvars]


def _box(eqn: Any, operands: Sequence[Known]) -> tuple[tuple[int, int], ...] | None:
    """The box outside of which a result is 0; None if none is known."""
    name = eqn.primitive.name
    if name in _SAME:
        return operands[0].box
    if name == "pad" and operands[1].range == NOTHING:
        sizes, pads = eqn.invars[0].aval.shape, eqn.params["padding_config"]
        if all(low >= 0 and between == 0 for low, _, between in pads):
            return tuple((int(low), int(low) + size) for size, (low, _, _) in zip(sizes, pads, strict=True))
    if name == "slice" and operands[0].box:
        starts, sizes = eqn.params["start_indices"], eqn.outvars[0].aval.shape
        steps = eqn.params["strides"] or (1,) * len(starts)
        ends = zip(operands[0].box, starts, steps, sizes, strict=True)
        return tuple(
            (max(0, -((start - first) // step)), min(size, -((start - last) // step)))
            for (first, last), start, step, size in ends
        )
    return None


def _result_range(eqn: Any, ends: Sequence[Range]) -> Range:
    name = eqn.primitive.name
    if name in _ENDS:
        return _ENDS[name]
    if name == "gather" and (filling := eqn.params["fill_value"]) is not None and not math.isnan(filling):
        # An index that is out of range finds this number. NaN is no value that a limit cuts off.
        return min(ends[0][0], float(filling)), max(ends[0][1], float(filling))
    if (name in LAYOUT or name in _LARGEST) and ends:
        return ends[0]
    if name in _CHOOSING:
        cases = ends[1:] if name == "select_n" else ends
        return min(low for low, _ in cases), max(high for _, high in cases)
    if name in ("max", "min"):
        choose = max if name == "max" else min
        return choose(low for low, _ in ends), choose(high for _, high in ends)
    if name in _RANGES:
        return _RANGES[name](*ends)
    if name == "abs" and ends[0][0] >= 0:
        return ends[0]
    if name in ("abs", "square", "sqrt", "rsqrt") or _squares(eqn):
        return 0.0, math.inf
    if name == "reduce_sum":
        count = eqn.invars[0].aval.size / max(eqn.outvars[0].aval.size, 1)
        return count * ends[0][0], count * ends[0][1]
    if name == "mul" and NOTHING in ends:
        return NOTHING
    if name in ("mul", "div", "cumsum") and all(low >= 0 for low, _ in ends):
        return 0.0, math.inf
    return EVERYWHERE


def _squares(eqn: Any) -> bool:
    name = eqn.primitive.name
    return (name == "integer_pow" and eqn.params["y"] % 2 == 0) or (name == "mul" and eqn.invars[0] is eqn.invars[1])


def _shifts(jaxpr: Any) -> Iterator[tuple[int, int]]:
    """The uses of the largest logit m in softmax and logsumexp: the numbers of the operation and of the operand.

    exp(x - m) / sum(exp(x - m)), x - m - log(sum(exp(x - m))) and log(sum(exp(x - m))) + m have one value for all m.
    """
    makers = {variable: eqn for eqn in jaxpr.eqns for variable in eqn.outvars}
    uses: dict[Any, set[str]] = {}
    for eqn in jaxpr.eqns:
        for atom in eqn.invars:
            if is_variable(atom):
                uses.setdefault(atom, set()).add(eqn.primitive.name)
    largest = set()
    for number, eqn in enumerate(jaxpr.eqns):
        if eqn.primitive.name == "sub":
            maximum = _maximum(eqn.invars[1], makers)
            shifted = uses.get(eqn.outvars[0], set())
            if maximum is not None and maximum.invars[0] is eqn.invars[0] and "exp" in shifted <= {"exp", "sub"}:
                largest.add(maximum.outvars[0])
                yield number, 1
    for number, eqn in enumerate(jaxpr.eqns):
        if eqn.primitive.name == "add":
            for index, other in ((0, 1), (1, 0)):
                maximum = _maximum(eqn.invars[index], makers)
                maker = _before_layout(eqn.invars[other], makers)
                if maximum is not None and maximum.outvars[0] in largest and maker and maker.primitive.name == "log":
                    yield number, index


def _maximum(atom: Any, makers: Mapping[Any, Any]) -> Any:
    """The `reduce_max` that an operand comes from, unchanged but for a guard against infinity; else None."""
    eqn = _before_layout(atom, makers)
    if eqn is None or eqn.primitive.name == "reduce_max":
        return eqn
    guarded = {"max": eqn.invars, "select_n": eqn.invars[1:]}.get(eqn.primitive.name, ())
    origins = (_maximum(each, makers) for each in guarded)
    return next((origin for origin in origins if origin is not None), None)


def _before_layout(atom: Any, makers: Mapping[Any, Any]) -> Any:
    """The operation that made a value before others moved it; None for an argument or a number."""
    eqn = makers.get(atom) if is_variable(atom) else None
    while eqn is not None and eqn.primitive.name in LAYOUT:
        eqn = makers.get(eqn.invars[0]) if is_variable(eqn.invars[0]) else None
    return eqn
