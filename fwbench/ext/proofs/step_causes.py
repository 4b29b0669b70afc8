"""The cause of a difference between two training steps, where their numbers show it.

Each side is explained by itself: the explanation is the moments, update rule or average that reproduce its state over
the steps. The cause is the difference between the two explanations. If none, or more than one, fits, no cause is named.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fwbench.frameworks.own_steps import FIRST, SECOND, WEIGHTS, role_of

Vector = NDArray[np.float64]

# The most numbers of a leaf that are kept.
_KEPT = 1 << 16
# A computation reproduces numbers if it equals them within this relative difference.
_EXACT = 1e-7
_EPSILONS = (1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-9, 1e-10, 1e-12, 1e-15, 1e-16, 0.0)
_BETAS = ((0.9, 0.999), (0.9, 0.95), (0.9, 0.99), (0.95, 0.999), (0.8, 0.999), (0.5, 0.999), (0.9, 0.98), (0.85, 0.999))
_PARTS = (2, 4, 8)


@dataclass
class Trajectory:
    """One framework's states: at the start, then after each step. Long arrays are thinned to some of their numbers."""

    framework: str
    leaves: list[dict[str, Vector]] = field(default_factory=list)
    metrics: list[Mapping[str, float]] = field(default_factory=list)
    whole: bool = True

    def add(self, leaves: Mapping[str, NDArray[Any]], metrics: Mapping[str, float]) -> None:
        self.whole &= all(array.size <= _KEPT for array in leaves.values())
        self.matrices = {name.partition(".")[2]: array.ndim > 1 for name, array in leaves.items()}
        self.leaves.append(
            {name: np.array(array.ravel()[:: -(-array.size // _KEPT) or 1]) for name, array in leaves.items()}
        )
        self.metrics.append(metrics)

    @property
    def steps(self) -> range:
        return range(1, len(self.leaves))

    @property
    def names(self) -> list[str]:
        """The parameters that have moments in the last state; if none has, all parameters."""
        role = FIRST if self.has(FIRST) else WEIGHTS
        return sorted(name.partition(".")[2] for name in self.leaves[-1] if role_of(name) == role)

    def vector(self, role: str, step: int) -> Vector:
        """A role's numbers of all trained parameters after a step; zeros where the state has none yet."""
        last, leaves = self.leaves[-1], self.leaves[step]
        names = (f"{role}.{name}" for name in self.names)
        return np.concatenate([leaves.get(name, np.zeros_like(last[name])) for name in names])

    def has(self, role: str) -> bool:
        return any(role_of(name) == role and "." in name for name in self.leaves[-1])


# For each side, a function from a number of parts to its first moment after one step, averaged over so many parts of
# the batch; None if the step does not take them.
Parts = Sequence[Callable[[int], Vector | None]]


def cause(one: Trajectory, other: Trajectory, role: str, step: int, parts: Parts) -> str:
    """The cause of a difference that begins in a role at a step, without a full stop; empty if none is known."""
    with np.errstate(all="ignore"):
        try:
            if step and role in (FIRST, SECOND):
                return _moments(one, other) or _gradients(one, other, step, parts)
            if step and role == WEIGHTS:
                return _updates(one, other)
            return _averages(one, other, role) if one.has(role) and other.has(role) else ""
        except (KeyError, np.linalg.LinAlgError):
            return ""


def _both(one: Trajectory, other: Trajectory, ours: str, theirs: str, what: str = "There ") -> str:
    return f"{what}{one.framework} {ours}, and {other.framework} {theirs}" if ours != theirs else ""


# Moments


def _betas(side: Trajectory) -> tuple[float, float] | None:
    """Adam's betas. They fit if the gradients that the first moments imply reproduce the second; None if none fit."""
    if not (side.has(FIRST) and side.has(SECOND)):
        return None
    for first, second in _BETAS:
        if all(_keeps(side, step, first, second) for step in side.steps[1:]):
            return first, second
    return None


def _keeps(side: Trajectory, step: int, first: float, second: float) -> bool:
    gradient = _gradient(side, step, first)
    expected = second * side.vector(SECOND, step - 1) + (1 - second) * gradient**2
    return _equal(expected, side.vector(SECOND, step))


def _gradient(side: Trajectory, step: int, beta: float) -> Vector:
    return (side.vector(FIRST, step) - beta * side.vector(FIRST, step - 1)) / (1 - beta)


def _moments(one: Trajectory, other: Trajectory) -> str:
    ours, theirs = _betas(one), _betas(other)
    if ours is None or theirs is None or ours == theirs:
        return ""
    return _both(one, other, *(f"keeps {a:g} of the first moment and {b:g} of the second" for a, b in (ours, theirs)))


def _gradients(one: Trajectory, other: Trajectory, step: int, parts: Parts) -> str:
    """The cause of a difference in the gradients that the optimizer gets; empty if none is known."""
    betas = _betas(one)
    if betas is None or _betas(other) is None:
        return ""
    ours, theirs = (_gradient(side, step, betas[0]) for side in (one, other))
    clips = [_norm(side, betas[0]) for side in (one, other)]
    (factor,), rest = _fit(theirs, ours)
    if rest <= _EXACT:
        if any(clips):
            said = [f"clips gradients to a norm of {clip:.6g}" if clip else "does not clip them" for clip in clips]
            if clips[0] is None:
                said = [said[0].replace("them", "gradients"), said[1]]
            return _both(one, other, *said)
        return f"There the gradients of {other.framework} are {factor:.6g} times those of {one.framework}"
    for side, beside, mine, others in ((other, one, theirs, ours), (one, other, ours, theirs)):
        weights = side.vector(WEIGHTS, step - 1)
        (scale, decay), rest = _fit(mine, others, weights)
        if rest <= _EXACT and decay / scale > _EXACT:
            return (
                f"There {side.framework} adds {decay / scale:.4g} times the weights to the gradients (L2), which "
                f"{beside.framework} does not"
            )
        limit = float(np.max(np.abs(mine)))
        if np.sum(np.abs(mine) >= limit * (1 - _EXACT)) > 1 and _equal(np.clip(others, -limit, limit), mine):
            return f"There {side.framework} alone clips each gradient to {limit:.6g}"
    return _order_of_clipping(one, other, parts) if step == 1 else ""


def _order_of_clipping(one: Trajectory, other: Trajectory, parts: Parts) -> str:
    """A sentence if only one side clips the gradients of parts of the batch and then averages them; else empty."""
    for count, (side, beside, mean) in itertools.product(_PARTS, ((other, one, parts[0]), (one, other, parts[1]))):
        predicted = mean(count)
        if predicted is not None and _equal(predicted, side.vector(FIRST, 1)):
            return (
                f"There {side.framework} clips the gradients of {count} parts of the batch and averages them then, "
                f"and {beside.framework} clips their average"
            )
    return ""


def _norm(side: Trajectory, beta: float) -> float | None:
    """The norm that the gradients of all steps share, as after clipping by norm; None if they do not."""
    norms = [float(np.linalg.norm(_gradient(side, step, beta))) for step in side.steps]
    same = all(math.isclose(norm, norms[0], rel_tol=1e-5) for norm in norms)
    return norms[0] if side.whole and same else None


# Updates


# How a rule corrects bias, adds epsilon and decays weights, in words; and its learning rate at every step.
_Rule = tuple[tuple[str, ...], tuple[float, ...]]


def _updates(one: Trajectory, other: Trajectory) -> str:
    told: dict[str, int] = {}
    for (ours, rates), (theirs, others) in itertools.product(list(_rules(one)), list(_rules(other))):
        said = _differences(one, other, ours, theirs)
        # Learning rates that are fitted at every step can imitate other causes, so a difference in them counts more.
        far = 0 if _alike(rates, others) else 2
        if far:
            said.append(_rates(one, other, rates, others))
        if said:
            sentence = f"There {'; '.join(said)}"
            told[sentence] = min(told.get(sentence, 9), len(said) + far)
    return _only(told)


def _differences(one: Trajectory, other: Trajectory, ours: Sequence[str], theirs: Sequence[str]) -> list[str]:
    """A clause for each aspect in which the explanations of two sides differ."""
    return [_both(one, other, *pair, "") for pair in zip(ours, theirs, strict=True) if len(set(pair)) > 1]


def _only(told: Mapping[str, int]) -> str:
    """The sentence that names the fewest differences; empty if several do."""
    fewest = [sentence for sentence, count in told.items() if count == min(told.values())]
    return fewest[0] if len(fewest) == 1 else ""


def _rates(one: Trajectory, other: Trajectory, ours: tuple[float, ...], theirs: tuple[float, ...]) -> str:
    for early, late, first, second in ((ours, theirs, one, other), (theirs, ours, other, one)):
        if _alike(early[1:-1] or early[1:], late[2:] or late[1:]) and not _alike(early[1:], early[:-1]):
            return f"the learning rate of {second.framework} is a step behind that of {first.framework}"
    shown = [", ".join(dict.fromkeys(f"{rate:.4g}" for rate in rates)) for rates in (ours, theirs)]
    return f"the learning rate of {one.framework} is {shown[0]}, and that of {other.framework} {shown[1]}"


def _alike(ours: tuple[float, ...], theirs: tuple[float, ...]) -> bool:
    return len(ours) == len(theirs) and all(math.isclose(a, b, rel_tol=1e-5) for a, b in zip(ours, theirs, strict=True))


def _rules(side: Trajectory) -> Iterator[_Rule]:
    betas = _betas(side) if side.has(SECOND) else (0.0, 0.0)
    if betas is None or not side.has(FIRST):
        return
    matrices = np.concatenate(
        [np.full(side.leaves[-1][f"{FIRST}.{name}"].size, side.matrices[name]) for name in side.names]
    )
    for corrected, (words, direction), epsilon in itertools.product((True, False), _DIRECTIONS.items(), _EPSILONS):
        rates, decays = [], []
        for step in side.steps:
            before = side.vector(WEIGHTS, step - 1)
            moved = side.vector(WEIGHTS, step) - before
            towards = direction(*_unbiased(side, step, betas if corrected else (0.0, 0.0)), epsilon)
            columns = (towards, before * matrices, before * ~matrices)
            found, rest = _fit(moved, *columns)
            if not rest <= max(1e-9, 1e-13 * np.linalg.norm(before) / np.linalg.norm(moved)):
                break
            rates.append(-found[0])
            decays.append((found[1], found[2]))
        else:
            bias = "corrects the moments' bias" if corrected else "does not correct the moments' bias"
            yield (bias, f"takes an epsilon of {epsilon:g} {words}", _decay(rates, decays)), tuple(rates)
        if not side.has(SECOND):
            return


# The directions of Adam's updates by the place of epsilon, given the moments, the root of the second one's correction,
# and epsilon.
_DIRECTIONS: dict[str, Callable[[Vector, Vector, float, float], Vector]] = {
    "beside the root": lambda first, second, root, epsilon: first / (np.sqrt(second) + epsilon),
    "inside the root": lambda first, second, root, epsilon: first / np.sqrt(second + epsilon),
    "beside the root of the uncorrected moment": (
        lambda first, second, root, epsilon: first / (np.sqrt(second) + epsilon / root)
    ),
}


def _unbiased(side: Trajectory, step: int, betas: tuple[float, float]) -> tuple[Vector, Vector, float]:
    """The moments without their bias, and the root of the second one's correction; betas of 0 correct nothing."""
    first = side.vector(FIRST, step)
    if not side.has(SECOND):
        return first, np.ones_like(first), 1.0
    kept = [1 - beta**step for beta in betas]
    return first / kept[0], side.vector(SECOND, step) / kept[1], math.sqrt(kept[1])


def _decay(rates: list[float], decays: list[tuple[float, float]]) -> str:
    """Decoupled weight decay in words, relative to the learning rate, of matrices and of vectors such as biases."""
    shares = [[-decay[kind] / rate for decay, rate in zip(decays, rates, strict=True)] for kind in (0, 1)]
    means = [float(f"{np.mean(share):.3g}") if abs(np.mean(share)) > 1e-6 else 0.0 for share in shares]
    if not any(means):
        return "decays no weights"
    if means[0] == means[1]:
        return f"decays the weights by {means[0]:g} times the learning rate"
    return f"decays matrices by {means[0]:g} and vectors by {means[1]:g} times the learning rate"


# Averages


def _averages(one: Trajectory, other: Trajectory, role: str) -> str:
    begins = [_begins(side, role) for side in (one, other)]
    rules = [list(_rules_of_average(side, role)) for side in (one, other)]
    told: dict[str, int] = {}
    for ours, theirs in itertools.product(*rules):
        if said := _differences(one, other, ours, theirs):
            told[f"There {'; '.join(said)}"] = len(said)
    return _both(one, other, *begins) or _only(told)


def _begins(side: Trajectory, role: str) -> str:
    start, weights = side.vector(role, 0), side.vector(WEIGHTS, 0)
    if not np.any(start):
        return f"begins `{role}` with zeros"
    return f"begins `{role}` with the weights" if _equal(weights, start) else f"begins `{role}` with other numbers"


def _rules_of_average(side: Trajectory, role: str) -> Iterator[tuple[str, str]]:
    """The weights that an average takes in and the share it keeps, in words, if they reproduce it at every step."""
    for late, words in ((1, "takes in the weights after each step"), (0, "takes in the weights before each step")):
        kept: list[float] = []
        for step in side.steps:
            before, after = side.vector(role, step - 1), side.vector(role, step)
            towards = side.vector(WEIGHTS, step - 1 + late) - before
            if not np.any(towards) and not np.any(after - before):
                continue
            (share,), rest = _fit(after - before, towards)
            if not rest <= max(1e-7, 1e-13 * np.linalg.norm(before) / np.linalg.norm(after - before)):
                break
            kept.append(round(1 - share, 7))
        else:
            if kept:
                yield words, _kept(kept)


def _kept(kept: list[float]) -> str:
    if len(set(kept)) == 1:
        return f"keeps {kept[0]:g} of the average"
    if kept[0] == 0 and len(set(kept[1:])) == 1:
        return f"takes the weights over at its first step, and keeps {kept[1]:g} of the average then"
    return f"keeps {', '.join(f'{share:.4g}' for share in kept)} of the average"


# Fits


def _fit(values: Vector, *columns: Vector) -> tuple[Vector, float]:
    """Fit by least squares: coefficients (0 for a column of zeros), and the residual relative to the values."""
    matrix = np.stack(columns, 1)
    scales = np.linalg.norm(matrix, axis=0)
    scales[scales == 0] = 1.0
    found, *_ = np.linalg.lstsq(matrix / scales, values, rcond=None)
    rest = np.linalg.norm(values - matrix / scales @ found)
    return found / scales, float(rest / (np.linalg.norm(values) or 1.0))


def _equal(one: Vector, other: Vector) -> bool:
    return bool(np.linalg.norm(one - other) <= _EXACT * np.linalg.norm(other))
