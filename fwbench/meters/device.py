"""Device time: the seconds for which a call keeps a GPU busy, by the framework's profiler.

A call that takes far longer than its device time waits for the host, which starts kernels one by one.
"""

from collections.abc import Iterable

from fwbench.frameworks.contract import Program
from fwbench.frameworks.faults import first_line
from fwbench.record.measurement import Metric, unavailable
from fwbench.record.spans import Span

_CALLS = 3


def device_time(program: Program) -> Metric:
    """Seconds of a call in which the device computes or copies for it, by some calls under the profiler."""
    source = f"the framework's profiler, {_CALLS} calls"
    try:
        spans = program.spans(_CALLS) or []
    except Exception as error:
        return unavailable(source, f"{type(error).__name__}: {first_line(error)}")
    seconds = busy(span for span in spans if span.kind == "operator")
    return Metric(seconds / _CALLS, source) if seconds else unavailable(source, "it tells of no work on the device")


def busy(spans: Iterable[Span]) -> float:
    """Seconds covered by at least one of these spans."""
    total, until = 0.0, float("-inf")
    for begin, end in sorted((span.start, span.start + span.seconds) for span in spans):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total
