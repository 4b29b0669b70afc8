"""Agreement of the results that two lanes' timed programs computed, by the sketches on their records.

A correct twin differs by rounding alone. Each program shows by itself how much that can be: `moved` is how far its
result moves when every weight moves by `STEPS` rounding units. Two lanes agree if their results are no further apart
than a stated multiple of the movement for one unit or, if a program hardly moves, than a stated number of units.
"""

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fwbench.record.measurement import Measurement
from fwbench.record.plain import PlainTest
from fwbench.record.sketch import STEPS, UNIT, Sketch
from fwbench.record.workload import Workload

QUANTITIES = ("output", "loss", "gradients", "updates", "statistics", "metrics", "moments", "state")
# Quantities of a user's own training step. Its state may hold arrays that another framework's lacks.
_OWN = ("updates", "metrics", "moments", "state")

# Two results may differ by `MOVEMENTS` times the movement for one rounding unit of the weights, and by `UNITS` rounding
# units in any case. `docs/evidence/checks.py` measures the distances of correct lanes and of wrong ones.
MOVEMENTS = 8.0
UNITS = 16.0
# A gradient jumps where a unit passes the kink of a ReLU or of a maximum, and rounding may carry only one of two
# programs past it. So two gradients, or two updates, may differ by `KINKS` times the whole movement, in which units
# pass many kinks. In bf16 frameworks sum gradients in different formats: there they may differ by half their length.
KINKS = 2.0
COARSE = 0.5
# A user's own training step may round its weights itself. In one, XLA on a CPU summed a bias's gradient over 2,048
# numbers in bf16, and it was off by 0.53 of its length. Its square is off by more than its length, so it has no bound.
COARSE_MOMENTS = 0.75
# Two correct updates may differ by a common factor, as some frameworks round Adam's corrections to float32. In bf16
# updates are not compared: there the sign of a small gradient is noise, and Adam's first step is as long for a small
# gradient as for a large one.
CORRECTED = 2.0**-12
# If the bound is above `_BLUNT`, agreement is no evidence. If it reaches `_BLIND`, as that of noise does, only NaN is a
# difference.
_BLUNT, _BLIND = 0.25, 1.0
# Quantities in which a single number may, by chance, move little in one of the two programs.
_BY_LARGER = ("loss", "gradients", "updates", "metrics", "moments", "state")
# In a random training step, a group that moves more than this many times as far as the weights depends on random
# layers.
_REACHED = 64.0
# Standard errors by which the mean losses of two random training steps may differ: with 8 draws each, Student's t
# exceeds it once in 5,000 pairs.
_ERRORS = 5.0


@dataclass(frozen=True)
class Agreement:
    """The result of comparing two programs' sketches.

    Attributes:
        agrees: None if the sketches cannot say.
        quantity: the one of `QUANTITIES`, or `draws`, whose difference is largest as a share of its bound.
        name: of the array in it that has this difference; empty if the quantity is a single array.
        difference: relative L2 distance.
        bound: on the difference.
        reason: why the sketches cannot say, or what differs besides numbers; else empty.
        beside: arrays that were not compared, as only one program has them.
        tokens: number of sequences whose greedy token is the same in both, however both round, and of all sequences;
            0 if the outputs are not logits.
    """

    agrees: bool | None
    quantity: str = ""
    name: str = ""
    difference: float = 0.0
    bound: float = 0.0
    reason: str = ""
    beside: str = ""
    tokens: tuple[int, int] = (0, 0)

    def __str__(self) -> str:
        """The result as half a sentence; empty if there was nothing to compare."""
        if self.reason or not self.quantity:
            return self.reason
        what = f"{_WORDS[self.quantity]}{f' of {self.name}' if self.name else ''}"
        verb = "agree" if self.agrees else "differ"
        bound = f"{'within' if self.agrees else 'by'} {self.difference:.1e} (bound {self.bound:.0e})"
        same, every = self.tokens
        others = ", and rounding may decide the others" if same < every else ""
        tokens = f"{same} of {every} greedy tokens are the same{others}" if self.agrees and every else ""
        beside = f"not compared: {self.beside}" if self.beside else ""
        return "; ".join(filter(None, (f"{what} {verb} {bound}", tokens, beside)))


_WORDS = {
    "output": "outputs",
    "loss": "losses",
    "draws": "mean losses over several random draws",
    "gradients": "gradients",
    "updates": "updates",
    "statistics": "running statistics",
    "metrics": "metrics",
    "moments": "moments",
    "state": "states",
}

