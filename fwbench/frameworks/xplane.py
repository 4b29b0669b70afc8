"""Spans from the events of XLA's profiler, which JAX and TensorFlow share."""

import re
import tempfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from fwbench.frameworks.hlo import instructions
from fwbench.record.spans import CALL, Span

# A node of a graph that TensorFlow runs without XLA, and its operator.
_NODE = re.compile(r"(?P<node>[\w./-]+):(?P<operator>_?[A-Z]\w*)$")


class Event(NamedTuple):
    """An event of a profile.

    Attributes:
        plane: the device or host on which it happened.
        line: the thread or stream.
        start, duration: in nanoseconds.
        stats: further facts; `hlo_op` is the name of an instruction.
    """

    plane: str
    line: str
    name: str
    start: float
    duration: float
    stats: Mapping[str, Any]


def recorded(
    profiler: Callable[[str], AbstractContextManager[Any]],
    mark: Callable[[str], AbstractContextManager[Any]],
    events: Callable[[Path], Iterable[Event]],
    call: Callable[[], None],
    calls: int,
    optimised: str,
) -> list[Span]:
    """Make calls under a profiler; return their spans.

    Args:
        profiler: a context that records what happens in it, and writes it into a folder.
        mark: a context that records itself under a name.
        events: reads the file that the profiler has written.
        optimised: as in `spans`.
    """
    with tempfile.TemporaryDirectory(prefix="fwbench-") as folder:
        with profiler(folder):
            for _ in range(calls):
                with mark(CALL):
                    call()
        (file,) = Path(folder).glob("**/*.xplane.pb")
        return spans(events(file), optimised)


def spans(events: Iterable[Event], optimised: str) -> list[Span]:
    """The spans of these events.

    On a GPU the events of its streams are operators; on a CPU those of XLA's instructions and of a graph's nodes are.

    Args:
        optimised: the program's optimised HLO, for shapes and places; empty: XLA did not compile it.
    """
    listed = [event for event in events if event.duration > 0]
    known = instructions(optimised)
    on_gpu = any(_by_gpu(event) for event in listed)
    return [_span(event, known, on_gpu) for event in listed]


def _span(event: Event, known: Mapping[str, tuple[str, str]], on_gpu: bool) -> Span:
    name, place = event.name, ""
    instruction = str(event.stats.get("hlo_op") or "")
    node = None if instruction else _NODE.match(name)
    if node:
        name, place = node["operator"], node["node"]
    works = _by_gpu(event) if on_gpu else bool(instruction or node)
    shapes, written = known.get(instruction, ("", ""))
    return Span(
        "call" if name == CALL else "operator" if works else "other",
        f"{event.plane} {event.line}",
        # The instruction's name says more than that of its kernel. A fusion of one instruction alone has the name
        # `wrapped_` and the instruction's.
        instruction.removeprefix("wrapped_") or name,
        event.start / 1e9,
        event.duration / 1e9,
        shapes,
        written or place,
    )


def _by_gpu(event: Event) -> bool:
    return event.plane.startswith("/device:GPU") and event.line.startswith("Stream")
