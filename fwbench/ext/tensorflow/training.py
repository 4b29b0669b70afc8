"""Training in TensorFlow: one traced function per step, from the gradients to the learning rate; and evaluation."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fwbench.ext.tensorflow.imported import tf
from fwbench.ext.tensorflow.layers import Tensor, training
from fwbench.ext.tensorflow.optimizers import Adam, Sgd, cosine
from fwbench.ext.tensorflow.parallel import Replicas
from fwbench.ext.tensorflow.program import Traced
from fwbench.frameworks.contract import CompileTimes, Scores, Trainer
from fwbench.frameworks.losses import Loss, loss_of
from fwbench.frameworks.training import FIRST_MOMENT, MOMENTUM, learning_rate, step_targets
from fwbench.models import Model
from fwbench.models.weights import Weights
from fwbench.record.workload import Workload


class TrainStep(Traced, Trainer):
    """An optimizer step on a batch that lies on the device.

    Parameters, running statistics, optimizer state and the step's number are variables, which a step changes in place.

    Args:
        horizon: steps over which the learning rate falls to zero.
        replicas: the processes that each train on their own slice of the batch; None: this one alone. `output` is then
            the loss of this rank's slice; `curve` and `scores` are the whole batch's.
    """

    def __init__(
        self,
        workload: Workload,
        model: Model,
        weights: Weights,
        horizon: int,
        replicas: Replicas | None = None,
    ) -> None:
        # bf16 is mixed precision: weights stay float32.
        mixed = workload.precision == "bf16"
        dtype = tf.float64 if workload.precision == "fp64" else tf.float32
        super().__init__(workload, model, weights, "mixed_bfloat16" if mixed else dtype.name, dtype, replicas)
        self.parts = workload.accumulate
        self.fits = workload.mode == "fit"
        self.seed = seed_of(workload.seed, self.ranks.rank if self.ranks else 0)
        self.rate, self.horizon = learning_rate(workload), horizon
        self.moment = FIRST_MOMENT[workload.optimizer]
        self.settings |= {"optimizer": f"{workload.optimizer}, fused", "mixed_precision": mixed}
        if replicas:
            self.settings["data_parallel"] = "MultiWorkerMirroredStrategy"
        self.criterion = criterion(model)
        with tf.device(self.device):
            parameters = self.network.parameters
            self.optimizer: Adam | Sgd = Adam(parameters) if workload.optimizer == "adam" else Sgd(parameters, MOMENTUM)
            # int64, as a GPU keeps int32 variables on the host.
            self.steps = tf.Variable(0, trainable=False, dtype=tf.int64)
            # The sum of `steps` and `draw` seeds random layers in a step.
            self.draw = tf.Variable(0, trainable=False, dtype=tf.int64)
            wanted = step_targets(workload, model, self._output_shape)
            self.targets: tuple[Any, ...] = () if wanted is None else (self._wanted(wanted),)
        self.function = self.traced(self._together(self._step))
        self.evaluate = self.traced(self._totals)
        self.out: Any = (tf.zeros(()), None)
        self._curve: list[Any] = []
        self._scores: list[Any] = []
        # True if each rank has the first rank's running statistics.
        self._in_step = True

    @property
    def arguments(self) -> tuple[Any, ...]:
        return (self.inputs, self.targets)

    def compile(self) -> CompileTimes:
        if not self.fits:
            return super().compile()
        return CompileTimes(self.trace(), None, "TensorFlow compiles within the first training step")

    def step(self) -> None:
        self.out = self.concrete(self.inputs, self.targets)
        self._in_step = False
        if self.fits:
            self._curve.append(self.out)

    def output(self) -> NDArray[Any]:
        return self.out[0].numpy().reshape(1)

    def restart(self, weights: Mapping[str, NDArray[Any]], draw: int = 0) -> None:
        super().restart(weights, draw)
        with tf.device(self.device):
            for variable in self.optimizer.held:
                variable.assign(tf.zeros_like(variable))
            self.steps.assign(0)
            self.draw.assign(draw)
        self._in_step = True

    def gradients(self) -> Weights:
        moments, scale = [variable.numpy() for variable in self.optimizer.first], np.float32(self.moment)
        return {name: moment * scale for name, moment in self.network.gradients(moments).items()}

    def relocate(self) -> None:
        super().relocate()
        with tf.device(self.device):
            self.targets = tuple(tf.raw_ops.DeepCopy(x=tensor) for tensor in self.targets)

    def _held(self) -> list[Any]:
        return [*super()._held(), *self.optimizer.held, self.steps, self.draw]

    def feed(self, images: NDArray[np.float32], labels: NDArray[np.int32]) -> None:
        with tf.device(self.device):
            self.inputs, self.targets = self._samples(images), (self._wanted(labels),)

    def curve(self) -> list[tuple[float, float]]:
        own = [(float(loss), float(hits)) for loss, hits in self._curve]
        self._curve.clear()
        of_ranks = np.array(self.ranks.gather(own) if self.ranks else [own])
        # Slices are equal, so the mean of their mean losses is the batch's mean loss.
        losses, hits = of_ranks[..., 0].mean(0), of_ranks[..., 1].sum(0)
        return list(zip(losses.tolist(), hits.tolist(), strict=True))

    def score(self, images: NDArray[np.float32], labels: NDArray[np.int32]) -> None:
        with tf.device(self.device):
            self._synchronise()
            self._scores.append(self.evaluate(self._samples(images), self._wanted(labels)))

    def scores(self) -> Scores:
        own = np.array([totals.numpy() for totals in self._scores], np.float64).tolist()
        self._scores.clear()
        of_ranks = self.ranks.gather(own) if self.ranks else [own]
        return Scores.of(totals for totals_of_one in of_ranks for totals in totals_of_one)

    def weights(self) -> Weights:
        self._synchronise()
        return super().weights()

    def _synchronise(self) -> None:
        """Give every rank the first rank's running statistics, which count as the program's."""
        if self.replicas and not self._in_step:
            if running := self.network.running:
                first = tf.function(self._together(self.replicas.first), autograph=False)
                with tf.device(self.device):
                    values = first([variable.read_value() for variable in running])
                    for variable, value in zip(running, values, strict=True):
                        variable.assign(value)
            self._in_step = True

    def _together(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """A call that all ranks make together; without ranks, the call itself."""
        if self.replicas is None:
            return call
        return functools.partial(self.replicas.run, call)

    def _samples(self, images: NDArray[np.float32]) -> dict[str, Any]:
        """This rank's slice of a batch of data for the model's only input."""
        return self._placed(dict.fromkeys(self.network.model.inputs, images))

    def _wanted(self, wanted: NDArray[Any]) -> Tensor:
        """This rank's slice of a batch's targets, on the device."""
        own = tf.convert_to_tensor(self.share(wanted))
        return tf.identity(tf.cast(own, self.dtype) if own.dtype.is_floating else own)

    def _output_shape(self) -> tuple[int, ...]:
        """The shape of the network's output for a sample, from a trace that is then dropped."""
        traced = tf.function(self.network.apply, autograph=False).get_concrete_function(self.inputs)
        return tuple(traced.structured_outputs.shape[1:])

    def _step(self, inputs: dict[str, Tensor], wanted: tuple[Tensor, ...]) -> tuple[Tensor, Tensor | None]:
        seed = tf.stack([tf.constant(self.seed, tf.int32), tf.cast(self.steps + self.draw, tf.int32)])
        if self.parts == 1:
            loss, hits, gradients = self._part(inputs, wanted, seed)
        else:
            loss, hits, gradients = self._accumulated(inputs, wanted, seed)
        if self.replicas:
            gradients = self.replicas.mean(gradients)
        rate = cosine(self.rate, self.horizon, self.steps)
        self.optimizer.apply(gradients, rate, self.steps)
        self.steps.assign_add(1)
        return loss, hits if self.fits else None

    def _accumulated(self, inputs: dict[str, Tensor], wanted: tuple[Tensor, ...], seed: Tensor) -> Any:
        """The sums over all parts of the batch, one after the other."""

        def cut(tensor: Tensor) -> Tensor:
            return tf.reshape(tensor, (self.parts, tensor.shape[0] // self.parts, *tensor.shape[1:]))

        parts = tf.nest.map_structure(cut, (inputs, wanted))

        def add(number: Tensor, totals: Any) -> Any:
            given, targets = tf.nest.map_structure(lambda tensor: tensor[number], parts)
            terms = self._part(given, targets, tf.random.experimental.stateless_fold_in(seed, number))
            return number + 1, tf.nest.map_structure(tf.add, totals, terms)

        zeros = [tf.zeros(one.shape, one.dtype) for one in self.network.parameters]
        _, totals = tf.while_loop(
            lambda number, _: number < self.parts,
            add,
            (tf.constant(0), (tf.zeros((), self.dtype), tf.zeros(()), zeros)),
            maximum_iterations=self.parts,
        )
        return totals

    def _part(self, inputs: dict[str, Tensor], wanted: tuple[Tensor, ...], seed: Tensor) -> Any:
        """This part's share of the mean loss; top-1 hits, counted in mode `fit` alone; the loss's gradients."""
        parameters = self.network.parameters
        with training(seed) as step:
            with tf.GradientTape() as tape:
                output = tf.cast(self.network.apply(inputs, train=True), self.dtype)
                loss = self.criterion(output, *wanted) / self.parts
            gradients = tape.gradient(loss, parameters, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        step.assign()
        hits = tf.zeros(())
        if self.fits:
            hits = tf.reduce_sum(tf.cast(_rank(output, *wanted) < 1, tf.float32))
        return loss, hits, [tf.convert_to_tensor(gradient) for gradient in gradients]

    def _totals(self, inputs: dict[str, Tensor], labels: Tensor) -> Tensor:
        """Sums over samples: loss, top-1 hits, top-5 hits, number of samples; shape (4,)."""
        logits = tf.cast(self.network.apply(inputs), tf.float32)
        counted = labels >= 0
        wanted = tf.maximum(labels, 0)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(wanted, logits)
        rank = _rank(logits, wanted)
        sums = [tf.where(counted, losses, 0.0), *((rank < k) & counted for k in (1, 5)), counted]
        return tf.stack([tf.reduce_sum(tf.cast(part, tf.float32)) for part in sums])


def criterion(model: Model) -> Loss:
    """The model's loss, as `fwbench.frameworks.losses` describes it."""
    cross_entropy = tf.nn.sparse_softmax_cross_entropy_with_logits
    own: dict[str, Loss] = {
        "cross_entropy": lambda output, labels: tf.reduce_mean(cross_entropy(labels, output)),
        "mse": lambda output, wanted: tf.reduce_mean(tf.square(output - wanted)),
    }
    return loss_of(model, "tensorflow", own, tf.convert_to_tensor)


def seed_of(seed: int, rank: int) -> int:
    """The seed of a rank's random layers, an int32. The first rank draws what a single process draws."""
    # The rank's low bits become the high ones, where seeds seldom have any.
    mixed = (seed ^ (rank << 24 | rank >> 8)) % 2**32
    return mixed - 2**32 if mixed >= 2**31 else mixed


def _rank(logits: Tensor, labels: Tensor) -> Tensor:
    """For each sample, the number of classes that score higher than its own."""
    own = tf.gather(logits, labels, axis=1, batch_dims=1)
    return tf.reduce_sum(tf.cast(logits > own[:, None], tf.int32), axis=1)