_SILENT = "the record does not say what was computed"


def agreement(one: Measurement, other: Measurement) -> Agreement:
    """Compare what two lanes computed in one workload, by the checks on their measurements.

    If the weights of one are quantised, its results need not be near the other's; all else that shows a wrong program
    does so here, too.
    """
    first, second = (measurement.parity.get("check") or {"reason": _SILENT} for measurement in (one, other))
    for measurement, check in ((one, first), (other, second)):
        if "reason" in check:
            return Agreement(None, reason=f"{measurement.workload.lane}: {check['reason']}")
    if one.workload.precision not in UNIT:
        return Agreement(None, reason=f"this fwbench does not know the precision {one.workload.precision}")
    try:
        for measurement in (one, other):
            if said := wrong(measurement):
                return Agreement(False, reason=f"{measurement.workload.lane}: {said}")
        rounded = [f"{m.workload.lane} has {m.quantised} weights" for m in (one, other) if m.quantised]
        found = Agreement(None, reason=" and ".join(rounded)) if rounded else _judged(one, other, first, second)
        return found if found.agrees is False else _idle(one, other, found)
    except ValueError as error:
        return Agreement(None, reason=str(error))


def of_sides(
    workload: Workload | PlainTest,
    base: Mapping[str, Any],
    head: Mapping[str, Any],
    names: tuple[str, str] = ("BASE", "HEAD"),
) -> Agreement:
    """Compare what two sides, such as two revisions, compute in one workload.

    A plain test is not compared, as its own assertions check its results.

    Args:
        base, head: as in a record's `parity`: `weights`, a digest, and `check`. In a duet also `numbers`, the count of
            numbers in all weights.
        names: of the sides, for sentences.
    """
    if isinstance(workload, PlainTest):
        return Agreement(None)
    if "check" in base and "check" in head and base.get("weights") != head.get("weights"):
        counts = [side.get("numbers", 0) for side in (base, head)]
        if all(counts) and counts[0] != counts[1]:
            return Agreement(False, reason=f"{names[1]} has {counts[1]:,} weights, and {names[0]} {counts[0]:,}")
        return Agreement(None, reason="they began with other weights, by their names, shapes or values")
    one, other = (
        Measurement(replace(workload, lane=name), parity={"check": side.get("check")})
        for name, side in zip(names, (base, head), strict=True)
    )
    return agreement(one, other)


def wrong(measurement: Measurement) -> str:
    """The fault that a lane's own check found, so that its times are not its network's; empty if there is none."""
    check, precision = measurement.parity.get("check") or {}, measurement.workload.precision
    if "remembers" in check:
        unseen, seen = check["remembers"]
        times = unseen / max(seen, 1e-9)
        return f"it remembers outputs: a call on new inputs takes {times:.0f} times as long as on those that it has met"
    # A damaged sketch is reported by the comparison of two lanes.
    with suppress(ValueError):
        if "before" in check:
            first, last = (Sketch.from_json(check[name]) for name in ("before", "output"))
            for change in _groups("output", first, last, precision, random=False):
                if not change.agrees:
                    return f"its output for the same inputs has changed by {change.difference:.1e} while it was timed"
    return ""


def idle(measurement: Measurement) -> list[str]:
    """Those of `inputs` and `weights` that were moved without changing one bit of a lane's output.

    A correct network can do this, such as a constant or a saturated one.
    """
    check = measurement.parity.get("check") or {}
    found = ["inputs"] if check.get("follows") is False else []
    with suppress(ValueError):
        # A quantised weight may stay where it is.
        if "output" in check and not measurement.quantised and not Sketch.from_json(check["output"]).moved.any():
            found.append("weights")
    return found


def _idle(one: Measurement, other: Measurement, found: Agreement) -> Agreement:
    """The agreement of two lanes, overruled if an output does not depend on its inputs or its weights."""
    follow = [measurement.parity["check"].get("follows") for measurement in (one, other)]
    for still, beside, follows in ((one, other, follow[1]), (other, one, follow[0])):
        for what in idle(still):
            if follows if what == "inputs" else _moves(beside):
                mine, its = still.workload.lane, beside.workload.lane
                return Agreement(False, reason=f"the outputs of {mine} do not follow its {what}, and those of {its} do")
    shared = [what for what in idle(one) if what in idle(other)]
    if found.agrees and shared and not all(follow):
        return Agreement(None, reason=f"the outputs follow the {shared[0]} in neither lane")
    return found


