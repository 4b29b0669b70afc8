"""The first place where two networks part: calls of modules with the same weights are paired and compared."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fwbench.ext.proofs.where.arrays import apart
from fwbench.ext.proofs.where.calls import Call, shown
from fwbench.ext.proofs.where.causes import Part, cause

# The most modules without weights that a sentence lists for each network.
_LISTED = 3

_NETWORK = "the network"


@dataclass(frozen=True)
class Side:
    """A network's framework, and the calls of its modules in one forward pass, in the order in which they end."""

    framework: str
    calls: Sequence[Call]

    def inside(self, place: int) -> range:
        """The indices of the calls within the call at index `place`."""
        return range(self.calls[place].begun, place)

    def activation(self, place: int) -> Any:
        """The activation that a layer applies to its own output; `linear` for a block, which may apply it within."""
        is_block = any(self.calls[inner].module.weights for inner in self.inside(place))
        return "linear" if is_block else self.calls[place].settings.get("activation", "linear")

    def by_weights(self) -> dict[tuple[frozenset[str], int], int]:
        """Indices of calls by the module's weights and the number of earlier calls with them.

        A module that only wraps another one with the same weights is left out.
        """
        places: dict[tuple[frozenset[str], int], int] = {}
        for place, call in enumerate(self.calls):
            weights = call.module.weights
            if weights and all(self.calls[inner].module.weights != weights for inner in self.inside(place)):
                places[weights, sum(known == weights for known, _ in places)] = place
        return places


@dataclass(frozen=True)
class Pair:
    """The calls of two modules with the same weights.

    Attributes:
        places: index of the reference's call, and of the candidate's.
        inputs, output: distances of the two calls' inputs and outputs; None where they cannot be compared. Outputs of
            different sizes are infinitely far apart if the inputs are equal.
        bound: the largest distance at which arrays count as equal.
    """

    places: tuple[int, int]
    inputs: tuple[float | None, ...]
    output: float | None
    bound: float

    @property
    def entered(self) -> float | None:
        """The largest distance of the inputs; None if none can be compared."""
        return max((error for error in self.inputs if error is not None), default=None)

    @property
    def equal(self) -> bool:
        """True if the outputs are equal."""
        return self.output is not None and self.output <= self.bound

    @property
    def behind(self) -> bool:
        """True if the inputs differ, so that the networks part before these calls."""
        return self.entered is not None and not self.entered <= self.bound


def sentence(reference: Side, candidate: Side, bound: float) -> str:
    """Sentences on the place where two networks begin to differ by more than a bound, and on the cause; or nothing.

    The last one has no full stop.
    """
    sides = (reference, candidate)
    for side in sides:
        if not any(call.module.weights for call in side.calls):
            return f"Where they part cannot be said, as the network in {side.framework} has no modules with weights"
    pairs = _judged(_pairs(reference, candidate, bound), reference)
    first = next((pair for pair in pairs if not pair.equal and (pair.output is not None or pair.behind)), None)
    # A single pair stands for the whole network, which is no place within it.
    if first is None or len(pairs) == 1:
        return ""
    within = [pair for pair in pairs if pair.equal and pair.places[0] in reference.inside(first.places[0])]
    if first.behind:
        begun = reference.calls[first.places[0]].begun
        return _between(sides, [pair for pair in pairs if pair.equal and pair.places[0] < begun], first, leaves=False)
    return _between(sides, within, first, leaves=True) if within else _at(sides, first)


def _pairs(reference: Side, candidate: Side, bound: float) -> list[Pair]:
    """Pair the calls of modules that hold the same weights, in the reference's order."""
    others = candidate.by_weights()
    pairs = []
    for key, place in reference.by_weights().items():
        if key in others:
            one, other = reference.calls[place], candidate.calls[others[key]]
            entered = tuple(apart(theirs, ours) for ours, theirs in zip(one.inputs, other.inputs, strict=False))
            # If only one of the layers applies an activation itself, as Keras's may, their outputs cannot be compared.
            activations = {reference.activation(place), candidate.activation(others[key])}
            left = None if len(activations) > 1 else apart(other.output, one.output)
            pair = Pair((place, others[key]), entered, left, bound)
            resized = one.output is not None and other.output is not None and one.output.size != other.output.size
            if resized and pair.entered is not None and not pair.behind:
                pair = replace(pair, output=math.inf)
            pairs.append(pair)
    return sorted(pairs, key=lambda pair: pair.places)


def _judged(pairs: list[Pair], reference: Side) -> list[Pair]:
    """Leave out pairs inside a module with an equal output, and modules that merely end at another operation.

    A block may leave its last activation to its caller, and a layer the cutting of its padding. Its output differs
    then, but the next module has equal inputs.
    """
    equal = [pair.places[0] for pair in pairs if pair.equal]
    pairs = [pair for pair in pairs if not any(pair.places[0] in reference.inside(place) for place in equal)]

    def ends_elsewhere(pair: Pair) -> bool:
        may = pair.output == math.inf or any(each.places[0] in reference.inside(pair.places[0]) for each in pairs)
        later = [each for each in pairs if reference.calls[each.places[0]].begun > pair.places[0]]
        return may and not pair.equal and bool(later) and later[0].entered is not None and not later[0].behind

    return [pair for pair in pairs if not ends_elsewhere(pair)]


