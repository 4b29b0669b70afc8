"""Choices that a program makes by the values of its arrays, and the sides of them that a proof's points have taken.

A mistake on a side that no point takes changes no result. This module imports no framework.
"""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fwbench.ext.proofs.case import TARGETS, Case, Point
from fwbench.ext.proofs.where.calls import shown

# Words for the two sides of each comparison of a value with a number.
_COMPARED = {
    "eq": ("{} = {}", "{} other than {}"),
    "ne": ("{} other than {}", "{} = {}"),
    "lt": ("{} < {}", "{} >= {}"),
    "le": ("{} <= {}", "{} > {}"),
    "gt": ("{} > {}", "{} <= {}"),
    "ge": ("{} >= {}", "{} < {}"),
}
COMPARISONS = tuple(_COMPARED)

# Words for the two sides of each kind of limit, a number.
_LIMITED = {
    "below": ("a value below {}", "a value not below {}"),
    "above": ("a value above {}", "a value not above {}"),
}

# Words for the two sides of each choice by the values of an input or a counter.
_NAMED = {**_COMPARED, "mask": ("{} other than 0", "{} = 0"), "count": ("{} up to {}", "{} beyond {}")}

# File, line, and column in which an expression ends, which tells several in one line apart. None: Python keeps none.
Site = tuple[str, int, int | None]


@dataclass(frozen=True)
class Choice:
    """A choice between two sides: the one that is taken where its condition holds, and the other.

    Attributes:
        site: the expression of the user's code that makes it.
        how: one of `COMPARISONS`; `below` or `above`, a limit that cuts values off; `mask`; or `count`, any use that a
            network makes of a counter.
        number: the number with which values are compared or at which they are cut off; None: no single number.
        name: the input, or `TARGETS`, that holds the values, or the counter; None: none.
    """

    site: Site
    how: str
    number: float | None = None
    name: str | None = field(default=None, compare=False)

    @property
    def sides(self) -> tuple[str, str]:
        """Words for the two sides."""
        number = "a limit" if self.number is None else f"{self.number:g}"
        if self.how in _LIMITED:
            return _filled(_LIMITED[self.how], number)
        if self.name is not None and (self.number is not None or self.how == "mask"):
            return _filled(_NAMED[self.how], titled(self.name), number)
        what = "condition" if self.how == "mask" else "comparison"
        return f"a {what} that holds", f"a {what} that does not hold"


@dataclass
class Choices:
    """The sides that have been taken, by choice: flags for the one where its condition holds, and for the other."""

    taken: dict[Choice, tuple[bool, bool]] = field(default_factory=dict)

    def note(self, choice: Choice, holds: bool, fails: bool) -> None:
        """Add the sides that one pass through a program has taken."""
        before = self.taken.get(choice, (False, False))
        self.taken[choice] = (before[0] or holds, before[1] or fails)

    def add(self, others: "Choices") -> None:
        """Add the sides that further passes have taken."""
        for choice, sides in others.taken.items():
            self.note(choice, *sides)

    def adds(self, others: "Choices") -> bool:
        """True if further passes take a side that these have not taken, of a choice that these have met."""
        return any(
            taken and not known
            for choice, sides in others.taken.items()
            for taken, known in zip(sides, self.taken.get(choice, sides), strict=True)
        )

    def one_sided(self) -> Iterator[tuple[Choice, str]]:
        """Each choice of which only one side was taken, and the words for the other side."""
        for choice, (holds, fails) in self.taken.items():
            if holds != fails:
                yield choice, choice.sides[holds]

    def untried(self, besides: "Choices | None" = None) -> list[str]:
        """The sides that no pass has taken, such as `attention_mask` = 0 (net.py, line 12).

        Those that another network's choices have, too, are left out.
        """
        told = {words for choice in (besides.taken if besides else ()) for words in choice.sides}
        left = ((words, choice.site) for choice, words in self.one_sided() if words not in told)
        return list(dict.fromkeys(f"{words} ({shown(site[:2])})" for words, site in left))


def _filled(words: tuple[str, str], *given: str) -> tuple[str, str]:
    return words[0].format(*given), words[1].format(*given)


def site_of(frame: FrameType) -> Site:
    """The expression that a frame is computing."""
    code = frame.f_code
    _, _, _, end = next(itertools.islice(code.co_positions(), frame.f_lasti // 2, None))
    return code.co_filename, frame.f_lineno, end


def titled(name: str) -> str:
    """An input's name as a sentence gives it; a model's only input may have no name."""
    return f"`{name}`" if name else "the input"


def named(case: Case, point: Point) -> dict[str, NDArray[Any]]:
    """The arrays that a program gets at a point besides weights, flat: its inputs, and targets if a model has some."""
    given: Mapping[str, Any] = case.inputs(point)
    wanted = case.targets(()) if case.model.targets else None
    every = {**given, **({} if wanted is None else {TARGETS: wanted})}
    return {name: np.ravel(array) for name, array in every.items()}
