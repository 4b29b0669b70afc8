"""Inference on several batches: calls that take them in turn, and calls that each take a whole list of them."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils import _pytree as pytree

from fwbench.frameworks.contract import Ranks
from fwbench.frameworks.slices import shares
from fwbench.frameworks.torch.networks import called_with, select_output
from fwbench.frameworks.torch.program import Inference
from fwbench.models import Model, mixed
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


class MixedInference(RotatingInference):
    """A forward pass over each batch of a list of sizes, in order. `torch.compile` keeps its default dynamic shapes."""

    def __init__(self, workload: Workload, model: Model, weights: Weights) -> None:
        super().__init__(workload, model, weights)
        self.workload = workload
        self._take([self._placed(batch) for batch in mixed.batches(model, workload)])

    def step(self) -> None:
        all_returned = []
        for _ in self.ring:
            super().step()
            # The next call of a CUDA graph overwrites what this one has returned.
            copied = pytree.tree_map_only(Tensor, torch.clone, self.returned) if self.may_replay else self.returned
            all_returned.append(copied)
        self.all_returned = all_returned

    def output(self) -> NDArray[Any]:
        outputs = [select_output(self.model, returned, self.batch_size) for returned in self.all_returned]
        return mixed.together(self.model, self.workload, [output.float().cpu().numpy() for output in outputs])
