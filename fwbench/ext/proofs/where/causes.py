"""The cause of a difference between two networks. It is named only where their numbers or settings show it."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fwbench.ext.proofs.where.arrays import aligned, distance, ordered
from fwbench.ext.proofs.where.calls import Array, Call
from fwbench.ext.proofs.where.computations import EXPLAINED, FLOAT32, Explanation, explanations, normalised


@dataclass(frozen=True)
class Part:
    """One network's arrays and settings at a place.

    Attributes:
        agreed: by name, the last arrays that are equal in both networks.
        value: the first array that differs; None if there is none.
        settings: those of the module that computes `value`, if the place is a module.
    """

    framework: str
    agreed: Mapping[str, Array]
    value: Array | None
    settings: Mapping[str, Any] = field(default_factory=dict)


def cause(reference: Part, candidate: Part, calls: Sequence[Call] = ()) -> str:
    """The cause of a difference as a sentence without a full stop; empty if none is known.

    Args:
        calls: the reference's calls; a term that one network lacks may be among their arrays.
    """
    # Infinities and cubes of large numbers make NumPy warn, and explain nothing.
    with np.errstate(all="ignore"):
        return _settings(reference, candidate) or _shown(reference, candidate, calls)


def _shown(reference: Part, candidate: Part, calls: Sequence[Call]) -> str:
    one, other = reference.value, candidate.value
    if one is None or other is None or one.size != other.size:
        return ""
    frameworks = (reference.framework, candidate.framework)
    if sentence := _computed(frameworks, explanations(reference.agreed, one), explanations(candidate.agreed, other)):
        return sentence
    theirs = aligned(other, one)
    before = list(reference.agreed.values())
    start = before[0] if len(before) == 1 and before[0].shape == one.shape else None
    sides = ((*frameworks, one, theirs), (*frameworks[::-1], theirs, one))
    for framework, beside, mine, others in sides:
        if name := _term(mine - others, calls, start):
            return f"There {framework} alone adds what {name}"
        if bounds := _clip(others, mine):
            ends = [f"{side} {end:.6g}" for side, end in _level(others).items() if side in bounds]
            own = f"{framework} clips {bounds}, and {beside} {' and '.join(ends)}"
            return f"There {own}" if ends else f"There {framework} alone clips {bounds}"
        if start is not None and _rounds_table(others, mine, start):
            return f"There both add a table, and {framework} alone rounds it to float32"
    square = float(np.vdot(one, one))
    # Any number is a multiple of any other, so a single number shows nothing.
    factor = float(np.vdot(theirs, one)) / square if square and one.size > 1 else 0.0
    if factor and np.isfinite(factor) and distance(one * factor, theirs) <= EXPLAINED:
        times = f"{factor:.6g}" if abs(factor - 1) > 1e-5 else f"{factor:.12g}"
        return f"There all values in {candidate.framework} are {times} times those in {reference.framework}"
    if distance(*ordered(other, one)) <= EXPLAINED:
        return "There both have the same values in another order"
    return ""


def _computed(frameworks: tuple[str, str], ours: Sequence[Explanation], theirs: Sequence[Explanation]) -> str:
    """The sentence on two computations, each of which reproduces one network's value; empty if it is ambiguous.

    Where several computations reproduce a value, the pairs that differ in the fewest aspects count. If their sentences
    differ, none is returned.
    """
    pairs = list(itertools.product(ours, theirs))
    aspects = [_differing(*pair) for pair in pairs]
    fewest = min(map(len, aspects), default=0)
    sentences = {
        _told(frameworks, pair, verbs) for pair, verbs in zip(pairs, aspects, strict=True) if len(verbs) == fewest
    }
    return sentences.pop() if len(sentences) == 1 else ""


def _differing(one: Explanation, other: Explanation) -> list[str]:
    return [verb for verb in one.aspects if other.aspects.get(verb, one.aspects[verb]) != one.aspects[verb]]


def _told(frameworks: tuple[str, str], pair: tuple[Explanation, Explanation], verbs: Sequence[str]) -> str:
    """A sentence on the aspects in which two computations differ, and on float32's precision; empty if they agree."""
    if pair[0].rounded != pair[1].rounded:
        verbs = list(dict.fromkeys(["computes", *verbs]))
    clauses = []
    for verb in verbs:
        objects = [
            each.aspects[verb] + (" to float32's precision alone" if each.rounded and verb == "computes" else "")
            for each in pair
        ]
        clauses.append(f"{frameworks[0]} {verb} {objects[0]}, and {frameworks[1]} {objects[1]}")
    return f"There {'; '.join(clauses)}" if clauses else ""


