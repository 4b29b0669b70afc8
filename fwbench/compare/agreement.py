"""Whether the programs that two lanes were timed with computed the same, by the sketches on their records.

A right twin differs by rounding alone. How much that can be, each program shows by itself: `moved` is how far its
result moves when every weight moves by some rounding units. Two lanes agree where their results are no further apart
than a stated number of such movements or, where a program hardly moves, than a stated number of rounding units.
"""

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fwbench.record.measurement import Measurement
from fwbench.record.sketch import STEPS, UNIT, Sketch

QUANTITIES = ("output", "loss", "gradients", "updates", "statistics")

# Two right programs may be apart by as many times as one rounding unit of the weights moves them, and where they hardly
# move by as many rounding units. `docs/evidence/checks.py` measures the distances of right lanes and of wrong ones.
MOVEMENTS = 8.0
UNITS = 16.0
# A gradient jumps where a unit passes the kink of a ReLU or of a maximum, and rounding may carry one program past it
# and the other not. So two gradients, and the updates that follow from them, may be twice as far apart as the whole
# movement carries them, as that passes many kinks. In bf16 frameworks sum gradients in different formats: there they
# may differ by half their length.
KINKS = 2.0
COARSE = 0.5
# All of a right update may be too long or too short: some frameworks round Adam's corrections to float32. In bf16 the
# sign of a small gradient is noise, which Adam makes a whole step of, so that updates are not compared.
CORRECTED = 2.0**-12
# A quantity that may differ by a larger share than `_BLUNT` shows nothing by agreeing. One that may differ by its whole
# length, as noise does, shows nothing by differing either, unless it is no number.
_BLUNT, _BLIND = 0.25, 1.0
# In a random training step, what moves by more rounding units than this is taken to depend on random layers.
_REACHED = 64.0
# Standard errors by which the mean losses of two random training steps may differ: with 8 draws each, Student's t
# exceeds it once in 5,000 pairs.
_ERRORS = 5.0


@dataclass(frozen=True)
class Agreement:
    """What two programs' sketches say.

    Attributes:
        agrees: None where they say nothing.
        quantity: of `QUANTITIES`, in which they come nearest to their bound or exceed it.
        name: of the array in which they do; empty where the quantity is a single one.
        difference: relative L2 there.
        bound: on it.
        reason: why they say nothing, or what differs besides numbers; else empty.
    """

    agrees: bool | None
    quantity: str = ""
    name: str = ""
    difference: float = 0.0
    bound: float = 0.0
    reason: str = ""

    def __str__(self) -> str:
        """Half a sentence."""
        if self.reason:
            return self.reason
        what = f"{_WORDS[self.quantity]}{f' of {self.name}' if self.name else ''}"
        verb = "agree" if self.agrees else "differ"
        return f"{what} {verb} {'within' if self.agrees else 'by'} {self.difference:.1e} (bound {self.bound:.0e})"


_WORDS = {
    "output": "outputs",
    "loss": "losses",
    "draws": "mean losses over several random draws",
    "gradients": "gradients",
    "updates": "updates",
    "statistics": "running statistics",
}

_SILENT = "the record does not say what was computed"


def agreement(one: Measurement, other: Measurement) -> Agreement:
    """Hold two lanes' measurements of one workload against each other."""
    first, second = (measurement.parity.get("check") or {"reason": _SILENT} for measurement in (one, other))
    for measurement, check in ((one, first), (other, second)):
        if "reason" in check:
            return Agreement(None, reason=f"{measurement.workload.lane}: {check['reason']}")
    try:
        return _judged(one, other, first, second)
    except ValueError as error:
        return Agreement(None, reason=str(error))


def _judged(one: Measurement, other: Measurement, first: Mapping[str, Any], second: Mapping[str, Any]) -> Agreement:
    precision = one.workload.precision
    random = ["draws" in check for check in (first, second)]
    if any(random) and not all(random):
        which = (one, other)[random.index(True)].workload.lane
        return Agreement(False, reason=f"the training step has random layers in {which} alone")
    judged = []
    if all(random):
        judged.append(_draws(first["draws"], second["draws"], UNIT[precision]))
    for quantity in QUANTITIES:
        if quantity in first and quantity in second and not (quantity == "loss" and all(random)):
            pair = Sketch.from_json(first[quantity]), Sketch.from_json(second[quantity])
            judged += _groups(quantity, *pair, precision, random=all(random))
    if not judged:
        return Agreement(None, reason="what they computed is zero everywhere, or moves too far to be compared")
    # One that is no number is the worst of all.
    return max(judged, key=lambda part: np.nan_to_num(part.difference / part.bound, nan=math.inf))


def _draws(first: list[float], second: list[float], unit: float) -> Agreement:
    """Mean losses of random training steps."""
    means = [statistics.fmean(draws) for draws in (first, second)]
    error = math.sqrt(sum(statistics.variance(draws) / len(draws) for draws in (first, second)))
    size = max(map(abs, means)) or 1.0
    difference, bound = abs(means[0] - means[1]) / size, max(UNITS * unit, _ERRORS * error / size)
    return Agreement(difference <= bound, "draws", "", difference, bound)


def _groups(quantity: str, one: Sketch, other: Sketch, precision: str, *, random: bool) -> list[Agreement]:
    """One agreement for each group that can be compared closely, and for each other group that differs by more."""
    if one.names != other.names or one.slots.shape != other.slots.shape:
        raise ValueError(f"{_WORDS[quantity]} have other names or shapes")
    sizes = np.maximum(one.norms, other.norms).astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        differences = np.linalg.norm(one.slots.astype(np.float64) - other.slots, axis=1) / sizes
        typical, larger = (np.nan_to_num(moved / sizes, posinf=np.inf) for moved in _moved(one, other))
    unit = UNIT[precision]
    least, share = UNITS * unit, MOVEMENTS / STEPS[precision]
    coarse = STEPS[precision] == 1
    if quantity == "gradients":
        least, share = COARSE if coarse else least, KINKS
    elif quantity == "updates":
        least, share = math.inf if coarse else max(least, CORRECTED), KINKS
    # A single number, or a gradient that vanishes but for rounding, may by chance move little in one program.
    moved = larger if random or quantity in ("loss", "gradients", "updates") else typical
    # An update may be noise, as its weight rounds it, and three slots tell the length of noise to a factor of two.
    blind = _BLUNT if quantity == "updates" else _BLIND
    bounds = np.maximum(least, share * moved)
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
    """How far each group moves: the geometric mean of both programs' movements, and the larger one.

    The larger movement lets a wrong program that moves a thousand times as far hide a thousand times as much; the mean
    lets it hide thirty times as much.
    """
    first, second = (np.asarray(sketch.moved, np.float64) for sketch in (one, other))
    both, larger = np.sqrt(first * second), np.fmax(first, second)
    return np.where(np.isnan(both), larger, both), larger