def _moves(measurement: Measurement) -> bool:
    """True if the output moves with the weights by more than rounding can move it."""
    check = measurement.parity["check"]
    if "output" not in check:
        return False
    output = Sketch.from_json(check["output"])
    return bool((output.moved > UNIT[measurement.workload.precision] * output.norms).any())


def _judged(one: Measurement, other: Measurement, first: Mapping[str, Any], second: Mapping[str, Any]) -> Agreement:
    # The least exact of the workload's precision and those in which a user's own training steps compute.
    precisions = [one.workload.precision, *(check.get("precision") for check in (first, second))]
    precision: str = max((each for each in precisions if each in UNIT), key=UNIT.__getitem__)
    random = ["draws" in check for check in (first, second)]
    if any(random) and not all(random):
        return _alone(*((one, other) if random[0] else (other, one)))
    judged = []
    beside: dict[str, None] = {}
    if all(random):
        judged += _draws(first["draws"], second["draws"], UNIT[precision])
    for quantity in QUANTITIES:
        if quantity in first and quantity in second and not (quantity == "loss" and all(random)):
            pair = Sketch.from_json(first[quantity]), Sketch.from_json(second[quantity])
            if ("metrics" in first or "metrics" in second) and quantity in _OWN:
                beside |= _alone_in(one, other, *pair)
                if not (pair := _shared(*pair))[0].names:
                    continue
            judged += _groups(quantity, *pair, precision, random=all(random))
    if not judged:
        return Agreement(None, reason="what they computed is zero everywhere, or moves too far to be compared")
    # A difference that is NaN is the worst of all.
    worst = max(judged, key=lambda part: np.nan_to_num(part.difference / part.bound, nan=math.inf))
    worst = replace(worst, beside=", ".join(beside), tokens=_tokens(first, second, worst.difference))
    if math.isfinite(worst.difference):
        return worst
    lanes = [m.workload.lane for m, check in ((one, first), (other, second)) if not _finite(check, worst)]
    what = f"{_WORDS[worst.quantity]}{f' of {worst.name}' if worst.name else ''}"
    return replace(worst, reason=f"{what} are not finite (NaN or infinity) in {' and in '.join(lanes)}")


def _tokens(first: Mapping[str, Any], second: Mapping[str, Any], difference: float) -> tuple[int, int]:
    """`Agreement.tokens` of two checks.

    If two tokens differ, the outputs are at least as far apart as the sum of both margins over the square root of 2.
    Tokens count as the same if the sum is above twice the distance, as sketches only estimate the distance.
    """
    sums = [one + other for one, other in zip(first.get("margins", ()), second.get("margins", ()), strict=False)]
    return sum(both > 2 * difference for both in sums), len(sums)


def _shared(one: Sketch, other: Sketch) -> tuple[Sketch, Sketch]:
    """Both sketches, reduced to the groups that both have."""
    names = tuple(name for name in one.names if name in other.names)
    first, second = (
        Sketch(names, sketch.slots[places], sketch.norms[places], sketch.moved[places])
        for sketch, places in ((each, [each.names.index(name) for name in names]) for each in (one, other))
    )
    return first, second


def _alone_in(one: Measurement, other: Measurement, first: Sketch, second: Sketch) -> dict[str, None]:
    """The arrays of a quantity that only one program has, as `scale (torch)`."""
    sides = ((one, first, second), (other, second, first))
    return {
        f"{name.partition('.')[0].partition(', step ')[0]} ({measurement.workload.lane})": None
        for measurement, own, others in sides
        for name in own.names
        if name not in others.names
    }


def _finite(check: Mapping[str, Any], where: Agreement) -> bool:
    """True if a lane's numbers are all finite in the array in which `where` found a difference."""
    if where.quantity == "draws":
        return bool(np.isfinite(check["draws"]).all())
    sketch = Sketch.from_json(check[where.quantity])
    place = sketch.names.index(where.name or where.quantity)
    return bool(np.isfinite([*sketch.slots[place], sketch.norms[place]]).all())