def _clip(array: Array, clipped: Array) -> str:
    """In words, the bounds at which clipping `array` gives `clipped`; empty if it does not.

    At least two numbers must be beyond a bound: a single larger one always seems clipped to the largest number.
    """
    low, high = float(np.min(clipped)), float(np.max(clipped))
    rounding = EXPLAINED * float(np.max(np.abs(array)))
    beyond = {f"below {low:.6g}": array < low - rounding, f"above {high:.6g}": array > high + rounding}
    counts = {words: int(np.sum(numbers)) for words, numbers in beyond.items() if np.any(numbers)}
    if (
        low == high
        or not counts
        or min(counts.values()) < 2
        or not distance(np.clip(array, low, high), clipped) <= EXPLAINED
    ):
        return ""
    return " and ".join(counts)


def _level(array: Array) -> dict[str, float]:
    """The least and the largest number, each only if it occurs more than once, as clipped numbers do."""
    ends = {"below": float(np.min(array)), "above": float(np.max(array))}
    return {side: end for side, end in ends.items() if np.sum(array == end) > 1}


def _rounds_table(exact: Array, rounded: Array, start: Array) -> bool:
    """True if both arrays are `start` plus one table for all samples, which only `rounded` holds in float32."""
    tables = [array - start for array in (exact, rounded)]
    same = all(distance(start + table[:1], start + table) <= EXPLAINED for table in tables)
    in_float32 = [distance(start + table.astype(np.float32), start + table) <= EXPLAINED for table in tables]
    return len(start) > 1 and same and in_float32 == [False, True] and distance(*tables) <= FLOAT32


def _settings(reference: Part, candidate: Part) -> str:
    """Sentences on settings that both modules have and that differ."""
    one, other = ({name: _plain(value) for name, value in part.settings.items()} for part in (reference, candidate))
    both = [name for name in one.keys() & other.keys() if isinstance(one[name], str) == isinstance(other[name], str)]
    told = [
        f"Their {name} differ{'' if name == 'heads' else 's'}: {one[name]} in {reference.framework} and {other[name]} "
        f"in {candidate.framework}"
        for name in both
        if one[name] != other[name]
    ]
    for part, own, others in ((reference, one, other), (candidate, other, one)):
        same = str(own.get("padding")).upper() == "SAME" and not isinstance(others.get("padding", ""), str)
        if same and own.get("stride", 1) != 1:
            where = f"less above and to the left at stride {own['stride']}"
            told.append(f"SAME in {part.framework} pads {where} than padding in numbers does")
    return ". ".join(sorted(told))


def _plain(value: Any) -> Any:
    """A setting; a single number if it is the same for all axes."""
    while isinstance(value, (tuple, list)) and value and all(part == value[0] for part in value):
        value = value[0]
    return value


def _term(term: Array, calls: Sequence[Call], start: Array | None) -> str:
    """Name the array that equals a term: a call's input or output, or the normalised start; empty if none does."""
    # The output of the whole network is no term of it.
    for call in (call for call in calls if call.module.path):
        for name, arrays in (("enters", call.inputs), ("leaves", (call.output,))):
            for array in arrays:
                if array is not None and array.shape == term.shape and distance(array, term) <= EXPLAINED:
                    return f"{name} `{call.module.path}`"
    for aspects, array in normalised(start) if start is not None else ():
        if distance(array, term) <= EXPLAINED:
            return f"{aspects['computes']} gives without its scale, as a scale of 1 + weight does"
    return ""
