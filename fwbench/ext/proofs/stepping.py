"""Proves models with a state: steps must give what the whole sequence gives, and both frameworks equal states."""

import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from fwbench.ext.proofs.case import MAIN, Array, Case, Point, Side, side
from fwbench.ext.proofs.errors import NotTheSame, bound, relative_l2
from fwbench.ext.proofs.lengths import distance, length
from fwbench.models import Model
from fwbench.models.store import Nearest

# Steps after a prompt in the longest sequence, whose last positions, masks and table rows no shorter one reaches.
_LAST = 2

# Most arrays of states that a note lists.
_LISTED = 6

# Points of short sequences. The canonical weights alone do not reach every clip or branch.
_POINTS = (MAIN, Point("perturbed"))


def prove(model: Model, candidate: str) -> tuple[list[Nearest], str]:
    """Compare a prompt and further steps with the whole sequence in each framework, and the states of both frameworks.

    Returns:
        The errors that are nearest to their bounds: of outputs (`steps`), and of the state. And a note on the arrays of
        the states that were not compared across frameworks; empty if all were.

    Raises:
        NotTheSame: an error is beyond its bound; the sentence names framework, step and array.
        ModelError: a state cannot be made or taken as the model describes it.
    """
    found: list[Nearest] = []
    unpaired: dict[str, None] = {}
    for case, prompt, point in _runs(model):
        sides = {framework: side(framework)(case) for framework in (model.reference, candidate)}
        states = {}
        for framework, one in sides.items():
            steps, states[framework] = _alone(one, framework, prompt, point)
            found += steps
        errors, alone = _across(case, states[model.reference], states[candidate], candidate, point)
        found += errors
        unpaired |= dict.fromkeys(alone)
    worst = {name: [one for one in found if one.quantity == name] for name in ("steps", "state")}
    return [max(errors, key=lambda one: one.ratio) for errors in worst.values() if errors], _note(list(unpaired))


def _note(unpaired: Sequence[str]) -> str:
    """A note on arrays that were not compared across frameworks; empty if there are none."""
    more = [f"{len(unpaired) - _LISTED} more"] if len(unpaired) > _LISTED else []
    listed = ", ".join([*unpaired[:_LISTED], *more])
    return f"Not compared, as the other state has no array of this name and shape: {listed}." if unpaired else ""


def _runs(model: Model) -> Iterator[tuple[Case, int, Point]]:
    """The runs to compare: a case, the number of steps in its prompt, and the point."""
    short = Case(model, axes=tuple(model.proof_axes.items()))
    for point, prompt in itertools.product(_POINTS, dict.fromkeys((1, max(short.steps // 2, 1)))):
        yield short, prompt, point
    longest = max(model.declared(model.sequence))
    if longest > max(short.steps, _LAST):
        yield Case(model, axes=((model.sequence, longest),)), longest - _LAST, MAIN


def _alone(one: Side, framework: str, prompt: int, point: Point) -> tuple[list[Nearest], dict[str, Array]]:
    """The errors of one framework's steps against its own whole sequence, and its state after them."""
    case = one.case
    model, steps = case.model, case.steps
    calls = [prompt, *[1] * (steps - prompt)]
    whole = one.forward(point).output
    stepped, at_once = one.stepped(calls, point), one.stepped([steps], point)
    outputs = {}
    for end, output in zip(itertools.accumulate(calls), stepped.outputs, strict=True):
        # A call may return its last step's output alone.
        expected = whole[:, end - 1] if output.ndim < whole.ndim else whole[:, end - output.shape[1] : end]
        outputs[end] = relative_l2(output, expected)
    states = {
        name: _relative(stepped.state.get(name), at_once.state.get(name)) for name in {**stepped.state, **at_once.state}
    }
    admitted = bound(model, "output")
    wrong = [end for end, error in outputs.items() if not error <= admitted]
    apart = [name for name, error in states.items() if not error <= admitted]
    if wrong or apart:
        said = [
            *(f"the output differs first at step {end}, by {outputs[end]:.1e}" for end in wrong[:1]),
            *(f"the state differs first in {name!r}, by {states[name]:.1e}" for name in apart[:1]),
        ]
        raise NotTheSame(
            f"{model.name}: in {framework}, a prompt of {prompt} and {steps - prompt} further steps do not give what "
            f"the whole sequence of {steps} gives at {point}: {', and '.join(said)}"
        )
    found = [_nearest(case, "steps", f"{framework}: step {end}", error, point) for end, error in outputs.items()]
    found += [_nearest(case, "state", f"{framework}: {name}", error, point) for name, error in states.items()]
    return found, stepped.state


def _across(
    case: Case, expected: Mapping[str, Array], actual: Mapping[str, Array], candidate: str, point: Point
) -> tuple[list[Nearest], list[str]]:
    """The errors of two frameworks' states, over arrays of equal name and, but for the order of axes, equal shape.

    Returns:
        The errors, and the arrays that have no counterpart: another layout of a cache is right, too.
    """
    found = []
    alone = [_array_of(name, case.model.reference) for name in expected if name not in actual]
    for name, array in actual.items():
        orders = list(_orders(array, expected[name])) if name in expected else []
        if not orders:
            alone.append(_array_of(name, candidate))
            continue
        error = min(_relative(np.transpose(array, order), expected[name]) for order in orders)
        if not error <= bound(case.model, "output"):
            raise NotTheSame(
                f"{case.model.name}: after {case.steps} steps at {point} the states of "
                f"{case.model.reference} and {candidate} differ in {name!r}, by {error:.1e}"
            )
        found.append(_nearest(case, "state", name, error, point))
    return found, alone


def _array_of(name: str, framework: str) -> str:
    """An array of a framework's state in words; a state that is a single array has no names."""
    return f"{name!r} of {framework}" if name else f"the state of {framework}"


def _orders(one: Array, other: Array) -> Iterator[tuple[int, ...]]:
    """The orders of axes that give one array the other's shape, as frameworks lay the same cache out differently."""
    if one.ndim == other.ndim:
        for order in itertools.permutations(range(one.ndim)):
            if tuple(one.shape[axis] for axis in order) == other.shape:
                yield order


def _relative(one: Array | None, other: Array | None) -> float:
    if one is None or other is None or one.shape != other.shape:
        return float("inf")
    return distance(one, other) / (length(other) or 1.0)


def _nearest(case: Case, quantity: str, tensor: str, error: float, point: Point) -> Nearest:
    return Nearest(quantity, tensor, str(point), case.mode, error, bound(case.model, "output"))
