"""Watches the choices at a proof's points, and tries further points for sides that none of them takes."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fwbench.ext.proofs.case import MAIN, TARGETS, Case, InitialUnknownError, Mode, Point, Side
from fwbench.ext.proofs.choices import Choices, titled
from fwbench.ext.proofs.choices.steering import BATCHES, CALLS, at, candidates, constants, counts, sizes, sweep
from fwbench.ext.proofs.errors import NotTheSame, Quantity, bound, check, measure
from fwbench.ext.proofs.proof import Proof, _unknown, elsewhere, modes, modes_apart
from fwbench.models import Model
from fwbench.models.importing import described, load
from fwbench.models.store import Nearest

# The function that watches each framework's networks. Without one, no choice is known.
_WATCHING = {"torch": "fwbench.ext.proofs.choices.torch:taken", "jax": "fwbench.ext.proofs.choices.jax:taken"}

# The quantities compared at further points. The first differentiates, and its forward pass serves the others.
_QUANTITIES: tuple[Quantity, ...] = ("gradients", "output", "loss", "statistics")

# A network is compared at another size only if it has room for this many times its samples.
_PASSES = 16


@dataclass
class Further:
    """The results at the further points, which a proof tries for the sake of choices.

    Attributes:
        points: the further points at which the networks were compared.
        nearest: for each quantity and point, the tensor nearest to its bound.
        left_out: by point and mode, the reason why they could not be compared there; and numbers that no input takes.
        untried: sides of the networks' choices that they take at no compared point.
        swept: in words, inputs that took every number of their ranges, and further sizes.
    """

    points: list[Point] = field(default_factory=list)
    nearest: list[Nearest] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    untried: list[str] = field(default_factory=list)
    swept: list[str] = field(default_factory=list)


def prove(model: Model, candidate: str, left_out: Mapping[str, str], *, trains: bool = True) -> Further:
    """Compare two networks at points where one of them takes sides of its choices that no point of the proof takes.

    If both modes compute the same at the main point, training mode is compared at the points where they do not.

    Args:
        candidate: the framework that is proved against the model's reference.
        left_out: the points and modes of the proof at which nothing could be compared.
        trains: as for `Proof`.

    Raises:
        NotTheSame: a difference at a further point exceeds its bound.
    """
    asked = [_Asked(model, candidate, mode, trains=trains) for mode in modes(model, trains=trains)]
    # `known` has the sides that the reference has taken, and those that the candidate has.
    further, known = Further(), (Choices(), Choices())
    # True if the proof has taken the errors of inference for those of training at all points.
    together = False
    for point in (MAIN, *elsewhere(model)):
        here = [each for each in asked if f"{point} ({each.mode})" not in left_out]
        for each in here:
            each.watch(point, known)
        if len(here) > len(modes_apart(model)):
            if point == MAIN:
                together = _one_program(asked, point)
            elif together and not _alike(asked, point):
                asked[-1].compare(point, further)
    for each in asked[: 1 if together else None]:
        each.sweep(further)
    asked[0].size(further)
    for point, always in _trials(asked[-1], known, further):
        if not always and not any(True for choices in known for _ in choices.one_sided()):
            break
        taken = Choices(), Choices()
        for each in asked:
            each.watch(point, taken)
        if always or any(choices.adds(more) for choices, more in zip(known, taken, strict=True)):
            tried, once = Further(), together and _alike(asked, point)
            compared = [each.compare(point, tried) for each in asked[: 1 if once else None]]
            further.nearest += tried.nearest
            # Another point may take the side where this one cannot.
            further.left_out |= tried.left_out if always else {}
            if all(compared):
                for choices, more in zip(known, taken, strict=True):
                    choices.add(more)
                further.points.append(point)
    own, others = known
    further.untried += own.untried()
    # A choice that the candidate shares with the reference needs no line of its own.
    further.untried += others.untried(besides=own)
    return further


def _trials(asked: "_Asked", known: tuple[Choices, Choices], further: Further) -> Iterator[tuple[Point, bool]]:
    """Further points, each with whether the networks are compared there whatever side is taken."""
    case, sides = asked.case, asked.sides(MAIN)
    yield from ((point, True) for point in constants(case))
    # A framework that carries no state along takes no factor on the loss, either.
    carries = all(one.changing is not None for one in sides)
    changing = {name for one in sides for name in one.changing or ()}
    if changing and not carries:
        further.left_out[str(Point(calls=CALLS))] = f"{case.model.name} keeps a state that cannot be carried along"
    elif changing:
        yield Point(calls=CALLS), True
        most = sides[0].room // case.batch_size
        for choice in [choice for choices in known for choice, _ in choices.one_sided()]:
            # What a counter was assigned to has no name, and a remainder decides between two of its numbers.
            if choice.name is None or choice.name in changing:
                yield from ((point, choice.how == "count") for point in counts(choice.number, most))
    yield from ((point, False) for point in candidates(case, _compared(known), amplified=carries))


def _compared(known: Iterable[Choices]) -> list[tuple[str, float]]:
    every = ((choice.name, choice.number) for choices in known for choice, _ in choices.one_sided())
    return [(name, number) for name, number in every if name is not None and number is not None]


def _one_program(asked: Sequence["_Asked"], main: Point) -> bool:
    """True if `Proof` takes the errors of inference for those of training: each side trains as it infers."""
    programs = filter(_compares_programs, asked[-1].sides(main))
    return _alike(asked, main) and all(one.trains_as_it_infers() for one in programs)


def _alike(asked: Sequence["_Asked"], point: Point) -> bool:
    """True if each side computes at a point the same in training mode as in inference mode, to the last bit.

    A framework that compares the programs of both modes is left out: it has compared them for all points.
    """
    pairs = zip(*(each.sides(point) for each in asked), strict=True)
    return all(trains.equals(infers, point) for infers, trains in pairs if not _compares_programs(trains))


def _compares_programs(one: Side) -> bool:
    return type(one).trains_as_it_infers is not Side.trains_as_it_infers


class _Asked(Proof):
    """A proof in one mode at further points."""

    def __init__(self, model: Model, candidate: str, mode: Mode, *, trains: bool) -> None:
        super().__init__(model, candidate, mode, trains=trains)
        self.case = self._backward
        self._sides: dict[Case, tuple[Side, Side]] = {}
        paths = (_WATCHING.get(framework) for framework in (model.reference, candidate))
        self._watches: list[Callable[[Side, Point], Choices] | None] = [load(path) if path else None for path in paths]

    def watch(self, point: Point, known: tuple[Choices, Choices]) -> None:
        """Add the sides of their choices that the reference and the candidate take at a point."""
        for taken, one, choices in zip(self._watches, self.sides(point), known, strict=True):
            with contextlib.suppress(InitialUnknownError):
                choices.add(taken(one, point) if taken else Choices())

    def sides(self, point: Point) -> tuple[Side, Side]:
        """The two sides for a point. Other targets, which a program may hold as constants, have sides of their own."""
        case = at(self.case, point)
        if case not in self._sides:
            self._sides[case] = self.pair(case)
        return self._sides[case]

    def sweep(self, further: Further) -> None:
        """Compare the networks at every number of each input of whole numbers, and of the targets.

        Raises:
            NotTheSame: they differ at one of them.
        """
        for name, given in (*self.case.model.inputs.items(), (TARGETS, self.case.model.targets)):
            if given is None or given.draw != "integers":
                continue
            points, end = sweep(self.case, name, given, self.sides(MAIN)[0].room)
            compared = [self._freed(point, further) for point in points]
            if not all(compared):
                continue
            if end < given.high:
                further.left_out[f"{titled(name)} from {end} on"] = "there is no time for all numbers of the range"
            elif (words := f"drawn weights, {titled(name)} with each of its numbers") not in further.swept:
                further.swept.append(words)

    def size(self, further: Further) -> None:
        """Compare the networks at each further size of axes and batches, if they are small enough to have time for it.

        Raises:
            NotTheSame: they differ at one of them.
        """
        for point in sizes(self.case):
            if self.sides(MAIN)[0].room < _PASSES * point.batch_size:
                continue
            try:
                compared = self._freed(point, further)
            # The model does not promise that its networks take such a batch.
            except Exception as error:
                if isinstance(error, NotTheSame) or point.batch_size not in BATCHES:
                    raise
                further.left_out[f"{point} ({self.mode})"] = described(error)
            else:
                if compared:
                    further.swept.append(str(point))

    def _freed(self, point: Point, further: Further) -> bool:
        compared = self.compare(point, further)
        for one in self.sides(point):
            one.forget()
        return compared

    def compare(self, point: Point, further: Further) -> bool:
        """Compare the networks at a point; return False if they cannot be compared there.

        Raises:
            NotTheSame: they differ there.
        """
        one, other = self.sides(point)
        # Numbers that are not finite are a reason to leave the point out.
        with np.errstate(invalid="ignore"):
            reason = _unknown(one, point)
        if reason:
            further.left_out[f"{point} ({self.mode})"] = reason
            return False
        further.nearest += self._errors(one, other, point)
        return True

    def _errors(self, one: Side, other: Side, point: Point) -> Iterator[Nearest]:
        for quantity in _QUANTITIES:
            if quantity in self.quantities:
                errors = measure(quantity, one, other, point)
                check(quantity, errors, one.case, point)
                tensor = max(errors, key=errors.__getitem__)
                admitted = bound(self.model, quantity)
                yield Nearest(quantity, tensor, str(point), self.mode, errors[tensor], admitted)
