"""Finds digits that only one side loses in float32, in which networks are measured. A proof in float64 hides that."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from fwbench.ext.proofs.case import MAIN, Array, Point, Side
from fwbench.ext.proofs.errors import NotTheSame
from fwbench.ext.proofs.lengths import relative
from fwbench.ext.proofs.proof import Proof, elsewhere, modes_apart
from fwbench.models import Model

# The factor by which one side's error may exceed the larger of two numbers: the other side's error, and the change that
# one unit in the last place of all weights, inputs and results makes in the reference. Two correct programs round in
# different orders; a detour through bfloat16 (8 bits; float32 has 24) has an error thousands of times as large.
_ROOM = 30

# A smaller relative error counts as no loss.
_LEAST = 1e-5


def check(
    model: Model, candidate: str, left_out: Mapping[str, str], further: Sequence[Point], *, trains: bool = True
) -> None:
    """Compare the errors of both sides' float32 outputs, at the points at which a proof in float64 found them the same.

    Args:
        candidate: the framework that is proved against the model's reference.
        left_out: the points and modes at which nothing could be compared.
        further: points of the proof beyond its usual ones.
        trains: as for `Proof`.

    Raises:
        NotTheSame: one side loses digits there that the other keeps.
    """
    for mode in modes_apart(model, trains=trains):
        proof = Proof(model, candidate, mode)
        case = proof._backward
        exact, (one, other) = proof.pair(case)[0], proof.pair(replace(case, dtype="float32"))
        # Weights times thousands overflow in right networks, too.
        for point in (MAIN, *elsewhere(model), *(point for point in further if point.factor == 1)):
            if f"{point} ({mode})" not in left_out:
                _check(exact, one, other, point, (model.reference, candidate))


def _check(exact: Side, one: Side, other: Side, point: Point, names: tuple[str, str]) -> None:
    expected = exact.forward(point).output
    results = [each.forward(point).output for each in (one, other)]
    errors = [_error(result, expected) for result in results]
    moved = _error(one._forward(replace(point, moved=1)).output, results[0]) if math.isfinite(errors[0]) else 0.0
    model = exact.case.model
    best, worst = sorted(errors)
    if worst > max(_LEAST, model.tolerance.get("output", 0.0), _ROOM * max(best, moved)):
        (loses, keeps) = names if errors[0] > errors[1] else names[::-1]
        lost = f"its output is {worst:.0e} from that in float64" if math.isfinite(worst) else "its output is not finite"
        raise NotTheSame(
            f"{model.name} ({exact.case.mode}): both are the same in float64, and in float32 {loses} loses digits at "
            f"{point}: {lost}, and that of {keeps} {best:.0e}"
        )


def _error(actual: Array, expected: Array) -> float:
    """The relative difference; infinite where it is not a number."""
    with np.errstate(all="ignore"):
        error = relative(actual, expected)
    return error if math.isfinite(error) else math.inf