def _at(sides: tuple[Side, Side], pair: Pair) -> str:
    """The sentence on a module whose output differs, although the inputs that can be compared are equal."""
    calls = [side.calls[place] for side, place in zip(sides, pair.places, strict=True)]
    regions = [f"{side.framework}: {_described(call)}" for side, call in zip(sides, calls, strict=True)]
    parts = [
        Part(side.framework, {"its input": call.inputs[0]} if call.inputs else {}, call.output, call.settings)
        for side, call in zip(sides, calls, strict=True)
    ]
    entered = "" if pair.entered is None else f", and its input by {_size(pair.entered)}"
    return _told(f"at {_name(calls[0])}", regions, f"its output {_differs(pair.output)}{entered}", parts, sides[0])


def _between(sides: tuple[Side, Side], equal: list[Pair], first: Pair, *, leaves: bool) -> str:
    """The sentence on a place between the last equal outputs and a module's input, or its output if `leaves`."""
    last = _together(equal, sides[0])
    names = [_name(sides[0].calls[pair.places[0]]) for pair in last]
    index = max(range(len(first.inputs)), key=lambda place: first.inputs[place] or 0.0, default=0)
    regions, parts = [], []
    for number, side in enumerate(sides):
        place = first.places[number]
        end, starts = side.calls[place], [side.calls[pair.places[number]] for pair in last]
        begun = last[0].places[number] + 1 if last else 0
        among = side.calls[begun : place if leaves else end.begun]
        regions.append(f"{side.framework}: {_region(among, starts[:1], [] if leaves else [end])}")
        value = end.output if leaves else end.inputs[index]
        agreed = {name: call.output for name, call in zip(names, starts, strict=True) if call.output is not None}
        parts.append(Part(side.framework, agreed, value))
    name = _name(sides[0].calls[first.places[0]])
    before = ", ".join(names)
    if leaves:
        where = f"after {before}, the last module with weights" + (f" in {name}" if name != _NETWORK else "")
        what = f"what leaves {name} {_differs(first.output)}"
    else:
        where = f"between {before} and {name}" if last else f"before {name}"
        what = f"what enters {name} {_differs(first.entered)}"
    known = f", and what leaves {before} by {_size(max(pair.output or 0.0 for pair in last))}" if last else ""
    return _told(where, regions, what + known, parts, sides[0])


def _together(equal: list[Pair], reference: Side) -> list[Pair]:
    """The last pair and those right before it with the same input, such as attention's projections."""
    entered = [next(iter(reference.calls[pair.places[0]].inputs), None) for pair in equal]
    together = [
        pair
        for number, pair in enumerate(equal)
        if all(array is not None and np.array_equal(array, entered[-1]) for array in entered[number:])
    ]
    return together or equal[-1:]


def _told(where: str, regions: list[str], what: str, parts: list[Part], reference: Side) -> str:
    reason = cause(parts[0], parts[1], reference.calls)
    return ". ".join(filter(None, [f"First apart {where} ({'; '.join(regions)}): {what}", reason]))


def _region(among: Sequence[Call], start: Sequence[Call], end: Sequence[Call]) -> str:
    """The modules without weights that change something between two calls, or else the lines between the calls."""
    changing = [call for call in among if call.module.weights == frozenset() and call.changes]
    if changing:
        return ", ".join(map(_described, changing[:_LISTED]))
    sites = [call.site for call in (*start, *end) if call.site]
    if not sites:
        return "no module"
    if len(sites) == 2 and sites[0][0] == sites[1][0] and sites[0][1] <= sites[1][1]:
        return shown(sites[0], sites[1][1])
    return f"{'before' if end else 'after'} {shown(sites[-1])}"


def _described(call: Call) -> str:
    """A call's module in a few words: its own path if it differs from `_name`, its class, settings and caller."""
    own = f"`{call.module.path}`, " if f"`{call.module.path}`" != _name(call) or not call.module.weights else ""
    settings = ", ".join(f"{name}={value}" for name, value in call.settings.items())
    return f"{own}{call.kind}({settings})" + (f", {shown(call.site)}" if call.site else "")


def _name(call: Call) -> str:
    """A module's canonical name: the beginning that the names of its weights share."""
    names = [name.split(".")[:-1] for name in call.module.weights or ()]
    common = [parts[0] for parts in itertools.takewhile(lambda parts: len(set(parts)) == 1, zip(*names, strict=False))]
    path = ".".join(common) or call.module.path
    return f"`{path}`" if path else _NETWORK


def _differs(error: float | None) -> str:
    return "has another size" if error == math.inf else f"differs by {error:.1e}"


def _size(error: float | None) -> str:
    return f"{error:.0e}" if error else "0"
