"""Quantiles of call times: always the time of a real call, even if calls have two speeds and none between."""

from collections.abc import Sequence


def quantile(samples: Sequence[float], percent: int) -> float:
    """The smallest sample that at least this many percent of the samples do not exceed (Hyndman and Fan's type 1)."""
    # In whole numbers, as no float is exactly 0.95.
    return sorted(samples)[max(0, -(-percent * len(samples) // 100) - 1)]
