"""Spans of a JAX program, from `jax.profiler`."""

import functools
import warnings
from collections.abc import Callable
from pathlib import Path

import jax

from fwbench.frameworks import xplane
from fwbench.record.spans import Span


def recorded(call: Callable[[], None], calls: int, optimised: str) -> list[Span]:
    """Make calls under the profiler; `optimised` is the program's optimised HLO."""
    options = jax.profiler.ProfileOptions()
    # Recording Python's own calls would take most of the time.
    options.python_tracer_level = 0
    profiler = functools.partial(jax.profiler.trace, profiler_options=options)
    return xplane.recorded(profiler, jax.profiler.TraceAnnotation, _events, call, calls, optimised)


def _events(file: Path) -> list[xplane.Event]:
    data = jax.profiler.ProfileData.from_file(str(file))
    with warnings.catch_warnings():
        # Python 3.13 warns of the reader's types; where warnings are errors, that would abort the process.
        warnings.simplefilter("ignore", DeprecationWarning)
        return [
            xplane.Event(plane.name, line.name, event.name, event.start_ns, event.duration_ns, dict(event.stats))
            for plane in data.planes
            for line in plane.lines
            for event in line.events
        ]
