"""Inference whose calls can take several batches in turn."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from fwbench.frameworks.contract import Ranks
from fwbench.frameworks.slices import shares
from fwbench.frameworks.torch.networks import called_with
from fwbench.frameworks.torch.program import Inference
from fwbench.models import Model
from fwbench.models.weights import Weights
from fwbench.record.workload import Workload


class RotatingInference(Inference):
    """A forward pass whose calls can take several batches in turn. Arguments are those of `Inference`."""

    def __init__(self, workload: Workload, model: Model, weights: Weights, ranks: Ranks | None = None) -> None:
        super().__init__(workload, model, weights, ranks)
        self._take([self.inputs])

    def _take(self, ring: list[dict[str, Tensor]]) -> None:
        self.ring, self.inputs = ring, ring[0]
        self.arguments = cycle([called_with(inputs) for inputs in ring])

    def rotate(self, batches: Sequence[Mapping[str, NDArray[Any]]]) -> None:
        """The method of `fwbench.frameworks.optional.Rotating`."""
        # Outside of inference mode, as the batch of the build: compiled code distinguishes tensors of that mode.
        with torch.inference_mode(mode=False):
            self._take([self._placed(shares(self.ranks, batch)) for batch in batches])
        self.wait()

    def _held(self) -> list[Tensor]:
        return [*super()._held(), *(tensor for inputs in self.ring[1:] for tensor in inputs.values())]

    def step(self) -> None:
        self.positional, self.named = next(self.arguments)
        super().step()
