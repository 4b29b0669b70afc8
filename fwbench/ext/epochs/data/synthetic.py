"""Batches in memory, for pure compute."""

from collections.abc import Mapping

import numpy as np

from fwbench.ext.epochs.data.contract import SPLITS, Data, Plan, Samples
from fwbench.models import Model

# At 224 x 224 x 3 these hold 0.46 GB.
SIZES = {"train": 512, "validation": 128, "test": 128}


class Synthetic(Data):
    """Standard-normal samples with uniformly random labels: nothing to learn, so accuracy stays about chance.

    Args:
        sizes: samples in each split, all held in memory.
    """

    def __init__(self, model: Model, seed: int, sizes: Mapping[str, int] = SIZES) -> None:
        # Seeded by the split's place in SPLITS, so that leaving one split out does not change the others.
        rng = {split: np.random.default_rng([seed, SPLITS.index(split)]) for split in sizes}
        self._samples = {
            split: rng[split].standard_normal((size, *model.input_shape), dtype=np.float32)
            for split, size in sizes.items()
        }
        labels = {split: rng[split].integers(model.classes, size=size, dtype=np.int32) for split, size in sizes.items()}
        super().__init__("synthetic", model.classes, labels, seed)

    def _images(self, split: str, batch_size: int, epoch: int, plan: Plan) -> Samples:
        for indices in plan:
            yield self._samples[split][indices]
