"""Quantiles of calls: always the time of a call that was made, also where calls have two speeds and none between."""

from collections.abc import Sequence


def quantile(samples: Sequence[float], percent: int) -> float:
    """The shortest of the samples that at least so many percent do not exceed (Hyndman and Fan's type 1)."""
    # In whole numbers, as 0.95 is none of a computer's.
    return sorted(samples)[max(0, -(-percent * len(samples) // 100) - 1)]
