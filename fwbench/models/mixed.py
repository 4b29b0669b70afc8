"""The batches of a call that takes a list of sizes in turn, and its outputs as one array.

A server may pad each request to the next of a few sizes, its buckets, so that few programs are compiled. It pads on the
host, before the network is called: so batches are padded when they are drawn, and outputs are cut after all timing.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fwbench.models.inputs import draw
from fwbench.models.model import Model
from fwbench.record.workload import Workload

Batch = dict[str, NDArray[Any]]


def batches(model: Model, workload: Workload) -> list[Batch]:
    """The batches of a call, in order, each from the same seed; padding is zeros.

    As in `together`, the model is as a lane runs it (`fwbench.models.project.complete`).
    """
    drawn = []
    for one, (size, room) in zip(workload.each, _rooms(model, workload), strict=True):
        batch = draw(model.inputs, one.batch_size, one.seed, model.sizes(one.axes))
        for name, array in batch.items():
            padding = ((0, room - size if axis == model.mixed else 0) for axis in model.inputs[name].shape)
            batch[name] = np.pad(array, ((0, 0), *padding))
        drawn.append(batch)
    return drawn


def together(model: Model, workload: Workload, outputs: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """The outputs of a call as one array of shape (batch_size, numbers of a sample in all outputs).

    Padding is cut off every axis that has a bucket's size in each output.
    """
    rooms = _rooms(model, workload)
    padded = [
        all(output.shape[axis] == room for output, (_, room) in zip(outputs, rooms, strict=True))
        for axis in range(1, outputs[0].ndim)
    ]
    return np.concatenate(
        [
            output[:, *(slice(size if cut else None) for cut in padded)].reshape(len(output), -1)
            for output, (size, _) in zip(outputs, rooms, strict=True)
        ],
        axis=1,
    )


def _rooms(model: Model, workload: Workload) -> list[tuple[int, int]]:
    """Each size of the list, and the size that its batch is padded to: the next bucket, or itself."""
    sizes = [model.sizes(one.axes)[model.mixed] for one in workload.each]
    buckets = model.buckets if isinstance(model.buckets, tuple) else ()
    return [(size, min((bucket for bucket in buckets if bucket >= size), default=size)) for size in sizes]
