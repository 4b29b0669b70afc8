"""Training in PyTorch: forward, loss, backward, optimizer, learning-rate schedule; and evaluation."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from fwbench.frameworks.contract import CompileTimes, Ranks, Scores, Trainer
from fwbench.frameworks.faults import faults
from fwbench.frameworks.losses import Loss, loss_of
from fwbench.frameworks.torch.networks import called_with, place, select_output
from fwbench.frameworks.torch.parallel import apart, averaging, first, summed
from fwbench.frameworks.torch.program import Placed
from fwbench.frameworks.torch.rematerialise import rematerialise
from fwbench.frameworks.training import FIRST_MOMENT, MOMENTUM, cosine, learning_rate, step_targets
from fwbench.models import Model
from fwbench.models.weights import Lazy, Weights
from fwbench.record.fingerprint import Fingerprint
from fwbench.record.workload import Workload


class TrainStep(Placed, Trainer):
    """An optimizer step on a batch that lies on the device.

    Args:
        horizon: steps over which the learning rate falls to zero.
        ranks: the processes that each train on their own slice of the batch; None: this one alone. `output` is then
            the loss of this rank's slice; `curve` and `scores` are the whole batch's.
    """

    communicates = True

    def __init__(
        self,
        workload: Workload,
        model: Model,
        weights: Weights,
        horizon: int,
        ranks: Ranks | None = None,
    ) -> None:
        # bf16 is mixed precision: weights stay float32.
        dtype = torch.float64 if workload.precision == "fp64" else torch.float32
        super().__init__(workload, model, weights, dtype, ranks)
        self.mixed = workload.precision == "bf16"
        self.parts = workload.accumulate
        self.fits = workload.mode == "fit"
        self.staged = self.fits and workload.device == "gpu"
        self._pinned: Tensor | None = None
        if workload.remat:
            rematerialise(self.module, compiled=self.compiles)
        parameters = [parameter for parameter in self.module.parameters() if parameter.requires_grad]
        rate = learning_rate(workload)
        self.optimizer: torch.optim.Optimizer
        if workload.optimizer == "adam":
            self.optimizer = torch.optim.Adam(parameters, lr=rate, fused=True)
        else:
            self.optimizer = torch.optim.SGD(parameters, lr=rate, momentum=MOMENTUM, fused=True)
        self.horizon = horizon
        # On the host, as the device's memory is measured.
        self._first = {name: tensor.detach().cpu().clone() for name, tensor in self.module.named_buffers()}
        self._schedule()
        self.settings |= {"optimizer": f"{workload.optimizer}, fused", "mixed_precision": self.mixed}
        self.module.train()
        self.network = averaging(self.module, ranks, self.device)
        if ranks:
            compiled = ", compiled in parts around its communication" if self.compiles else ""
            self.settings["data_parallel"] = f"DistributedDataParallel{compiled}"
        self.criterion = criterion(model)
        wanted = step_targets(workload, model, self._output_shape)
        self.targets: tuple[Tensor, ...] = () if wanted is None else (self._wanted(wanted),)
        # Each rank draws its own dropout; the first rank draws that of a single process.
        self.seed = workload.seed + ((ranks.rank if ranks else 0) << 32)
        self.moment = FIRST_MOMENT[workload.optimizer]
        torch.manual_seed(self.seed)
        self.call: Callable[..., tuple[Tensor, Tensor]] = self._compiled(self._loss)
        self.evaluate = self._compiled(self._totals)
        # A CUDA graph writes each part's gradients to the same memory, so parts are summed in tensors of our own.
        self.own_gradients = self.parts > 1 and self.may_replay
        if self.own_gradients:
            for parameter in parameters:
                parameter.grad = torch.zeros_like(parameter)
        self.loss = torch.zeros(())
        self._curve: list[Tensor] = []
        self._scores: list[Tensor] = []

    def compile(self) -> CompileTimes:
        if self.fits and self.compiles:
            return CompileTimes(None, None, "torch.compile compiles within the first training step")
        return super().compile()

    def step(self) -> None:
        parts = []
        batch = (*self.inputs.values(), *self.targets)
        cut = list(zip(*(tensor.chunk(self.parts) for tensor in batch), strict=True))
        for number, part in enumerate(cut, 1):
            try:
                # Each of several ranks first adds up its parts' gradients; the ranks exchange the sums once.
                if number < self.parts:
                    with apart(self.network):
                        loss, hits = self.call(*part)
                        loss.backward()
                else:
                    loss, hits = self.call(*part)
                    loss.backward()
            except Exception as error:
                self._blame(error, self._gradients, *part)
                raise
            if self.parts > 1 or self.fits:
                # A copy, as with CUDA graphs the next call writes to the same memory.
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

    def restart(self, weights: Mapping[str, NDArray[Any]], draw: int = 0) -> None:
        self._switch(train=True)
        # Whatever else a step has changed, such as a moving average.
        for name, tensor in self.module.named_buffers():
            if name in self._first:
                tensor.data.copy_(self._first[name])
        super().restart(weights, draw)
        for state in self.optimizer.state.values():
            for tensor in state.values():
                tensor.zero_()
        self._schedule()
        torch.manual_seed(self.seed + (draw << 16))

    def gradients(self) -> Mapping[str, NDArray[Any]]:
        parameters = {
            name: parameter for name, parameter in self.module.named_parameters() if parameter.is_floating_point()
        }

        def gradient(name: str) -> NDArray[Any]:
            parameter = parameters[name]
            state = self.optimizer.state.get(parameter, {})
            # A frozen parameter has no moment.
            moment = state.get("exp_avg", state.get("momentum_buffer"))
            if moment is None:
                return np.zeros(parameter.shape, np.float32)
            return (moment.float() * self.moment).cpu().contiguous().numpy()

        return Lazy(parameters, gradient)

    def _schedule(self) -> None:
        """Start the learning rate's schedule."""
        horizon = self.horizon
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: cosine(step, horizon))

    def _held(self) -> list[Tensor]:
        memory = [tensor for state in self.optimizer.state.values() for tensor in state.values()]
        return [*super()._held(), *self.targets, *memory]

    def fingerprint(self) -> Fingerprint:
        # The last call may have been an evaluation.
        self._switch(train=True)
        return super().fingerprint()

    def feed(self, images: NDArray[np.float32], labels: NDArray[np.int32]) -> None:
        self._switch(train=True)
        self.inputs, self.targets = self._samples(images), (self._wanted(labels),)

    def curve(self) -> list[tuple[float, float]]:
        ranks = self.ranks.size if self.ranks else 1
        steps, self._curve = self._curve, []
        return [(loss / ranks, hits) for loss, hits in summed(self.ranks, torch.stack(steps)).tolist()]

    def score(self, images: NDArray[np.float32], labels: NDArray[np.int32]) -> None:
        self._switch(train=False)
        with torch.no_grad():
            (x,) = self._samples(images).values()
            self._scores.append(self.evaluate(x, self._wanted(labels)).clone())

    def scores(self) -> Scores:
        totals, self._scores = self._scores, []
        return Scores.of(summed(self.ranks, torch.stack(totals)).tolist())

    def _switch(self, *, train: bool) -> None:
        # Only when the mode changes: a switch visits every layer, and each step would pay for that.
        if self.module.training != train:
            self.module.train(train)
            if not train:
                # DDP's forward pass would begin by sending buffers, and the evaluation has nothing to exchange.
                first(self.ranks, self.module.buffers())

    def _samples(self, images: NDArray[np.float32]) -> dict[str, Tensor]:
        """A batch of data for the model's only input.

        A GPU reads it from one pinned tensor that serves all batches, as in XLA's runtime. CUDA would copy pageable
        memory piece by piece through a pinned buffer of its own.
        """
        own = self.share(images)
        if self.staged:
            source = torch.from_numpy(own)
            if self._pinned is None or self._pinned.shape != source.shape:
                self._pinned = torch.empty(source.shape, dtype=source.dtype, pin_memory=True)
            # By now the device has read the previous batch.
            own = self._pinned.copy_(source).numpy()
        return self._on_device(dict.fromkeys(self.model.inputs, own))

    def _wanted(self, targets: NDArray[Any]) -> Tensor:
        """A batch's targets on the device, or this rank's slice of them."""
        return place(self.share(targets), self.device, self.dtype)

    def _loss(self, *part: Tensor, network: Callable[..., Any] | None = None) -> tuple[Tensor, Tensor]:
        """This part's share of the batch's mean loss; top-1 hits, counted in mode `fit` alone.

        Args:
            network: the network to call in place of the program's own.
        """
        given, wanted = part[: len(self.inputs)], part[len(self.inputs) :]
        output = self._output(self.network if network is None else network, *given)
        loss = self.criterion(output, *wanted) / self.parts
        hits = (_rank(output.detach(), *wanted) < 1).float().sum() if self.fits else loss.detach()
        return loss, hits

    def _gradients(self, *part: Tensor) -> None:
        # Serves to locate a fault, which other ranks may not have met, so it does not communicate.
        with apart(self.network):
            loss, _ = self.call(*part)
            loss.backward()

    def _totals(self, x: Tensor, labels: Tensor) -> Tensor:
        """Sums over samples: loss, top-1 hits, top-5 hits, number of samples; float64 of shape (4,)."""
        logits = self._output(self.module, x)
        counted = labels >= 0
        loss = functional.cross_entropy(logits, labels, ignore_index=-1, reduction="sum")
        rank = _rank(logits, labels.clamp(min=0))
        hits = [((rank < k) & counted).sum() for k in (1, 5)]
        return torch.stack([loss, *hits, counted.sum()]).double()

    def _output(self, network: Callable[..., Any], *given: Tensor) -> Tensor:
        positional, named = called_with(dict(zip(self.inputs, given, strict=True)))
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.mixed):
            returned = network(*positional, **named)
        return select_output(self.model, returned, len(given[0])).to(self.dtype)

    def _output_shape(self) -> tuple[int, ...]:
        """The shape of the output for a sample, by one forward pass in training mode that leaves all buffers unchanged.

        It runs on the device. Fake tensors and the meta device cannot follow a network whose Python reads numbers, and
        fake tensors would fill the caches of the compiler that is timed later. The pass leaves nothing warm: cuDNN does
        not choose algorithms, and the GPU's memory is released.
        """
        benchmark, torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark, False
        before = [(buffer, buffer.clone()) for buffer in self.module.buffers()]
        with faults(f"the network of {self.model.name}"), torch.no_grad():
            shape = tuple(self._output(self.module, *self.inputs.values()).shape[1:])
            for buffer, kept in before:
                buffer.copy_(kept)
        torch.backends.cudnn.benchmark = benchmark
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        return shape


def criterion(model: Model) -> Callable[..., Tensor]:
    """The model's loss, as `fwbench.frameworks.losses` describes it."""
    own: dict[str, Loss] = {
        "cross_entropy": lambda output, labels: functional.cross_entropy(output.flatten(0, -2), labels.flatten()),
        "mse": functional.mse_loss,
    }
    # `Placed._blame` finds faults of the loss with those of the network.
    return loss_of(model, "torch", own, lambda value: value if isinstance(value, Tensor) else None, blame=False)


def _rank(logits: Tensor, labels: Tensor) -> Tensor:
    """For each sample, the number of classes that score higher than its own."""
    return (logits > logits.gather(1, labels[:, None])).sum(1)
