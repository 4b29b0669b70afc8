"""Humane units for the screen; records keep SI."""

import functools
import math
from collections.abc import Callable, Iterable, Mapping

from fwbench.record.metrics import SCALES

# From this share of a unit on, three digits round up to it: else 999.9 us would be shown as 1000 us, not 1.00 ms.
_ROUNDS_UP = 0.9995

# Ratios below this have two significant digits.
_HUNDREDTHS = 0.0995

_PREFIXES = {"T": 1e12, "G": 1e9, "M": 1e6, "k": 1e3, "": 1.0}
# For each SI unit, the units that its numbers are shown in, the largest first, each with its size in the SI unit.
SCALED: Mapping[str, Mapping[str, float]] = {
    "s": SCALES["s"],
    "J": {name: SCALES["J"][name] for name in ("J", "mJ")},
    "B": {name: SCALES["B"][name] for name in ("GiB", "MiB", "KiB", "B")},
    **{unit: {prefix + unit: size for prefix, size in _PREFIXES.items()} for unit in ("FLOP", "FLOP/s", "B/s")},
}

# The rest of a sentence on how to read a disturbed ratio; the ratio's name stands before it.
OPEN = "shown as a range, or after <= or >=, lies anywhere within these bounds, and one shown as unknown has none"


class AtMost(float):
    """An upper bound of the true number: it is shown after `<=`, and ranked with no other."""


class Within(float):
    """A disturbed number: the true one may lie anywhere between two bounds, which are shown in its place."""

    low: float
    high: float

    def __new__(cls, value: float, low: float, high: float) -> "Within":
        """Make one of the measured number and its bounds; an unknown bound is 0 or infinite."""
        within = super().__new__(cls, value)
        within.low, within.high = low, high
        return within


def bounds(value: float) -> tuple[float, float]:
    """The bounds of the true number; the number itself twice if nothing disturbed it."""
    return (value.low, value.high) if isinstance(value, Within) else (value, value)


def _scaled(value: float, unit: str) -> str:
    """A value in the largest unit of `SCALED` in which it is at least 1, or else in the smallest."""
    scales = SCALED[unit]
    name = next((name for name in scales if abs(value) >= _ROUNDS_UP * scales[name]), [*scales][-1])
    return f"{_three(value / scales[name])} {name}"


def _three(value: float) -> str:
    magnitude = abs(value)
    return f"{value:.0f}" if magnitude >= 99.95 else f"{value:.1f}" if magnitude >= 9.995 else f"{value:.2f}"


# Three significant digits and the unit that suits the number.
seconds = functools.partial(_scaled, unit="s")  # 12.3 ms, 4.56 s
joules = functools.partial(_scaled, unit="J")  # 1.23 J, 45.6 mJ
flop = functools.partial(_scaled, unit="FLOP")  # 8.18 GFLOP
flop_rate = functools.partial(_scaled, unit="FLOP/s")  # 340 GFLOP/s
byte_rate = functools.partial(_scaled, unit="B/s")  # decimal, as bandwidths are stated: 12.3 GB/s


def duration(value: float) -> str:
    """The duration of a run: 90 s, 6 min, 1 h 20 min."""
    if round(value) < 100:
        return f"{math.ceil(value) if value < 1 else round(value)} s"
    minutes = round(value / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def size(value: float) -> str:
    """Bytes in binary units: 1.23 GiB, or <= 1.23 GiB."""
    if isinstance(value, AtMost):
        return f"<= {size(float(value))}"
    return _scaled(value, "B") if value >= 2**10 else f"{value:.0f} B"


def rate(value: float) -> str:
    """Samples per second: 12.3, 4560, 1.23 M."""
    return f"{_three(value / 1e6)} M" if value >= 1e6 else _three(value)


# The function that formats the numbers of a unit.
SHOW: Mapping[str, Callable[[float], str]] = {"s": seconds, "B": size, "J": joules, "1/s": rate}


def ratio(value: float) -> str:
    """A ratio: 1.23x, or 0.98x to 4.56x if it was disturbed."""
    return span(bounds(value))


def share(value: float) -> str:
    """A share: 93%, or 81% to 120% if it was disturbed."""
    return _range(bounds(value), "{:.0%}".format)


def span(ratios: Iterable[float]) -> str:
    """The range from the least ratio to the greatest: 1.23x to 4.56x; >= 1.23x if the greatest is unknown."""
    return _range(ratios, lambda value: f"{_ratio(value)}x")


def times(ends: Iterable[float]) -> str:
    """The range of ratios for a sentence: 1.23 to 4.56, at least 1.23; empty if both ends are unknown."""
    return _range(ends, _ratio, "at least", "at most", "")


def _ratio(value: float) -> str:
    """A ratio with at least two digits: 1.23, 0.0043."""
    return f"{value:.2f}" if value >= _HUNDREDTHS else f"{value:.2g}"


def _range(
    ends: Iterable[float],
    show: Callable[[float], str],
    at_least: str = ">=",
    at_most: str = "<=",
    unknown: str = "unknown",
) -> str:
    """The range from the least end to the greatest; an end that is 0 or infinite is unknown."""
    least, *_, most = sorted(ends) * 2
    low, high = show(least), show(most)
    if low == high:
        return low
    if math.isinf(most):
        return f"{at_least} {low}" if least else unknown
    return f"{low} to {high}" if least else f"{at_most} {high}"
