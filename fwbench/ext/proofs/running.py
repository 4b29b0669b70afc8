"""Explains a difference in running statistics by their numbers: another momentum, or another variance estimate."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fwbench.ext.proofs.case import Side
from fwbench.ext.proofs.errors import BOUNDS, relative_l2

# Numbers that are computed from shares count as equal within this relative difference.
_EXACT = 1e-6


def why(reference: Side, candidate: Side, names: tuple[str, str], tolerance: str) -> str:
    """A sentence on the cause of a difference in two sides' statistics; empty if neither cause explains it.

    Args:
        names: the reference's framework and the candidate's.
        tolerance: the argument `tolerance` that would admit the difference.
    """
    cause = _cause(reference, candidate)
    if cause is None:
        return ""
    one, other = names
    times, biased = cause
    if times == 1:
        return (
            f"The running variances differ because {other} updates them with the biased estimate of a batch's "
            f"variance, as Flax's own BatchNorm does, and {one} with the unbiased one, n / (n - 1) times as large, as "
            "PyTorch's does: use fwbench.frameworks.jax.layers.BatchNorm, which does as PyTorch does, or accept it "
            f"with {tolerance}"
        )
    too = f"; {other} also takes the biased estimate of a batch's variance, as Flax's own BatchNorm does"
    return (
        f"The running statistics differ because {other} moves them {times:.4g} times as far towards a batch's as "
        f"{one} (PyTorch's `momentum` is the share of the batch, Flax's and Keras's that of the old value, so "
        f"PyTorch's 0.1 is their 0.9){too if biased else ''}"
    )


def _cause(reference: Side, candidate: Side) -> tuple[float, bool] | None:
    """The candidate's movement over the reference's, and whether its variances are biased estimates; None: unknown."""
    actual, expected = candidate.forward().statistics, reference.forward().statistics
    before = reference.case.weights({name: array.shape for name, array in expected.items()})
    differing = [name for name in expected if relative_l2(actual[name], expected[name]) > BOUNDS["statistics"]]
    means = [name for name in differing if not name.endswith("running_var")]
    shares = {name: _share(actual[name], expected[name], before[name]) for name in differing}
    if any(share is None for share in shares.values()):
        return None
    known = {name: share for name, share in shares.items() if share is not None}
    times = known[means[0]] if means else 1.0
    if any(not math.isclose(known[name], times, rel_tol=_EXACT) for name in means):
        return None
    estimates = [known[name] / times for name in differing if name not in means]
    biased = [estimate for estimate in estimates if not math.isclose(estimate, 1, rel_tol=_EXACT)]
    if any(not 0 < estimate < 1 or not _is_whole(1 / (1 - estimate)) for estimate in biased):
        return None
    return (times, bool(biased)) if means or biased else None


def _share(actual: NDArray[Any], expected: NDArray[Any], before: NDArray[Any]) -> float | None:
    """The reference's share in the candidate's statistic; None if that is no mix of the reference's and the old one.

    Both sides mix the old value with a batch's estimate. A biased estimate of a variance is (n - 1) / n times the
    unbiased one, which makes the share smaller by this factor. n, the batch size times the images' size, is a whole
    number.
    """
    parts = np.stack([expected.ravel(), before.ravel()], axis=1)
    # A mix with two shares fits any two numbers, and shows nothing.
    if len(parts) < 3 or not (np.isfinite(actual).all() and np.isfinite(parts).all()):
        return None
    (share, rest), *_ = np.linalg.lstsq(parts, actual.ravel(), rcond=None)
    mixed = relative_l2(parts @ (share, rest), actual.ravel()) <= BOUNDS["statistics"]
    return float(share) if mixed and share > _EXACT else None


def _is_whole(number: float) -> bool:
    return abs(number / round(number) - 1) <= _EXACT
