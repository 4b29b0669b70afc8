"""Training in JAX: one compiled program a step, from the gradients to the learning-rate schedule; and evaluation."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from numpy.typing import NDArray

from fwbench.data import Images, Labels
from fwbench.frameworks.contract import Scores, Trainer
from fwbench.frameworks.jax.networks import export_weights
from fwbench.frameworks.jax.program import DTYPE, Compiled, Leaves, copied
from fwbench.frameworks.training import MOMENTUM, learning_rate, targets
from fwbench.models import Model
from fwbench.models.weights import Weights
from fwbench.record.workload import Workload


class TrainStep(Compiled, Trainer):
    """An optimizer step on a batch that lies on the device.

    Parameters, running statistics, optimizer state and the step's number are one flat list of leaves that each call
    takes, gives up (donation) and returns, so nothing of it passes through the host.
    """

    def __init__(self, workload: Workload, model: Model, weights: Weights, horizon: int) -> None:
        # Weights stay float32 while training; bf16 is mixed precision.
        super().__init__(workload, model, weights, jnp.float32, train=True)
        self.compute = DTYPE[workload.precision]
        self.parts = workload.accumulate
        self.fits = workload.mode == "fit"
        rate = optax.cosine_decay_schedule(learning_rate(workload), horizon)
        self.optimizer = optax.adam(rate) if workload.optimizer == "adam" else optax.sgd(rate, momentum=MOMENTUM)
        self.settings |= {"optimizer": workload.optimizer, "mixed_precision": self.compute == jnp.bfloat16}
        self.key = jax.random.key(workload.seed)

        module = self.merge(self.leaves)
        self.graph, parameters, rest = nnx.split(module, nnx.Param, ...)
        module.eval()
        self.evaluated = nnx.graphdef(module)
        # Jitted for the sake of time: one program in place of one for every shape.
        memory = jax.jit(self.optimizer.init)(parameters)
        started = (parameters, rest, memory, jnp.zeros((), jnp.int32))
        leaves, self.state_structure = jax.tree.flatten(started)
        # Copies: two leaves must not share a buffer that is given up.
        self.state: Leaves = jax.device_put(copied(leaves), self.device)
        del self.leaves
        self.labels = jax.device_put(targets(workload, model, (workload.batch_size, model.classes)), self.device)
        self.function = jax.jit(self._step, donate_argnums=0)
        self.arguments = (self.state, self.x, self.labels)
        self.evaluate = jax.jit(self._totals)
        self.out: Any = (jnp.zeros(()), None)
        self._curve: list[Any] = []
        self._scores: list[jax.Array] = []

    def step(self) -> None:
        self.state, self.out = self.compiled(self.state, self.x, self.labels)
        if self.fits:
            self._curve.append(self.out)

    def wait(self) -> None:
        jax.block_until_ready((self.state, self.out, self._scores[-1:]))

    def output(self) -> NDArray[Any]:
        return np.asarray(self.out[0]).reshape(1)

    def weights(self) -> Weights:
        parameters, rest, *_ = self._parts(self.state)
        return export_weights(nnx.merge(self.graph, parameters, rest))

    def relocate(self) -> None:
        self.state, self.x, self.labels = copied((self.state, self.x, self.labels))
        self.arguments = (self.state, self.x, self.labels)

    def feed(self, images: Images, labels: Labels) -> None:
        self.x, self.labels = jax.device_put((images, labels), self.device)

    def curve(self) -> list[tuple[float, float]]:
        steps = [(float(loss), float(hits)) for loss, hits in jax.device_get(self._curve)]
        self._curve.clear()
        return steps

    def score(self, images: Images, labels: Labels) -> None:
        self._scores.append(self.evaluate(self.state, *jax.device_put((images, labels), self.device)))

    def scores(self) -> Scores:
        found = Scores.of(np.asarray(jax.device_get(self._scores), np.float64).tolist())
        self._scores.clear()
        return found

    def _parts(self, state: Leaves) -> Any:
        """Parameters, other state of the network, the optimizer's, and the number of steps made."""
        return jax.tree.unflatten(self.state_structure, state)

    def _step(self, state: Leaves, x: jax.Array, labels: jax.Array) -> tuple[Leaves, Any]:
        parameters, rest, memory, number = self._parts(state)
        key = jax.random.fold_in(self.key, number)
        differentiate = jax.value_and_grad(self._loss, has_aux=True)
        if self.parts == 1:
            (loss, (hits, rest)), gradients = differentiate(parameters, rest, x, labels, key)
        else:

            def part(carry: Any, batch: Any) -> tuple[Any, None]:
                rest, totals = carry
                (loss, (hits, rest)), gradients = differentiate(parameters, rest, *batch)
                return (rest, jax.tree.map(jnp.add, totals, (loss, hits, gradients))), None

            batches = (_split(x, self.parts), _split(labels, self.parts), jax.random.split(key, self.parts))
            zero = jnp.zeros(())
            totals = (zero, zero if self.fits else None, jax.tree.map(jnp.zeros_like, parameters))
            (rest, (loss, hits, gradients)), _ = jax.lax.scan(part, (rest, totals), batches)
        updates, memory = self.optimizer.update(gradients, memory, parameters)
        parameters = optax.apply_updates(parameters, updates)
        return jax.tree.leaves((parameters, rest, memory, number + 1)), (loss, hits)

    def _loss(self, parameters: Any, rest: Any, x: jax.Array, labels: jax.Array, key: jax.Array) -> tuple[Any, Any]:
        """This part's share of the mean loss; right answers, counted in mode `fit` alone; the network's other state."""
        cast = jax.tree.map(lambda leaf: leaf.astype(self.compute), parameters)
        module: Any = nnx.merge(self.graph, cast, rest, copy=True)
        logits = module(x.astype(self.compute), rngs=nnx.Rngs(dropout=key)).astype(jnp.float32)
        loss = optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean() / self.parts
        hits = jnp.sum(_rank(logits, labels) < 1, dtype=jnp.float32) if self.fits else None
        return loss, (hits, nnx.split(module, nnx.Param, ...)[2])

    def _totals(self, state: Leaves, x: jax.Array, labels: jax.Array) -> jax.Array:
        """Sums over samples: loss, hits among the first and the first five, samples; shape (4,)."""
        parameters, rest, *_ = self._parts(state)
        cast = jax.tree.map(lambda leaf: leaf.astype(self.compute), parameters)
        module: Any = nnx.merge(self.evaluated, cast, rest)
        logits = module(x.astype(self.compute)).astype(jnp.float32)
        counted = labels >= 0
        wanted = jnp.maximum(labels, 0)
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, wanted)
        rank = _rank(logits, wanted)
        sums = [jnp.where(counted, losses, 0.0).sum(), *(((rank < k) & counted).sum() for k in (1, 5)), counted.sum()]
        return jnp.stack([part.astype(jnp.float32) for part in sums])


def _rank(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """How many classes score higher than each sample's own."""
    return jnp.sum(logits > jnp.take_along_axis(logits, labels[:, None], axis=1), axis=1)


def _split(batch: jax.Array, parts: int) -> jax.Array:
    return batch.reshape(parts, -1, *batch.shape[1:])
