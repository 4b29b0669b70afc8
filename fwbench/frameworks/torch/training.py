"""A training step in PyTorch: forward, loss, backward, optimizer, learning-rate schedule."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from fwbench.frameworks.torch.program import Placed
from fwbench.models.weights import Weights
from fwbench.training import HORIZON, LEARNING_RATE, MOMENTUM, cosine, labels
from fwbench.workload import Workload


class TrainStep(Placed):
    """One step on a batch that lies on the device; `output` is its loss."""

    def __init__(self, workload: Workload, weights: Weights) -> None:
        # Weights stay float32 while training; bf16 is mixed precision.
        super().__init__(workload, weights, torch.float32)
        self.module.train()
        torch.manual_seed(workload.seed)
        self.mixed = workload.precision == "bf16"
        self.labels = torch.from_numpy(labels(workload)).long().to(self.device)
        parameters = list(self.module.parameters())
        rate = LEARNING_RATE[workload.optimizer]
        self.optimizer: torch.optim.Optimizer
        if workload.optimizer == "adam":
            self.optimizer = torch.optim.Adam(parameters, lr=rate, fused=True)
        else:
            self.optimizer = torch.optim.SGD(parameters, lr=rate, momentum=MOMENTUM, fused=True)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: cosine(step, HORIZON))
        self.settings |= {"optimizer": f"{workload.optimizer}, fused", "mixed_precision": self.mixed}
        self.call = self._compiled(self._loss)
        self.loss = torch.zeros(())

    def _loss(self, x: Tensor) -> Tensor:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.mixed):
            logits = self.module(x)
        return functional.cross_entropy(logits.float(), self.labels)

    def step(self) -> None:
        loss = self.call(self.x)
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.loss = loss.detach()

    def output(self) -> NDArray[Any]:
        return np.array([self.loss.item()])
