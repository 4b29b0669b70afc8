"""Compares the user's own training steps in two frameworks, step by step: their metrics and their states.

Both run in float64 from the same weights on the same batch. Numbers that a step itself casts to a lower format are
computed in float64, too, so that correct twins differ by rounding alone.
"""

import contextlib
import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fwbench import frameworks
from fwbench.ext.proofs.case import Case, side
from fwbench.ext.proofs.errors import bound
from fwbench.ext.proofs.lengths import distance, length
from fwbench.ext.proofs.step_causes import Trajectory, cause
from fwbench.frameworks.own_steps import FIRST, SECOND, WEIGHTS, Stepping, role_of
from fwbench.models import Model, ModelError
from fwbench.models.store import Nearest
from fwbench.record.lanes import LANES
from fwbench.record.workload import Workload

QUANTITY = "training steps"
_STEPS = 5
_BATCH = 8
# The change of an array may differ by this many times float64's rounding of the array.
_ROUNDINGS = 1e4
# The least movement that counts for an array, as a share of its role's typical one: some gradients cancel out.
_LEAST = 0.1
# Roles in the order in which a step computes them.
_ORDER = (FIRST, SECOND, WEIGHTS)


@dataclass
class _Runner:
    """One framework's program in float64.

    Attributes:
        program: the compiled program.
        changed: changes that the proof makes to the computation of a run.
        start: the state's leaves at the start.
    """

    framework: str
    program: Any
    changed: Mapping[str, None]
    start: dict[str, NDArray[Any]] = field(default_factory=dict)

    def begin(self, weights: Mapping[str, NDArray[Any]]) -> None:
        self.program.restart(weights)
        self.start = self.leaves()

    def leaves(self) -> dict[str, NDArray[Any]]:
        return {name: array.astype(np.float64) for name, array in self.program.state_leaves().items()}


@dataclass(frozen=True)
class Found:
    """The result of comparing steps.

    Attributes:
        nearest: the leaf or metric that is nearest to its bound, or the first one beyond it; empty if there is none.
        note: the state and metrics that were not compared, and the changes that the proof made to the computation.
        failure: the first step and leaf that differ, and the cause if numbers show it; empty if all agree.
    """

    nearest: tuple[Nearest, ...]
    note: str
    failure: str = ""


def prove(model: Model, candidate: str) -> Found:
    """Compare the first training steps of the candidate with those of the reference.

    Raises:
        ModelError: a step cannot be built or run as it is described, or it draws random numbers.
    """
    pair = (model.reference, candidate)
    if missing := [framework for framework in pair if framework not in model.train_step]:
        return Found((), f"{model.name} names no training step in {missing[0]}, so its steps are not compared.")
    with contextlib.ExitStack() as stack:
        one, other = (stack.enter_context(_running(model, framework)) for framework in pair)
        return _compared(model, one, other)


def _compared(model: Model, one: _Runner, other: _Runner) -> Found:
    admitted, sides = bound(model, "adam"), (one, other)
    histories = Trajectory(one.framework), Trajectory(other.framework)
    worst, parting = Nearest(QUANTITY, WEIGHTS, "drawn weights", "train", 0.0, admitted), 0
    for step in range(_STEPS + 1):
        states = []
        for runner, history in zip(sides, histories, strict=True):
            if step:
                runner.program.call_and_wait()
            states.append(runner.leaves() if step else runner.start)
            history.add(states[-1], runner.program.metrics() if step else {})
        if worst.error <= admitted:
            metrics = [history.metrics[-1] for history in histories]
            name, error = _furthest(states, metrics, one.start if step else {}, admitted)
            if not error <= worst.error:
                worst, parting = Nearest(QUANTITY, name, "drawn weights", "train", error, admitted), step
    note = _note(histories, {**one.changed, **other.changed})
    if worst.error <= admitted:
        return Found((worst,), note)
    when = f"at step {parting}" if parting else "before the first step"
    first = (
        f"{model.name}: the training steps of {one.framework} and {other.framework} part {when} in {worst.tensor!r}, "
        f"by {worst.error:.1e}, more than {admitted:.0e}"
    )
    parts = [functools.partial(_in_parts, model, runner) for runner in sides]
    why = cause(*histories, role_of(worst.tensor), parting, parts)
    return Found((worst,), note, ". ".join(filter(None, [first, why, note.removesuffix(".")])))


