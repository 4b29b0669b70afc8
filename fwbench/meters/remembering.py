"""Detects a program that remembers outputs: timed calls take several batches in turn, and later calls take new ones."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fwbench.frameworks.contract import Program, Rotating
from fwbench.meters.latency import Clock
from fwbench.models import Model
from fwbench.models.inputs import draw
from fwbench.record.workload import Workload

Batch = Mapping[str, NDArray[Any]]

# Timed calls take `_BATCHES` batches in turn if all but the first have at most `_TURNING` bytes: caches hold them all,
# and no memory peak shows them. After all timing as many unseen batches are drawn, up to the larger size `_UNSEEN`.
_BATCHES = 3
_TURNING, _UNSEEN = 2**20, 2**26
# A program remembers outputs if a call on unseen inputs takes more than `_FACTOR` times as long as a timed call. A
# correct program may find new inputs in slower memory, but it computes in every call. The call must take so long in
# each of `_TRIALS` trials, as other load can make some calls slow.
_FACTOR, _TRIALS = 5.0, 3


def vary(program: Program, model: Model, workload: Workload) -> int:
    """Let the calls of a program take several batches in turn if that costs nothing; return the number of batches."""
    if not isinstance(program, Rotating):
        return 1
    batches = _drawn(model, workload, 0, _TURNING)
    if len(batches) > 1:
        program.rotate(batches)
    return len(batches)


def fix(program: Program, model: Model, workload: Workload) -> None:
    """Let all calls take the batch of the build again, and make one call."""
    assert isinstance(program, Rotating)
    program.rotate([draw(model.inputs, workload.batch_size, workload.seed, model.sizes(workload.axes))])
    program.call_and_wait()


def probe(program: Program, model: Model, workload: Workload, usual: float, clock: Clock) -> dict[str, Any]:
    """Make calls on batches that the program has not seen; a timed call takes the `usual` seconds.

    Returns `follows`: whether outputs differ if inputs do. `remembers`, only if a call on an unseen batch takes far
    longer than a timed call, and than the same call once more: the seconds of these two calls. Empty if the program
    takes one batch alone.
    """
    told: dict[str, Any] = {}
    for trial in range(1, _TRIALS + 1):
        batches = _drawn(model, workload, trial * _BATCHES, _UNSEEN)
        if len(batches) == 1 or not isinstance(program, Rotating):
            return {}
        program.rotate(batches)
        unseen, outputs = _called(program, batches, clock)
        first, *others = batches
        varied = any(not np.array_equal(first[name], array) for other in others for name, array in other.items())
        if varied and all(np.isfinite(output).all() for output in outputs):
            told.setdefault("follows", not all(np.array_equal(outputs[0], output) for output in outputs))
        if unseen[0] <= _FACTOR * usual:
            return told
        seen, _ = _called(program, batches, clock)
        if unseen[0] <= _FACTOR * seen[-1]:
            return told
    return {**told, "remembers": [unseen[0], seen[-1]]}


def _called(program: Program, batches: Sequence[Batch], clock: Clock) -> tuple[list[float], list[NDArray[Any]]]:
    """Seconds of a call on each batch but the first, ascending, and all outputs. The first pays for what ran before."""
    seconds, outputs = [], []
    for _ in batches:
        start = clock()
        program.call_and_wait()
        seconds.append(clock() - start)
        outputs.append(program.output())
    return sorted(seconds[1:]), outputs


def _drawn(model: Model, workload: Workload, first: int, most: int) -> Sequence[Batch]:
    """Draw `_BATCHES` batches if all but one have at most `most` bytes together; else the first alone.

    A program on several devices, for a list of sizes, or in another mode than inference gets one batch alone. A batch's
    number, the first one's being `first`, is added to the workload's seed.
    """
    sizes = model.sizes(workload.axes)
    batches = [draw(model.inputs, workload.batch_size, workload.seed + first, sizes)]
    size = sum(array.nbytes for array in batches[0].values())
    alone = workload.mode != "inference" or workload.devices > 1 or len(workload.each) > 1
    if not alone and size * (_BATCHES - 1) <= most:
        later = range(first + 1, first + _BATCHES)
        batches += [draw(model.inputs, workload.batch_size, workload.seed + number, sizes) for number in later]
    return batches
