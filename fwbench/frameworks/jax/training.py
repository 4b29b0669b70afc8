"""Training in JAX: one compiled program per step, from the gradients to the learning-rate schedule; and evaluation."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpy.typing import NDArray

from fwbench.frameworks.contract import Ranks, Scores, Trainer
from fwbench.frameworks.jax.flops import counted
from fwbench.frameworks.jax.program import DTYPE, Compiled, Leaves, cast
from fwbench.frameworks.losses import Loss, loss_of
from fwbench.frameworks.training import FIRST_MOMENT, MOMENTUM, learning_rate, step_targets
from fwbench.models import Model
from fwbench.models.weights import Lazy, Weights, is_statistic
from fwbench.record.workload import Workload

# The states of optax that hold a first moment.
_MOMENTS = (optax.ScaleByAdamState, optax.TraceState)


class TrainStep(Compiled, Trainer):
    """An optimizer step on a batch that lies on the device.

    Parameters, running statistics, optimizer state and the step's number are one flat list of leaves that each call
    takes, donates and returns, so no leaf passes through the host.

    Each of several devices computes its slice's gradients, and makes the optimizer's step with the mean of all slices'
    gradients. Batch normalisation uses each device's own statistics; the running statistics, and all other state of a
    network, are the first device's. Loss, `curve` and `scores` are those of the whole batch.

    Args:
        horizon: steps over which the learning rate falls to zero.
    """

    state: Leaves

    def __init__(
        self,
        workload: Workload,
        model: Model,
        weights: Weights,
        horizon: int,
        ranks: Ranks | None = None,
    ) -> None:
        # bf16 is mixed precision: weights stay float32.
        dtype = jnp.float64 if workload.precision == "fp64" else jnp.float32
        super().__init__(workload, model, weights, dtype, ranks)
        self.compute = DTYPE[workload.precision]
        self.parts = workload.accumulate
        self.fits = workload.mode == "fit"
        rate = optax.cosine_decay_schedule(learning_rate(workload), horizon)
        self.optimizer = optax.adam(rate) if workload.optimizer == "adam" else optax.sgd(rate, momentum=MOMENTUM)
        self.settings |= {"optimizer": workload.optimizer, "mixed_precision": self.compute == jnp.bfloat16}
        self.key = jax.random.key(workload.seed)
        self.criterion = criterion(model)

        parameters, rest = self._divided(self.devices.own(self.leaves))
        # Jitted to save time: one program instead of one for every shape.
        memory = jax.jit(self.optimizer.init)(parameters)
        self.moment = FIRST_MOMENT[workload.optimizer]
        self._begin(parameters, rest, memory, np.int32(0))
        wanted = step_targets(workload, model, self._output_shape)
        del self.leaves
        self.targets: tuple[jax.Array, ...] = () if wanted is None else (self._wanted(wanted),)
        self.function = jax.jit(self.devices.spread(self._step, "same"), donate_argnums=0)
        self.evaluate = jax.jit(self.devices.spread(self._totals, "same"))
        self.out: Any = (jnp.zeros(()), None)
        self._curve: list[Any] = []
        self._scores: list[jax.Array] = []

    @property
    def arguments(self) -> tuple[Any, ...]:
        return self.state, self.inputs, self.targets

    def step(self) -> None:
        self.state, self.out = self.compiled(self.state, self.inputs, self.targets)
        if self.fits:
            self._curve.append(self.out)

    def wait(self) -> None:
        # Wait for the loss alone: the state is ready when the loss is, and waiting for its hundreds of arrays would
        # cost more than waiting for a GPU.
        jax.block_until_ready((self.out, self._scores[-1:]))

    def output(self) -> NDArray[Any]:
        return np.asarray(self.out[0]).reshape(1)

    def weights(self) -> Weights:
        parameters, rest, *_ = self._parts(self.state)
        return self.network.export(self._united(parameters, rest))

    def restart(self, weights: Mapping[str, NDArray[Any]], draw: int = 0) -> None:
        parameters, rest, memory, _ = self._parts(self.devices.own(self.state))
        replaced = self.network.replaced_weights(self._united(parameters, rest), weights)
        others = iter(self.network.others(draw))
        leaves = [
            array if leaf.is_weight else cast(next(others), self.dtype)
            for leaf, array in zip(self.network.leaves, replaced, strict=True)
        ]
        memory = _zeros(memory)
        # Freed before the new state is placed, as a device may not hold both.
        self.state = []
        del parameters, rest
        # The step's number seeds random layers, and hardly changes the learning rate.
        self._begin(*self._divided(leaves), memory, np.array(draw, np.int32))

    def gradients(self) -> Mapping[str, NDArray[Any]]:
        _, rest, memory, _ = self._parts(self.devices.own(self.state))
        states = jax.tree.leaves(memory, is_leaf=lambda part: isinstance(part, _MOMENTS))
        state = next(part for part in states if isinstance(part, _MOMENTS))
        moment = state.mu if isinstance(state, optax.ScaleByAdamState) else state.trace
        exported = self.network.export(self._united(moment, rest))
        trained = [name for name in exported if not is_statistic(name)]
        return Lazy(trained, lambda name: exported[name] * np.float32(self.moment))

    def forward_flops(self) -> float:
        def forward(state: Leaves, inputs: Any) -> jax.Array:
            parameters, rest, *_ = self._parts(state)
            return self._output(parameters, rest, inputs, train=True, key=self.key)[0]

        return counted(forward, self.state, self.inputs)

    def relocate(self) -> None:
        self.state, self.inputs, self.targets = self.devices.copied(self.arguments)

    def feed(self, images: NDArray[np.float32], labels: NDArray[np.int32]) -> None:
        self.inputs, self.targets = self._samples(images), (self._wanted(labels),)

    def curve(self) -> list[tuple[float, float]]:
        steps, self._curve = self._curve, []
        return [(float(loss), float(hits)) for loss, hits in jax.device_get(steps)]

    def score(self, images: NDArray[np.float32], labels: NDArray[np.int32]) -> None:
        self._scores.append(self.evaluate(self.state, self._samples(images), self._wanted(labels)))

    def scores(self) -> Scores:
        totals, self._scores = self._scores, []
        return Scores.of(np.asarray(jax.device_get(totals), np.float64).tolist())

    def _wanted(self, wanted: NDArray[Any]) -> jax.Array:
        """The targets with which the loss compares the output, each device with its slice."""
        return self.devices.divided(wanted, lambda part, device: jax.device_put(cast(part, self.dtype), device))

    def _samples(self, images: NDArray[np.float32]) -> dict[str, jax.Array]:
        """A batch of data for the model's only input."""
        return self._placed(dict.fromkeys(self.network.model.inputs, images))

    def _output_shape(self) -> tuple[int, ...]:
        """The shape of the output for a sample, from a trace that is then dropped: the timed trace must begin cold."""
        output = jax.eval_shape(lambda leaves, inputs: self.network.apply(leaves, inputs)[0], self.leaves, self.inputs)
        jax.clear_caches()
        return tuple(output.shape[1:])

    def _begin(self, parameters: Leaves, rest: Leaves, memory: Any, number: Any) -> None:
        """Set the state: parameters, other state of the network, the optimizer's, and the number of steps made."""
        leaves, self.state_structure = jax.tree.flatten((parameters, rest, memory, number))
        self.state = self.devices.everywhere(leaves)

    def _divided(self, leaves: Leaves) -> tuple[Leaves, Leaves]:
        """Parameters, and the other state of the network."""
        chosen = list(zip(self.network.leaves, leaves, strict=True))
        parameters = [array for leaf, array in chosen if leaf.kind == "parameter"]
        return parameters, [array for leaf, array in chosen if leaf.kind != "parameter"]

    def _united(self, parameters: Leaves, rest: Leaves) -> Leaves:
        """The inverse of `_divided`."""
        trained, others = iter(parameters), iter(rest)
        return [next(trained) if leaf.kind == "parameter" else next(others) for leaf in self.network.leaves]

    def _parts(self, state: Leaves) -> Any:
        """Parameters, other state of the network, the optimizer's, and the number of steps made."""
        return jax.tree.unflatten(self.state_structure, state)

    def _step(self, state: Leaves, inputs: Any, wanted: Any) -> tuple[Leaves, Any]:
        parameters, rest, memory, number = self._parts(state)
        key = jax.random.fold_in(self.key, number)
        keys = self.devices.keys(key, self.parts)
        rest = self.devices.streams(rest)
        differentiate = jax.value_and_grad(self._loss, has_aux=True)
        if self.parts == 1:
            (loss, (hits, rest)), gradients = differentiate(parameters, rest, inputs, wanted, keys[0])
        else:

            def part(carry: Any, batch: Any) -> tuple[Any, None]:
                rest, totals = carry
                (loss, (hits, rest)), gradients = differentiate(parameters, rest, *batch)
                return (rest, jax.tree.map(jnp.add, totals, (loss, hits, gradients))), None

            cut = jax.tree.map(lambda array: array.reshape(self.parts, -1, *array.shape[1:]), (inputs, wanted))
            batches = (*cut, keys)
            zero = jnp.zeros(())
            totals = (zero, zero if self.fits else None, jax.tree.map(jnp.zeros_like, parameters))
            (rest, (loss, hits, gradients)), _ = jax.lax.scan(part, (rest, totals), batches)
        loss, gradients = self.devices.mean((loss, gradients))
        hits, rest = self.devices.sum(hits), self.devices.first(rest)
        updates, memory = self.optimizer.update(gradients, memory, parameters)
        parameters = optax.apply_updates(parameters, updates)
        return jax.tree.leaves((parameters, rest, memory, number + 1)), (loss, hits)

    def _loss(self, parameters: Leaves, rest: Leaves, inputs: Any, wanted: Any, key: jax.Array) -> tuple[Any, Any]:
        """This part's share of the mean loss; top-1 hits, counted in mode `fit` alone; the network's other state."""
        output, leaves = self._output(parameters, rest, inputs, train=True, key=key)
        loss = self.criterion(output, *wanted) / self.parts
        hits = jnp.sum(_rank(output, *wanted) < 1, dtype=jnp.float32) if self.fits else None
        after = self._divided(leaves)[1]
        # Statistics keep their number format, whatever they are computed from.
        return loss, (hits, [new.astype(old.dtype) for new, old in zip(after, rest, strict=True)])

    def _output(self, parameters: Leaves, rest: Leaves, inputs: Any, **mode: Any) -> tuple[jax.Array, Leaves]:
        """The model's output, computed in the workload's precision, in the weights' number format; and all leaves."""
        weights = [leaf.astype(self.compute) for leaf in parameters]
        given = {name: cast(array, self.compute) for name, array in inputs.items()}
        output, leaves = self.network.apply(self._united(weights, rest), given, **mode)
        return output.astype(self.dtype), leaves

    def _totals(self, state: Leaves, inputs: Any, labels: jax.Array) -> jax.Array:
        """Sums over samples: loss, top-1 hits, top-5 hits, number of samples; shape (4,)."""
        parameters, rest, *_ = self._parts(state)
        logits, _ = self._output(parameters, rest, inputs)
        counted = labels >= 0
        wanted = jnp.maximum(labels, 0)
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, wanted)
        rank = _rank(logits, wanted)
        sums = [jnp.where(counted, losses, 0.0).sum(), *(((rank < k) & counted).sum() for k in (1, 5)), counted.sum()]
        return self.devices.sum(jnp.stack([part.astype(jnp.float32) for part in sums]))


def _zeros(tree: Any) -> Any:
    """Zeros shaped like the arrays of a tree. They are views of one buffer per type, which saves memory of the host."""
    sizes: dict[Any, int] = {}
    for array in jax.tree.leaves(tree):
        sizes[array.dtype] = max(array.size, sizes.get(array.dtype, 0))
    zeros = {dtype: np.zeros(1 + size, dtype) for dtype, size in sizes.items()}
    # Views begin at the second number: JAX would share an aligned buffer instead of copying it.
    return jax.tree.map(lambda array: zeros[array.dtype][1 : 1 + array.size].reshape(array.shape), tree)


def criterion(model: Model) -> Loss:
    """The model's loss, as `fwbench.frameworks.losses` describes it."""
    own: dict[str, Loss] = {
        "cross_entropy": lambda *given: optax.softmax_cross_entropy_with_integer_labels(*given).mean(),
        "mse": lambda output, wanted: jnp.square(output - wanted).mean(),
    }
    return loss_of(model, "jax", own, jnp.asarray)


def _rank(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """For each sample, the number of classes that score higher than its own."""
    return jnp.sum(logits > jnp.take_along_axis(logits, labels[:, None], axis=1), axis=1)
