"""Training, in every lane: single optimizer steps on a batch that lies on the device, and epochs on data."""

from collections.abc import Callable
from typing import Any

import fwbench


@fwbench.benchmark(modes=["train_step"])
def test_train_step(fwbench_measure: Callable[[], Any]) -> None:
    """A round is one synchronised step."""
    fwbench_measure()


@fwbench.benchmark(modes=["fit"])
def test_fit(fwbench_measure: Callable[[], Any]) -> None:
    """A round is an epoch, the first one with compilation."""
    fwbench_measure()
