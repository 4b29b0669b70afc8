"""Compares a framework's network with the reference's: the errors of their results, and the bounds on them."""

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fwbench.ext.proofs import draws, randomness, running
from fwbench.ext.proofs.case import MAIN, MODES, Case, InitialUnknownError, Mode, Point, Side
from fwbench.ext.proofs.errors import (
    BOUNDS,
    FORWARD,
    ROUNDINGS,
    Errors,
    NotTheSame,
    Quantity,
    bound,
    check,
    in_words,
    measure,
)
from fwbench.ext.proofs.lengths import length
from fwbench.ext.proofs.matching import has_statistics, match, shapes
from fwbench.ext.proofs.where import place as where
from fwbench.models import Model, ModelError
from fwbench.models.importing import load
from fwbench.models.store import Nearest, Power

# The other points at which output, loss, gradients and statistics are compared. The canonical weights do not reach
# every clip or branch (the wide ones do), and they hide an epsilon that is lost beside them (the small ones show it).
ELSEWHERE = (Point("initial"), Point("perturbed", 4.0), Point("unit", 0.25), Point("small"))
_OF_FUNCTIONS = (Point(scale=4.0), Point(scale=0.25))

# A point is left out if rounding alone may move the reference's output, loss or gradients by more than this share.
_UNKNOWN = 1e-3

# The function that plants mistakes in each framework's programs. Without one, none can be planted.
_PLANTING = {"jax": "fwbench.ext.proofs.power.search:power"}

# Batch size of a proof, and of a proof in training mode with batch normalisation, which needs several samples.
_BATCH, _TRAIN_BATCH = 2, 8


class Proof:
    """The errors between a framework's results and the reference's for one model in one mode, computed when asked for.

    Only errors are kept: the networks, gradients and optimizer states of ViT-B/16 take gigabytes in float64.
    """

    def __init__(self, model: Model, candidate: str, mode: Mode = "eval", *, trains: bool = True) -> None:
        """
        Args:
            candidate: the framework that is proved against the model's reference.
            mode: one of `modes(model)`.
            trains: compare loss, gradients, statistics and optimizer steps, too, and not the output alone.

        Raises:
            NotTheSame: the two networks' weights differ in name or shape.
            ModelError: one of them cannot be built as the model describes it.
        """
        self.model, self.candidate, self.mode, self.trains = model, candidate, mode, trains
        match(model, candidate)
        axes = tuple(model.proof_axes.items())
        batch_size = _BATCH
        if mode == "train":
            batch_size = model.proof_batch or (_TRAIN_BATCH if has_statistics(model) else _BATCH)
        # Programs that differentiate get small inputs to save time; forward passes in eval mode get the model's sizes.
        self._backward = Case(model, mode, axes=axes, batch_size=batch_size)
        self._forward = self._backward if mode == "train" else Case(model, mode)

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        """The quantities to compare: a plain function has only an output; some networks have no running statistics."""
        if not self.trains or not shapes(self.model, self.model.reference):
            return ("output",)
        return tuple(quantity for quantity in BOUNDS if quantity != "statistics" or has_statistics(self.model))

    def prove(self, quantity: Quantity) -> float:
        """The largest error of a quantity in float64.

        Raises:
            NotTheSame: the error exceeds its bound, or only one network is random.
        """
        if difference := self.difference(quantity):
            raise NotTheSame(difference)
        return self.worst(quantity).error

    def difference(self, quantity: Quantity) -> str:
        """A sentence on the first point at which a quantity's error exceeds its bound; empty if there is none.

        Raises:
            NotTheSame: nothing can be compared, as only one network is random.
        """
        found = [
            (case, findings.note, point, name, errors)
            for case, findings in self._findings(quantity)
            for point, by_quantity in findings.errors.items()
            for name, errors in by_quantity.items()
        ]
        beyond = [e for *_, name, errors in found for e in errors.values() if not e <= bound(self.model, name)]
        for case, note, point, name, errors in found:
            if name == quantity:
                try:
                    check(quantity, errors, case, point, beyond=beyond)
                except NotTheSame as error:
                    return f"{error}. {note}" if quantity == "statistics" and note else str(error)
        return ""

    def worst(self, quantity: Quantity) -> Nearest:
        """The tensor of a quantity that is nearest to its bound, or furthest beyond it, over all points."""
        every = (
            Nearest(quantity, tensor, str(point), self.mode, error, bound(self.model, quantity))
            for _, findings in self._findings(quantity)
            for point, errors in findings.errors.items()
            for tensor, error in errors.get(quantity, {}).items()
        )
        return max(every, key=_beyond)

    def place(self) -> str:
        """A sentence on where the outputs begin to differ; empty if they are equal or nothing shows the place."""
        admitted = bound(self.model, "output")
        # Small inputs come first, because the results of all modules are held in memory.
        for case in (self._backward, self._forward):
            for point, errors in self._find(case).errors.items():
                if not errors["output"]["output"] <= admitted:
                    try:
                        pair = zip((self.model.reference, self.candidate), self.pair(case), strict=True)
                        sides = [where.Side(framework, one.calls(point)) for framework, one in pair]
                    # Run operator by operator, a network may fail, and its modules' results may not fit into memory.
                    except (ModelError, MemoryError) as error:
                        return f"Where they part cannot be said: {error}"
                    return where.sentence(sides[0], sides[1], admitted)
        return ""

    @property
    def note(self) -> str:
        """Remarks that errors do not show, on random layers and on running statistics; empty if there are none."""
        notes = [findings.note for quantity in self.quantities for _, findings in self._findings(quantity)]
        return " ".join(dict.fromkeys(filter(None, notes)))

    @property
    def points(self) -> tuple[str, ...]:
        """The points at which the networks were compared, in words."""
        return tuple(str(point) for point in self._elsewhere().errors)

    @property
    def left_out(self) -> dict[str, str]:
        """The points at which nothing could be compared, each with the reason."""
        return dict(self._elsewhere().left_out)

    @property
    def nearest(self) -> Nearest:
        """The tensor nearest to its bound, over all quantities and points."""
        return max(map(self.worst, self.quantities), key=_beyond)

    def power(self, seconds: float) -> Power | None:
        """Count the mistakes, planted in the candidate's program, that the proof would have found at its points.

        After so many `seconds` no more are planted. None says that none can be planted in the framework's programs, or
        that the network has no weights.
        """
        if self.candidate not in _PLANTING or not shapes(self.model, self.candidate):
            return None
        points = [MAIN, *(point for point in elsewhere(self.model) if str(point) not in self.left_out)]
        one, other = self.pair(self._backward)
        found: Power = load(_PLANTING[self.candidate])(other, one, points, seconds=seconds)
        return replace(found, modes=(self.mode,))

    def pair(self, case: Case) -> tuple[Side, Side]:
        """The reference's side of a case in this mode, and the candidate's."""
        return draws.sides(case, self.candidate, self._backward)

    def _findings(self, quantity: Quantity) -> "list[tuple[Case, _Findings]]":
        """The findings by case: forward passes at full size, and all else on small inputs."""
        cases = [self._forward, self._backward] if quantity in FORWARD else [self._backward]
        return [(case, self._find(case)) for case in dict.fromkeys(cases)]

    def _elsewhere(self) -> "_Findings":
        return self._find(self._backward)

    def _find(self, case: Case) -> "_Findings":
        differentiates = case == self._backward
        quantities = tuple(q for q in self.quantities if differentiates or q in FORWARD)
        return _find(case, self.candidate, quantities, elsewhere(self.model) if differentiates else ())


