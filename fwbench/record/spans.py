"""Spans of work that a framework's profiler recorded during a program's calls."""

from dataclasses import dataclass
from typing import Literal

# The name under which profilers record a call.
CALL = "fwbench: a call"


@dataclass(frozen=True)
class Span:
    """Something that a thread, or a GPU's stream, did for a while.

    Attributes:
        kind: `call`: one call of the program, with the wait for its end; `operator`: work on the device that runs the
            workload, CPU or GPU; `other`: anything else, which only traces show.
        thread: the name of the thread or stream. Two spans of one thread are disjoint, or one contains the other.
        name: the framework's name of the work.
        start: seconds on the profiler's clock.
        seconds: its duration, including whatever it called.
        shapes: shapes of an operator's arguments (PyTorch) or result (XLA); empty: not recorded.
        place: the file and line that asked for it, or a graph's node; empty: not recorded.
    """

    kind: Literal["call", "operator", "other"]
    thread: str
    name: str
    start: float
    seconds: float
    shapes: str = ""
    place: str = ""
