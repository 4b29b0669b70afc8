"""Batches in memory, for pure compute."""

import numpy as np
from numpy.typing import NDArray

from fwbench.models import Model


def batch(model: Model, batch_size: int, seed: int) -> NDArray[np.float32]:
    """Standard-normal samples, as normalised images are.

    Returns:
        float32 of shape (batch_size, *model.input_shape): images are batch x height x width x channels.
    """
    rng = np.random.default_rng([seed, batch_size])
    return rng.standard_normal((batch_size, *model.input_shape), dtype=np.float32)
