"""A program that remembers its outputs: timed calls meet several batches, and a call on a new one shows it."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fwbench.frameworks.contract import Program
from fwbench.frameworks.optional import Rotating
from fwbench.meters.latency import Clock
from fwbench.models import Model
from fwbench.models.inputs import draw
from fwbench.record.workload import Workload

Batch = Mapping[str, NDArray[Any]]

# Timed calls take so many batches in turn if the further ones are no larger than this: caches hold them all, and no
# peak of memory shows them. As many are drawn that no call has met, up to a larger size, when all is timed.
_BATCHES = 3
_TURNING, _UNSEEN = 2**20, 2**26
# A call on inputs that the program has not met is that of a program that remembers if it takes so many times as long.
# A right program may find new inputs in slower memory, but computes all the same.
# It must do so in each of some trials, as other load can make some calls slow.
_FACTOR, _TRIALS = 5.0, 3


def vary(program: Program, model: Model, workload: Workload) -> int:
    """Let the calls of a program take several batches in turn where that costs nothing; return how many they take."""
    if not isinstance(program, Rotating):
        return 1
    batches = _drawn(model, workload, 0, _TURNING)
    if len(batches) > 1:
        program.rotate(batches)
    return len(batches)


def fix(program: Program, model: Model, workload: Workload) -> None:
    """Let all calls take the batch of the build again, and make one."""
    assert isinstance(program, Rotating)
    program.rotate([draw(model.inputs, workload.batch_size, workload.seed, model.sizes(workload.axes))])
    program.call_and_wait()


def probe(program: Program, model: Model, workload: Workload, usual: float, clock: Clock) -> dict[str, Any]:
    """Make calls on batches that the program has not met.

    Args:
        usual: seconds of a timed call.

    Returns:
        `follows`: whether its outputs differ where its inputs do; `remembers`, if such a call takes far longer than a
        timed one, and than the same call once more: seconds of both. Neither where the lane has one batch alone.
    """
    told: dict[str, Any] = {}
    for trial in range(1, _TRIALS + 1):
        batches = _drawn(model, workload, trial * _BATCHES, _UNSEEN)
        if len(batches) == 1 or not isinstance(program, Rotating):
            return {}
        program.rotate(batches)
        unseen, outputs = _called(program, batches, clock)
        varied = len({_digest(*batch.values()) for batch in batches}) > 1
        if varied and all(np.isfinite(output).all() for output in outputs):
            told.setdefault("follows", len(set(map(_digest, outputs))) > 1)
        if unseen[0] <= _FACTOR * usual:
            return told
        seen, _ = _called(program, batches, clock)
        if unseen[0] <= _FACTOR * seen[-1]:
            return told
    return {**told, "remembers": [unseen[0], seen[-1]]}


def _called(program: Program, batches: Sequence[Batch], clock: Clock) -> tuple[list[float], list[NDArray[Any]]]:
    """Seconds of a call on each batch, ascending, and the outputs; the first call also pays for what ran before it."""
    seconds, outputs = [], []
    for _ in batches:
        start = clock()
        program.call_and_wait()
        seconds.append(clock() - start)
        outputs.append(program.output())
    return sorted(seconds[1:]), outputs


def _drawn(model: Model, workload: Workload, first: int, most: int) -> Sequence[Batch]:
    """Batches with these numbers, if all but one together have at most so many bytes; else the first alone.

    A program of several devices, or one that trains, has the batch of its build alone.
    """
    sizes = model.sizes(workload.axes)
    batches = [draw(model.inputs, workload.batch_size, workload.seed + first, sizes)]
    size = sum(array.nbytes for array in batches[0].values())
    if workload.mode == "inference" and workload.devices == 1 and size * (_BATCHES - 1) <= most:
        later = range(first + 1, first + _BATCHES)
        batches += [draw(model.inputs, workload.batch_size, workload.seed + number, sizes) for number in later]
    return batches


def _digest(*arrays: NDArray[Any]) -> bytes:
    sha = hashlib.blake2b()
    for array in arrays:
        sha.update(array.tobytes())
    return sha.digest()
