"""Training in TensorFlow: one traced function a step, from the gradients to the learning rate; and evaluation."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fwbench.data import Images, Labels
from fwbench.frameworks.contract import CompileTimes, Scores, Trainer
from fwbench.frameworks.tensorflow.imported import tf
from fwbench.frameworks.tensorflow.layers import Tensor, training
from fwbench.frameworks.tensorflow.losses import loss_of
from fwbench.frameworks.tensorflow.optimizers import Adam, Optimizer, Sgd, cosine
from fwbench.frameworks.tensorflow.program import Traced
from fwbench.frameworks.training import MOMENTUM, classifies, learning_rate, targets
from fwbench.models import Model
from fwbench.models.weights import Weights
from fwbench.record.workload import Workload


class TrainStep(Traced, Trainer):
    """An optimizer step on a batch that lies on the device.

    Parameters, running statistics, optimizer state and the step's number are variables, which a step changes in place.
    """

    def __init__(self, workload: Workload, model: Model, weights: Weights, horizon: int) -> None:
        # Weights stay float32 while training; bf16 is mixed precision.
        mixed = workload.precision == "bf16"
        super().__init__(workload, model, weights, "mixed_bfloat16" if mixed else "float32", tf.float32)
        self.parts = workload.accumulate
        self.fits = workload.mode == "fit"
        self.seed = workload.seed
        self.rate, self.horizon = learning_rate(workload), horizon
        self.settings |= {"optimizer": f"{workload.optimizer}, fused", "mixed_precision": mixed}
        self.criterion = loss_of(model)
        with tf.device(self.device):
            parameters = self.network.parameters
            self.optimizer: Optimizer = Adam(parameters) if workload.optimizer == "adam" else Sgd(parameters, MOMENTUM)
            # int64, for a GPU keeps int32 variables on the host.
            self.steps = tf.Variable(0, trainable=False, dtype=tf.int64)
            # Targets that the model declares, and a loss without any, do not depend on the shape of the output.
            known = classifies(model) or bool(model.targets) or isinstance(model.loss, dict)
            wanted = targets(workload, model, (workload.batch_size, model.classes) if known else self._output_shape())
            self.targets: tuple[Any, ...] = () if wanted is None else (tf.identity(tf.convert_to_tensor(wanted)),)
        self.function = self.traced(self._step)
        self.evaluate = self.traced(self._totals)
        self.out: Any = (tf.zeros(()), None)
        self._curve: list[Any] = []
        self._scores: list[Any] = []

    @property
    def arguments(self) -> tuple[Any, ...]:
        return (self.inputs, self.targets)

    def compile(self) -> CompileTimes:
        if not self.fits:
            return super().compile()
        found = self.trace()
        return CompileTimes(found, None, "TensorFlow compiles within the first training step")

    def step(self) -> None:
        self.out = self.concrete(self.inputs, self.targets)
        if self.fits:
            self._curve.append(self.out)

    def output(self) -> NDArray[Any]:
        return self.out[0].numpy().reshape(1)

    def relocate(self) -> None:
        super().relocate()
        with tf.device(self.device):
            self.targets = tuple(tf.raw_ops.DeepCopy(x=tensor) for tensor in self.targets)

    def _held(self) -> list[Any]:
        return [*super()._held(), *self.optimizer.held, self.steps]

    def feed(self, images: Images, labels: Labels) -> None:
        with tf.device(self.device):
            self.inputs, self.targets = self._samples(images), (tf.identity(labels),)

    def curve(self) -> list[tuple[float, float]]:
        steps = [(float(loss), float(hits)) for loss, hits in self._curve]
        self._curve.clear()
        return steps

    def score(self, images: Images, labels: Labels) -> None:
        with tf.device(self.device):
            self._scores.append(self.evaluate(self._samples(images), tf.identity(labels)))

    def scores(self) -> Scores:
        found = Scores.of(np.array([totals.numpy() for totals in self._scores], np.float64).tolist())
        self._scores.clear()
        return found

    def _samples(self, images: Images) -> dict[str, Any]:
        """A batch of data for the model's only input."""
        return self.network.place(dict.fromkeys(self.network.model.inputs, images), tf.float32)

    def _output_shape(self) -> tuple[int, ...]:
        """Of the network, which is traced for it; the trace is forgotten."""
        traced = tf.function(self.network.apply, autograph=False).get_concrete_function(self.inputs)
        return tuple(traced.structured_outputs.shape)

    def _step(self, inputs: dict[str, Tensor], wanted: tuple[Tensor, ...]) -> tuple[Tensor, Tensor | None]:
        seed = tf.stack([tf.constant(self.seed, tf.int32), tf.cast(self.steps, tf.int32)])
        if self.parts == 1:
            loss, hits, gradients = self._part(inputs, wanted, seed)
        else:
            loss, hits, gradients = self._accumulated(inputs, wanted, seed)
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
            found = self._part(given, targets, tf.random.experimental.stateless_fold_in(seed, number))
            return number + 1, tf.nest.map_structure(tf.add, totals, found)

        zeros = [tf.zeros(one.shape, one.dtype) for one in self.network.parameters]
        _, totals = tf.while_loop(
            lambda number, _: number < self.parts,
            add,
            (tf.constant(0), (tf.zeros(()), tf.zeros(()), zeros)),
            maximum_iterations=self.parts,
        )
        return totals

    def _part(self, inputs: dict[str, Tensor], wanted: tuple[Tensor, ...], seed: Tensor) -> Any:
        """This part's share of the mean loss; right answers, counted in mode `fit` alone; the loss's gradients."""
        parameters = self.network.parameters
        with training(seed) as step:
            with tf.GradientTape() as tape:
                output = tf.cast(self.network.apply(inputs, train=True), tf.float32)
                loss = self.criterion(output, *wanted) / self.parts
            gradients = tape.gradient(loss, parameters, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        step.assign()
        hits = tf.zeros(())
        if self.fits:
            hits = tf.reduce_sum(tf.cast(_rank(output, *wanted) < 1, tf.float32))
        return loss, hits, [tf.convert_to_tensor(gradient) for gradient in gradients]

    def _totals(self, inputs: dict[str, Tensor], labels: Tensor) -> Tensor:
        """Sums over samples: loss, hits among the first and the first five, samples; shape (4,)."""
        logits = tf.cast(self.network.apply(inputs), tf.float32)
        counted = labels >= 0
        wanted = tf.maximum(labels, 0)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(wanted, logits)
        rank = _rank(logits, wanted)
        sums = [tf.where(counted, losses, 0.0), *((rank < k) & counted for k in (1, 5)), counted]
        return tf.stack([tf.reduce_sum(tf.cast(part, tf.float32)) for part in sums])


def _rank(logits: Tensor, labels: Tensor) -> Tensor:
    """How many classes score higher than each sample's own."""
    own = tf.gather(logits, labels, axis=1, batch_dims=1)
    return tf.reduce_sum(tf.cast(logits > own[:, None], tf.int32), axis=1)
