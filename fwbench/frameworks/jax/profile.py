"""Spans of a JAX program, from `jax.profiler`."""

import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax

from fwbench.frameworks import xplane
from fwbench.record.spans import Span


def recorded(step: Callable[[], None], wait: Callable[[], None], calls: int, optimised: str) -> list[Span]:
    """Make calls under the profiler.

    Args:
        optimised: the program's optimised HLO.
    """
    options = jax.profiler.ProfileOptions()
    # To record Python's own calls would take most of the time.
    options.python_tracer_level = 0
    with tempfile.TemporaryDirectory(prefix="fwbench-") as folder:
        with jax.profiler.trace(folder, profiler_options=options):
            for _ in range(calls):
                with jax.profiler.TraceAnnotation(xplane.CALL):
                    step()
                    wait()
        (file,) = Path(folder).glob("**/*.xplane.pb")
        found = jax.profiler.ProfileData.from_file(str(file))
    with warnings.catch_warnings():
        # Python 3.13 warns of the reader's types; where warnings are errors, that would abort the process.
        warnings.simplefilter("ignore", DeprecationWarning)
        return xplane.spans(_events(found), optimised)


def _events(found: Any) -> Iterator[xplane.Event]:
    for plane in found.planes:
        for line in plane.lines:
            for event in line.events:
                stats = dict(event.stats)
                yield xplane.Event(plane.name, line.name, event.name, event.start_ns, event.duration_ns, stats)