def _furthest(
    states: Sequence[Mapping[str, NDArray[Any]]],
    metrics: Sequence[Mapping[str, float]],
    start: Mapping[str, NDArray[Any]],
    admitted: float,
) -> tuple[str, float]:
    """The leaf or metric beyond its bound that a step computes first, or else the furthest apart; and its error.

    Args:
        states: the leaves of the reference's state and of the candidate's.
        metrics: the metrics of both, in the same order.
        start: the reference's leaves before the first step; empty at the start itself.
    """
    ours, theirs = states
    moved = {name: distance(array, start[name]) if name in start else length(array) for name, array in ours.items()}
    errors = {}
    for role in dict.fromkeys(map(role_of, ours)):
        names = [name for name in ours if role_of(name) == role]
        typical = math.sqrt(sum(moved[name] ** 2 for name in names) / sum(ours[name].size for name in names))
        for name in (name for name in names if name in theirs):
            floor = max(moved[name], _LEAST * typical * math.sqrt(ours[name].size))
            errors[name] = _error(ours[name], theirs[name], floor, admitted)
    errors |= {
        f"the metric {name}": abs(value - metrics[1][name]) / (abs(value) or 1.0)
        for name, value in metrics[0].items()
        if name in metrics[1]
    }
    beyond = [name for name in errors if not errors[name] <= admitted]
    name = min(beyond, key=lambda name: _order(name, errors[name])) if beyond else max(errors, key=errors.__getitem__)
    return name, errors[name]


def _order(name: str, error: float) -> tuple[int, float]:
    """The sort key of a leaf that differs: its place in a step's computation, then the larger error first."""
    role = role_of(name)
    if role in _ORDER:
        place = _ORDER.index(role)
    else:
        place = len(_ORDER) + (2 if name.startswith("the metric ") else "." not in name)
    return place, -float(np.nan_to_num(error, nan=np.inf))


def _error(expected: NDArray[Any], actual: NDArray[Any], moved: float, admitted: float) -> float:
    """The distance of two leaves, relative to the reference's movement since the start."""
    if expected.shape != actual.shape:
        return math.inf
    # An update that is lost beside its weight has no digits to compare.
    least = _ROUNDINGS * float(np.finfo(np.float64).eps) * length(expected) / admitted
    apart, size = distance(actual, expected), max(moved, least)
    return apart / size if size else (math.inf if apart else 0.0)


def _note(histories: tuple[Trajectory, Trajectory], changed: Mapping[str, None]) -> str:
    """A note on the state and metrics that only one side has, and on the proof's changes to the computation."""
    own = [dict.fromkeys([*map(role_of, history.leaves[-1]), *history.metrics[-1]]) for history in histories]
    alone = [
        f"{role!r} of {history.framework}"
        for history, roles, others in zip(histories, own, own[::-1], strict=True)
        for role in roles
        if role not in others
    ]
    told = [f"not compared, as one training step alone has it: {', '.join(alone)}"] if alone else []
    told += [f"the proof {' and '.join(changed)}"] if changed else []
    return f"{'. '.join(part[0].upper() + part[1:] for part in told)}." if told else ""


@contextlib.contextmanager
def _running(model: Model, framework: str, batch_size: int | None = None) -> Iterator[_Runner]:
    """A context with a framework's steps in float64, at the drawn weights."""
    batch_size = batch_size or model.proof_batch or _BATCH
    axes = tuple(model.proof_axes.items())
    lane = next(lane for lane in LANES.values() if lane.framework == framework)
    workload = Workload(lane.name, model.name, "train_step", batch_size, precision="fp64", axes=axes)
    adapter = frameworks.load(lane.adapter)
    case = Case(model, "train", axes=axes, batch_size=batch_size)
    weights = case.weights(adapter.weight_shapes(model, case.sizes))
    with side(framework).widened() as changed:
        program = adapter.build(workload, model, weights)
        assert isinstance(program, Stepping)
        program.compile()
        if program.arithmetic().random:
            raise ModelError(
                f"the training step of {model.name} in {framework} draws random numbers, which differ between "
                "frameworks: switch dropout off for the proof"
            )
        runner = _Runner(framework, program, changed)
        runner.begin(weights)
        yield runner


def _in_parts(model: Model, runner: _Runner, count: int) -> NDArray[Any] | None:
    """A side's first moment after one step, averaged over equal parts of the batch; None if it takes no such parts."""
    batch_size = model.proof_batch or _BATCH
    if batch_size % count:
        return None
    size, total = batch_size // count, np.zeros(())
    try:
        with _running(model, runner.framework, size) as other:
            weights = {name.partition(".")[2]: array for name, array in other.start.items() if role_of(name) == WEIGHTS}
            for part in range(count):
                other.begin(weights)
                samples = slice(part * size, (part + 1) * size)
                other.program.inputs = {name: array[samples] for name, array in runner.program.inputs.items()}
                other.program.call_and_wait()
                trajectory = Trajectory(runner.framework)
                trajectory.add(other.leaves(), {})
                total = total + trajectory.vector(FIRST, 0) / count
    # A step that splits its batch itself may be unable to split so small a one.
    except ModelError:
        return None
    return total