def _alone(random: Measurement, still: Measurement) -> Agreement:
    """The agreement of two lanes if only one's training step is random.

    The other lane lacks the random layers, or they acted in none of its draws. In the second case some of the random
    lane's draws have the other lane's loss. Only fp32 and fp64 are precise enough to tell that from chance.
    """
    first, second = random.parity["check"], still.parity["check"]
    lane, precision = random.workload.lane, random.workload.precision
    if precision in ("fp32", "fp64") and "loss" in first and "loss" in second:
        own, other = (Sketch.from_json(check["loss"]) for check in (first, second))
        # The slot holds the loss times a random sign, which is the same in both lanes.
        loss = float(other.slots[0, 0]) * math.copysign(1, float(own.slots[0, 0]) * first["draws"][0])
        bound = max(UNITS * UNIT[precision] * abs(loss), MOVEMENTS / STEPS[precision] * float(other.moved[0]))
        calm = [draw for draw in first["draws"] if abs(draw - loss) <= bound]
        if len(calm) > 1 and max(calm) - min(calm) <= 4 * UNIT["fp32"] * abs(loss):
            maybe = f"{still.workload.lane} may have some that seldom act"
            return Agreement(None, reason=f"the training step has random layers in {lane}, and {maybe}")
    return Agreement(False, reason=f"the training step has random layers in {lane} alone")


def _draws(first: list[float], second: list[float], unit: float) -> list[Agreement]:
    """Compare mean losses of random training steps. Empty if they agree only because the bound is wide."""
    # A wrong program's loss may be infinite.
    with np.errstate(invalid="ignore"):
        means = [float(np.mean(draws)) for draws in (first, second)]
        error = math.sqrt(sum(float(np.var(draws, ddof=1)) / len(draws) for draws in (first, second)))
    size = max(map(abs, means)) or 1.0
    difference, bound = abs(means[0] - means[1]) / size, max(UNITS * unit, _ERRORS * error / size)
    agrees = difference <= bound
    return [] if agrees and bound > _BLUNT else [Agreement(agrees, "draws", "", difference, bound)]


def _groups(quantity: str, one: Sketch, other: Sketch, precision: str, *, random: bool) -> list[Agreement]:
    """One agreement for each group with a narrow bound, and for each other group whose difference exceeds its bound."""
    if one.names != other.names or one.slots.shape != other.slots.shape:
        raise ValueError(f"{_WORDS[quantity]} have other names or shapes")
    sizes = np.maximum(one.norms, other.norms).astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        differences = np.linalg.norm(one.slots.astype(np.float64) - other.slots, axis=1) / sizes
        typical, larger = (np.nan_to_num(moved / sizes, posinf=np.inf) for moved in _moved(one, other))
    unit = UNIT[precision]
    least, share = UNITS * unit, MOVEMENTS / STEPS[precision]
    coarse = STEPS[precision] == 1
    if quantity in ("gradients", "moments"):
        least, share = COARSE if coarse else least, KINKS
    elif quantity == "state":
        least, share = COARSE if coarse else max(least, CORRECTED), KINKS
    elif quantity == "updates":
        least, share = math.inf if coarse else max(least, CORRECTED), KINKS
    if random:
        # A movement by other random draws is no multiple of a rounding unit.
        share = max(share, KINKS)
    # By chance a single number, or a gradient that is zero but for rounding, may move little in one of the programs.
    moved = larger if random or quantity in _BY_LARGER else typical
    # An update may be noise, as it is rounded to its weight's format. Three slots estimate the length of noise only to
    # a factor of two.
    blind = _BLUNT if quantity == "updates" else _BLIND
    bounds = np.maximum(least, share * moved)
    if coarse and quantity == "moments":
        squares = np.array([name.startswith("second moment") for name in one.names])
        bounds = np.where(squares, math.inf, np.maximum(bounds, COARSE_MOMENTS))
    names = ("" if name == quantity else name for name in one.names)
    groups = zip(names, sizes, differences.tolist(), bounds.tolist(), moved, strict=True)
    return [
        Agreement(difference <= bound, quantity, name, difference, bound)
        for name, size, difference, bound, movement in groups
        if size != 0
        and not (random and movement > _REACHED * STEPS[precision] * unit)
        and (bound <= _BLUNT or not difference <= (bound if bound < blind else math.inf))
    ]


def _moved(one: Sketch, other: Sketch) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Each group's movement: the geometric mean of both programs' movements, and the larger one.

    If a wrong program moves a thousand times as far as a correct one, the larger movement makes the bound a thousand
    times as wide, and the mean only thirty times.
    """
    first, second = (np.asarray(sketch.moved, np.float64) for sketch in (one, other))
    both, larger = np.sqrt(first * second), np.fmax(first, second)
    return np.where(np.isnan(both), larger, both), larger
