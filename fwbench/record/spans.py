"""What a framework's profiler recorded while a program made calls."""

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
        thread: the name of the thread or stream. Two spans of one thread do not overlap, or one contains the other.
        name: as the framework calls it.
        start: seconds on the profiler's clock.
        seconds: how long it took, whatever it called included.
        shapes: of an operator's arguments (PyTorch) or result (XLA); empty: the profiler does not tell.
        place: the file and line that asked for it, or a graph's node; empty: the profiler does not tell.
    """

    kind: Literal["call", "operator", "other"]
    thread: str
    name: str
    start: float
    seconds: float
    shapes: str = ""
    place: str = ""
