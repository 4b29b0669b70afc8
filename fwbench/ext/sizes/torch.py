"""Inference whose calls each take a whole list of batches, of several sizes."""

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils import _pytree as pytree

from fwbench.frameworks.torch.networks import select_output
from fwbench.frameworks.torch.program import Inference
from fwbench.models import Model, mixed
from fwbench.models.weights import Weights
from fwbench.record.workload import Workload


class MixedInference(Inference):
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
