"""Errors that the user can correct: one sentence each, never a traceback."""

import difflib
import errno
from collections.abc import Iterable


class UserError(Exception):
    """Unusable input, or an answer that cannot be had; the text says what is wrong, where, and what to do.

    `fwbench` prints it and ends with `EXIT_CODE`, pytest's exit code for a usage error.
    """

    EXIT_CODE = 4


class UnavailableError(Exception):
    """A lane cannot make a program of a network: the measurement is `unavailable`, for this reason in one sentence."""


class Absent(str):
    """The reason why the machine lacks something, in one sentence.

    Attributes:
        next_step: what to do about it; empty if nothing can be done.
    """

    next_step: str

    def __new__(cls, reason: str, next_step: str = "") -> "Absent":
        self = super().__new__(cls, reason)
        self.next_step = next_step
        return self


# Advice for a resource of the system that is used up, by the error's number.
_EXHAUSTED = {
    errno.EMFILE: "let this process open more files, as by `ulimit -n 1024`",
    errno.ENFILE: "end other processes, which have opened all the files that this machine can",
    errno.EAGAIN: "end other processes, or allow more of them, as by `ulimit -u 4096`",
    errno.ENOMEM: "end other processes, which have taken all of this machine's memory",
}


def exhausted(error: OSError) -> str:
    """The advice for a system that has no files, processes or memory left; empty for any other error."""
    return _EXHAUSTED.get(error.errno or 0, "")


def hint(name: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: the nearest known name, or all known names."""
    choices = list(known)
    near = difflib.get_close_matches(name, choices, n=1)
    return f"the nearest is {near[0]!r}" if near else f"choose from {', '.join(choices)}"
