"""Data that moves a fake clock."""

import numpy as np

from fwbench.ext.epochs.data import Data


class FakeData(Data):
    """Zeros; every batch is waited for `delay` seconds."""

    def __init__(self, clock, sizes, delay=0.0) -> None:
        super().__init__("fake", 10, {split: np.zeros(size, np.int32) for split, size in sizes.items()}, seed=0)
        self.clock = clock
        self.delay = delay

    def _images(self, split, batch_size, epoch, plan):
        for indices in plan:
            self.clock.advance(self.delay)
            yield np.zeros((len(indices), 2), np.float32)
