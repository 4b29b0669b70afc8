"""Training in PyTorch: forward, loss, backward, optimizer, learning-rate schedule; and evaluation."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from fwbench.data import Images, Labels
from fwbench.frameworks.contract import CompileTimes, Scores, Trainer
from fwbench.frameworks.torch.program import Placed
from fwbench.frameworks.torch.rematerialise import rematerialise
from fwbench.frameworks.training import MOMENTUM, cosine, learning_rate, targets
from fwbench.models import Model
from fwbench.models.weights import Weights
from fwbench.record.fingerprint import Fingerprint
from fwbench.record.workload import Workload


class TrainStep(Placed, Trainer):
    """An optimizer step on a batch that lies on the device."""

    def __init__(self, workload: Workload, model: Model, weights: Weights, horizon: int) -> None:
        # Weights stay float32 while training; bf16 is mixed precision.
        super().__init__(workload, model, weights, torch.float32)
        torch.manual_seed(workload.seed)
        self.mixed = workload.precision == "bf16"
        self.parts = workload.accumulate
        self.fits = workload.mode == "fit"
        if workload.remat:
            rematerialise(self.module, compiled=self.lane == "torch-compile")
        parameters = list(self.module.parameters())
        rate = learning_rate(workload)
        self.optimizer: torch.optim.Optimizer
        if workload.optimizer == "adam":
            self.optimizer = torch.optim.Adam(parameters, lr=rate, fused=True)
        else:
            self.optimizer = torch.optim.SGD(parameters, lr=rate, momentum=MOMENTUM, fused=True)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: cosine(step, horizon))
        self.settings |= {"optimizer": f"{workload.optimizer}, fused", "mixed_precision": self.mixed}
        self.module.train()
        self.labels = (
            torch.from_numpy(targets(workload, model, (workload.batch_size, model.classes))).long().to(self.device)
        )
        self.call = self._compiled(self._loss)
        self.evaluate = self._compiled(self._totals)
        # A CUDA graph's gradients lie where the next part's will: parts are added to tensors of our own.
        self.own_gradients = self.parts > 1 and self.replays
        if self.own_gradients:
            for parameter in parameters:
                parameter.grad = torch.zeros_like(parameter)
        self.loss = torch.zeros(())
        self._curve: list[Tensor] = []
        self._scores: list[Tensor] = []

    def compile(self) -> CompileTimes:
        if self.fits and self.lane == "torch-compile":
            return CompileTimes(None, None, "torch.compile compiles within the first training step")
        return super().compile()

    def step(self) -> None:
        parts = []
        for x, wanted in zip(self.x.chunk(self.parts), self.labels.chunk(self.parts), strict=True):
            loss, hits = self.call(x, wanted)
            loss.backward()
            if self.parts > 1 or self.fits:
                # A copy: with CUDA graphs the next call writes to the same memory.
                parts.append(torch.stack([loss.detach(), hits]))
            self.loss = loss.detach()
        self.optimizer.step()
        self.schedule.step()
        self.optimizer.zero_grad(set_to_none=not self.own_gradients)
        if parts:
            total = torch.stack(parts).sum(0)
            self.loss = total[0]
            if self.fits:
                self._curve.append(total)

    def output(self) -> NDArray[Any]:
        return np.array([self.loss.item()])

    def _held(self) -> list[Tensor]:
        memory = [tensor for state in self.optimizer.state.values() for tensor in state.values()]
        return [*super()._held(), self.labels, *memory]

    def fingerprint(self) -> Fingerprint:
        # An evaluation may have come last.
        self._switch(train=True)
        return super().fingerprint()

    def feed(self, images: Images, labels: Labels) -> None:
        self._switch(train=True)
        self.x, self.labels = self._placed(images), self._placed_labels(labels)

    def curve(self) -> list[tuple[float, float]]:
        steps = [(loss, hits) for loss, hits in torch.stack(self._curve).tolist()]
        self._curve.clear()
        return steps

    def score(self, images: Images, labels: Labels) -> None:
        self._switch(train=False)
        with torch.no_grad():
            self._scores.append(self.evaluate(self._placed(images), self._placed_labels(labels)).clone())

    def scores(self) -> Scores:
        found = Scores.of(torch.stack(self._scores).tolist())
        self._scores.clear()
        return found

    def _switch(self, *, train: bool) -> None:
        # Only when it changes: it walks through every layer, and would be paid for at every step.
        if self.module.training != train:
            self.module.train(train)

    def _loss(self, x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """This part's share of the batch's mean loss; right answers, counted in mode `fit` alone."""
        logits = self._logits(x)
        loss = functional.cross_entropy(logits, labels) / self.parts
        hits = (_rank(logits.detach(), labels) < 1).float().sum() if self.fits else loss.detach()
        return loss, hits

    def _totals(self, x: Tensor, labels: Tensor) -> Tensor:
        """Sums over samples: loss, hits among the first and the first five, samples; float64 of shape (4,)."""
        logits = self._logits(x)
        counted = labels >= 0
        loss = functional.cross_entropy(logits, labels, ignore_index=-1, reduction="sum")
        rank = _rank(logits, labels.clamp(min=0))
        hits = [((rank < k) & counted).sum() for k in (1, 5)]
        return torch.stack([loss, *hits, counted.sum()]).double()

    def _logits(self, x: Tensor) -> Tensor:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.mixed):
            logits: Tensor = self.module(x)
        return logits.float()

    def _placed_labels(self, labels: Labels) -> Tensor:
        return torch.from_numpy(labels).to(self.device).long()


def _rank(logits: Tensor, labels: Tensor) -> Tensor:
    """How many classes score higher than each sample's own."""
    return (logits > logits.gather(1, labels[:, None])).sum(1)
