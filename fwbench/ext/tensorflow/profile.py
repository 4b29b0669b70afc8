"""Spans of a TensorFlow program, from `tf.profiler`."""

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fwbench.ext.tensorflow.imported import tf
from fwbench.frameworks import xplane
from fwbench.record.spans import Span


def recorded(call: Callable[[], None], calls: int, optimised: str) -> list[Span]:
    """Make calls under the profiler; `optimised` is the program's optimised HLO, or empty without XLA."""
    of = tf.profiler.experimental
    profiler = functools.partial(of.Profile, options=of.ProfilerOptions(python_tracer_level=0))
    return xplane.recorded(profiler, of.Trace, _events, call, calls, optimised)


def _events(file: Path) -> Iterator[xplane.Event]:
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    space: Any = xplane_pb2.XSpace()
    space.ParseFromString(file.read_bytes())
    for plane in space.planes:
        names = plane.stat_metadata
        for line in plane.lines:
            for event in line.events:
                stats = {
                    names[stat.metadata_id].name: stat.str_value or names[stat.ref_value].name for stat in event.stats
                }
                start = line.timestamp_ns + event.offset_ps / 1e3
                name = plane.event_metadata[event.metadata_id].name
                yield xplane.Event(plane.name, line.name, name, start, event.duration_ps / 1e3, stats)
