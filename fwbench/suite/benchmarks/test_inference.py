"""Inference: a forward pass, in every lane, for every model and batch size of the run's profile or study."""

from collections.abc import Callable
from typing import Any

import fwbench


@fwbench.benchmark(modes=["inference"])
def test_inference(fwbench_measure: Callable[[], Any]) -> None:
    """A round is one synchronised call."""
    fwbench_measure()