def differences(proofs: Sequence[Proof]) -> str:
    """Sentences on the differences that a model's proofs show, one proof for each mode; empty if there are none.

    Returns:
        The first difference, its place, all quantities beyond their bounds, and the tolerance that would admit them.
    """
    worst: dict[Quantity, Nearest] = {}
    for proof in proofs:
        for quantity in proof.quantities:
            if not (one := proof.worst(quantity)).ratio <= 1:
                worst[quantity] = max(worst.get(quantity, one), one, key=_beyond)
    if not worst:
        return ""
    said = [next(filter(None, (proof.difference(quantity) for quantity in worst for proof in proofs)))]
    said.append(next(filter(None, (proof.place() for proof in proofs)), ""))
    if len(worst) > 1:
        said.append(f"All that differ: {', '.join(_briefly(each, proofs[0].model) for each in worst.values())}")
    errors: dict[str, float] = {quantity: nearest.error for quantity, nearest in worst.items()}
    # At a relative error near 1 nothing is the same any more, so no tolerance is named.
    if all(error <= 0.1 for error in errors.values()) and "tolerance={" not in said[0]:
        said.append(f"{_tolerance(errors, proofs[0].model)} would admit {'them all' if len(worst) > 1 else 'that'}")
    return ". ".join(filter(None, said))


def _briefly(worst: Nearest, model: Model) -> str:
    tensor = "" if worst.tensor == worst.quantity else f" in {worst.tensor!r}"
    return f"{worst.quantity} {in_words(worst.error, model)}{tensor} ({worst.mode})"


def _beyond(worst: Nearest) -> float:
    """The error as a multiple of its bound; infinite if it is not a number."""
    return math.inf if math.isnan(worst.ratio) else worst.ratio


