"""Training on data on a GPU: batches go to the device through pinned memory, as in XLA's runtime."""

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from fwbench.data import Images
from fwbench.frameworks.slices import share
from fwbench.frameworks.torch.training import TrainStep
from fwbench.frameworks.torch.whole import WholeStep


class StagedTraining(TrainStep):
    """Copies each batch of samples into one pinned tensor, from which the GPU reads it.

    CUDA would copy a batch in pageable memory piece by piece through a pinned buffer of its own. One tensor serves all
    batches, so that pinned memory is allocated once.
    """

    _staged: Tensor | None = None

    def _samples(self, images: Images) -> dict[str, Tensor]:
        return self._placed(dict.fromkeys(self.model.inputs, self._pinned(share(self.ranks, images))))

    def _pinned(self, array: NDArray[Any]) -> NDArray[Any]:
        """Copy an array to the pinned tensor, which the device has read before the next call overwrites it."""
        source = torch.from_numpy(array)
        if self._staged is None or self._staged.shape != source.shape:
            self._staged = torch.empty(source.shape, dtype=source.dtype, pin_memory=True)
        self._staged.copy_(source)
        return self._staged.numpy()


class StagedWholeStep(StagedTraining, WholeStep):
    """`WholeStep` with the pinned tensor of `StagedTraining`."""
