"""Generation: a prompt, and one further step at a depth, of a model with a state that an option names."""

from collections.abc import Callable
from typing import Any

import fwbench


@fwbench.benchmark(modes=["prefill", "decode"])
def test_generation(fwbench_measure: Callable[[], Any]) -> None:
    """A round is one synchronised call; the mode says whether it takes a prompt or a step."""
    fwbench_measure()
