"""Sketches of a program outside a worker: the steps between their parts are plain ones."""

from collections.abc import Iterator
from typing import Any

from fwbench.frameworks.contract import Program
from fwbench.meters import sketching


def of_inference(program: Program, precision: str, **given: Any) -> dict[str, Any]:
    """The sketches of `fwbench.meters.sketching.of_inference`."""
    return _driven(program, sketching.of_inference(program, precision, **given))


def of_training(program: Program, weights, precision: str, **given: Any) -> dict[str, Any]:
    """The sketches of `fwbench.meters.sketching.of_training`."""
    return _driven(program, sketching.of_training(program, lambda: weights, precision, **given))


def _driven(program: Program, parts: Iterator[dict[str, Any]]) -> dict[str, Any]:
    assert next(parts) == {}
    program.call_and_wait()
    return next(parts)
