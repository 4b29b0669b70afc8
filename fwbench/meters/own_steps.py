"""Sketches of the results of a training step of the user's own: its metrics and its state over the first steps.

    restart; three steps: metrics, moments, state, updates;     restart with moved weights; three steps: the same

An update is the change that the steps made to an array that does not begin at zero. As in `sketching`, the second run
shows how far rounding can change a correct program's results.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fwbench.frameworks.own_steps import FIRST, SECOND, Stepping, role_of
from fwbench.meters.sketching import Folded, fold, moved_weights, sketches_of
from fwbench.models.weights import Weights

_STEPS = 3
# Coarse element types, in which a step may compute whatever the workload's precision.
_COARSE = {"bfloat16", "float16"}

Arrays = Mapping[str, NDArray[Any]]


class _Program(Stepping, Protocol):
    def restart(self, weights: Arrays, draw: int = 0) -> None: ...

    def call_and_wait(self) -> None: ...


def of_own_steps(program: _Program, weights: Weights, precision: str) -> dict[str, Any]:
    """Sketch the first steps of a compiled program from these weights of its build. This changes its state.

    Returns:
        `metrics`, `moments`, `state` and `updates`, sketches as JSON, and `precision`, if the step computes in a coarse
        element type; or the `reason` why there are no sketches.
    """
    arithmetic = program.arithmetic()
    if arithmetic.random:
        return {"reason": "the training step draws random numbers, which differ between frameworks: switch dropout off"}
    coarse = bool(arithmetic.dtypes & _COARSE)
    unit = "bf16" if coarse else precision
    first = _results(program, weights)
    told = sketches_of(first, [_results(program, moved_weights(weights, unit))])
    return told | ({"precision": unit} if coarse else {})


def _results(program: _Program, weights: Arrays) -> dict[str, Folded]:
    """Restart from these weights, make the first steps, and fold their metrics and the state after them."""
    program.restart(weights)
    before = _by_role("updates", _values(program.state_leaves()))
    metrics: dict[str, NDArray[Any]] = {}
    for step in range(1, _STEPS + 1):
        program.call_and_wait()
        metrics |= {f"{name}, step {step}": np.array([value]) for name, value in program.metrics().items()}
    leaves = program.state_leaves()
    values = _values(leaves)
    moments = {name: array for name, array in leaves.items() if name not in values}
    after = _by_role("updates", values)
    updates = {role: _change(after[role], before[role]) for role in sorted(after.keys() & before.keys())}
    return {
        "metrics": fold("metrics", metrics, lengths=True),
        **_joined("moments", _by_role("moments", moments)),
        **_joined("state", _by_role("state", values)),
        **_joined("updates", updates),
    }


def _values(leaves: Arrays) -> dict[str, NDArray[Any]]:
    """The arrays of a state that do not begin at zero: those of parameters, without their moments."""
    return {
        name: array for name, array in leaves.items() if "." in name and not role_of(name).startswith((FIRST, SECOND))
    }


def _by_role(quantity: str, arrays: Arrays) -> dict[str, Folded]:
    roles: dict[str, dict[str, NDArray[Any]]] = {}
    for name, array in arrays.items():
        roles.setdefault(role_of(name), {})[name] = array.ravel()
    return {role: fold(quantity, of, lengths=True) for role, of in sorted(roles.items())}


def _joined(quantity: str, roles: Mapping[str, Folded]) -> dict[str, Folded]:
    """All roles' groups as one result; empty if there are none."""
    if not roles:
        return {}
    names = tuple(name for folded in roles.values() for name in folded.names)
    slots = np.concatenate([folded.slots for folded in roles.values()])
    norms = np.concatenate([folded.norms for folded in roles.values()])
    return {quantity: Folded(names, slots, norms, None)}


@np.errstate(invalid="ignore")
def _change(after: Folded, before: Folded) -> Folded:
    """The fold of the difference, as folding is linear, with its length as the slots estimate it."""
    slots = after.slots - before.slots
    return dataclasses.replace(after, slots=slots, norms=np.linalg.norm(slots, axis=1))