def _tolerance(errors: Mapping[str, float], model: Model | None = None) -> str:
    """The argument `tolerance` that admits these errors and all that the model admits already."""
    rounded = {quantity: 10 ** math.ceil(math.log10(error)) for quantity, error in errors.items()}
    admitted = {**(model.tolerance if model else {}), **rounded}
    entries = (f'"{quantity}": {error:g}' for quantity, error in admitted.items())
    return f"tolerance={{{', '.join(entries)}}}"


def modes(model: Model, *, trains: bool = True) -> tuple[Mode, ...]:
    """The modes of a model's proof: both; only inference for a plain function, which cannot be trained."""
    return MODES if trains and shapes(model, model.reference) else MODES[:1]


def modes_apart(model: Model, *, trains: bool = True) -> tuple[Mode, ...]:
    """The modes to compare apart: both with batch normalisation; else inference alone, as only randomness differs."""
    return MODES if trains and has_statistics(model) else MODES[:1]


def elsewhere(model: Model) -> tuple[Point, ...]:
    """The points of a model's proof besides the canonical draw."""
    named = (Point("checkpoint"),) if model.checkpoint else ()
    return (*ELSEWHERE, *named) if shapes(model, model.reference) else _OF_FUNCTIONS


@dataclass(frozen=True)
class _Findings:
    """The result of comparing two sides.

    Attributes:
        errors: by point and quantity, the errors of the quantity's tensors.
        left_out: points at which nothing could be compared, each with the reason.
        note: remarks that the errors do not show; empty if there are none.
    """

    errors: dict[Point, dict[Quantity, Errors]]
    left_out: dict[str, str]
    note: str


@functools.cache
def _find(case: Case, candidate: str, quantities: tuple[Quantity, ...], points: tuple[Point, ...]) -> _Findings:
    """Compare two sides. The result is cached, so the sides are built once."""
    one, other = draws.sides(case, candidate, case)
    note = ""
    if case.mode == "train":
        note = _randomness(one, other, candidate)
        if "statistics" not in quantities and one.trains_as_it_infers() and other.trains_as_it_infers():
            # The two modes run the same program, so the errors of one hold for the other.
            return replace(_find(replace(case, mode="eval"), candidate, quantities, points), note=note)
    # Differentiate first, as its forward pass serves the other quantities too.
    ordered = sorted(quantities, key=FORWARD.__contains__)
    errors = {MAIN: {quantity: measure(quantity, one, other) for quantity in ordered}}
    left_out: dict[str, str] = {}
    for point in points:
        if reason := _unknown(one, point):
            left_out[str(point)] = reason
            continue
        away = [quantity for quantity in ordered if quantity not in ("sgd", "adam")]
        errors[point] = {quantity: measure(quantity, one, other, point) for quantity in away}
    worst = max((error for of in errors.values() for error in of.get("statistics", {}).values()), default=0.0)
    # No tolerance admits an infinite statistic.
    if case.mode == "train" and BOUNDS["statistics"] < worst < math.inf:
        admitting = _tolerance({"statistics": worst})
        note = " ".join(filter(None, [note, running.why(one, other, (case.model.reference, candidate), admitting)]))
    return _Findings(errors, left_out, note)


def _randomness(one: Side, other: Side, candidate: str) -> str:
    """A sentence on the random numbers of two sides in training mode; empty if neither draws any.

    Raises:
        NotTheSame: as `randomness.check`.
        ModelError: as `randomness.check`.
    """
    shared = draws.agreed(one.case, candidate)
    if shared.mirrored is not None:
        return shared.note
    try:
        return " ".join(filter(None, [randomness.check(one, other, candidate), shared.note and f"{shared.note}."]))
    except (NotTheSame, ModelError) as error:
        raise type(error)(". ".join(filter(None, [str(error), shared.note]))) from error


def _unknown(reference: Side, point: Point) -> str:
    """The reason why nothing can be compared at a point; empty if there is none."""
    try:
        rounding = reference.rounding(point)
    except InitialUnknownError as error:
        return str(error)
    forward = reference.forward(point)
    lengths = [(rounding.output, length(forward.output))]
    if rounding.gradients:
        gradients = reference.backward(point).gradients.values()
        lengths += [
            (rounding.loss, abs(forward.loss)),
            (math.hypot(*rounding.gradients.values()), math.hypot(*map(length, gradients))),
        ]
    if not all(map(math.isfinite, itertools.chain(*lengths))):
        return "the reference's own numbers are not finite there"
    if any(moved * ROUNDINGS > length * _UNKNOWN for moved, length in lengths):
        return "float64 is too coarse there: its rounding alone changes the reference's own result"
    return ""
