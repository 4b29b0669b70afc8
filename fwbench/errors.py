"""What the user must correct: one sentence, never a traceback."""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Input that cannot be used or an answer that cannot be had; its text says what, where and what to do.

    `fwbench` prints it and ends with `EXIT_CODE`, which is pytest's own for a usage error.
    """

    EXIT_CODE = 4


class UnavailableError(Exception):
    """A program that a lane cannot make of a network: the measurement is `unavailable`, with this one sentence."""


class Absent(str):
    """Why the machine has no such thing, in one sentence.

    Attributes:
        next_step: what to do about it; empty where nothing can be done.
    """

    next_step: str

    def __new__(cls, reason: str, next_step: str = "") -> "Absent":
        self = super().__new__(cls, reason)
        self.next_step = next_step
        return self


def hint(name: str, known: Iterable[str]) -> str:
    """The end of a sentence on a name that nobody knows: the nearest known one, or all of them."""
    choices = list(known)
    near = difflib.get_close_matches(name, choices, n=1)
    return f"the nearest is {near[0]!r}" if near else f"choose from {', '.join(choices)}"
