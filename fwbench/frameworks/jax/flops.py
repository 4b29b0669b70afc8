"""Floating-point operations of a traced function: matrix products and convolutions, before XLA changes them."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import jax


def counted(function: Callable[..., Any], *arguments: Any) -> float:
    """Count a call's operations, two for each multiply-accumulate, without computing anything.

    A loop's body counts once per iteration if their number is known (`scan`), else once. Of several branches the
    largest counts.
    """
    return _counted(jax.make_jaxpr(function)(*arguments).jaxpr)


def _counted(jaxpr: Any) -> float:
    return sum(map(_of, jaxpr.eqns), 0.0)


def _of(equation: Any) -> float:
    given, params = equation.invars, equation.params
    match equation.primitive.name:
        case "dot_general":
            (contracted, _), _ = params["dimension_numbers"]
            return 2.0 * equation.outvars[0].aval.size * math.prod(given[0].aval.shape[axis] for axis in contracted)
        case "conv_general_dilated":
            kernel = given[1].aval
            # With a dilated input most of a kernel meets zeros.
            per_output = kernel.size / kernel.shape[params["dimension_numbers"].rhs_spec[0]]
            return 2.0 * equation.outvars[0].aval.size * per_output / math.prod(params["lhs_dilation"])
        case "cond":
            return max(_counted(branch.jaxpr) for branch in params["branches"])
        case "scan":
            return float(params["length"]) * _counted(params["jaxpr"].jaxpr)
    return sum(map(_counted, _inner(params.values())), 0.0)


def _inner(values: Any) -> Iterator[Any]:
    """The programs that an equation calls."""
    for value in values:
        jaxpr = getattr(value, "jaxpr", value)
        if hasattr(jaxpr, "eqns"):
            yield jaxpr
        elif isinstance(value, list | tuple):
            yield from _inner(value)
