"""What the user must correct: one sentence, never a traceback."""

import difflib
import errno
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


# What to do where the system has none left of something, by the error's number.
_EXHAUSTED = {
    errno.EMFILE: "let this process open more files, as by `ulimit -n 1024`",
    errno.ENFILE: "end other processes, which have opened all the files that this machine can",
    errno.EAGAIN: "end other processes, or allow more of them, as by `ulimit -u 4096`",
    errno.ENOMEM: "end other processes, which have taken all of this machine's memory",
}


def exhausted(error: OSError) -> str:
    """What to do about a system that has no files, processes or memory left; empty where the error says otherwise."""
    return _EXHAUSTED.get(error.errno or 0, "")


def hint(name: str, known: Iterable[str]) -> str:
    """The end of a sentence on a name that nobody knows: the nearest known one, or all of them."""
    choices = list(known)
    near = difflib.get_close_matches(name, choices, n=1)
    return f"the nearest is {near[0]!r}" if near else f"choose from {', '.join(choices)}"
