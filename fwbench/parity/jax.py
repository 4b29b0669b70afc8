"""JAX's side of a proof."""

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import optax  # type: ignore[import-untyped, unused-ignore]
from flax import nnx

from fwbench.frameworks.jax.networks import load_weights, network, shapes
from fwbench.parity.case import ADAM, SGD, STEPS, Array, Backward, Case, Forward, Optimizer, Side, is_statistic

State = dict[str, jax.Array]


class JaxSide(Side):
    """Our Flax module, as a jitted function of its canonical weights or run operator by operator.

    The weights enter through `load_weights` inside the function, so JAX's own differentiation carries the gradients
    back through that door into canonical names and layouts.
    """

    def __init__(self, case: Case, *, module: nnx.Module | None = None, eager: bool = False) -> None:
        """
        Args:
            module: what to run in place of the model's network.
            eager: run without `jax.jit`.
        """
        super().__init__(case)
        module = network(case.row) if module is None else module
        for _, part in nnx.iter_graph(module):
            if hasattr(part, "rate"):
                part.rate = 0.0
        module.train() if case.mode == "train" else module.eval()
        self._graph, self._abstract = nnx.split(module)
        with self._arithmetic():
            weights = jax.device_put(case.weights(shapes(module)))
            self._x, self._labels = jax.device_put((case.inputs(), case.labels()))
        self._parameters = {name: value for name, value in weights.items() if not is_statistic(name)}
        self._statistics = {name: value for name, value in weights.items() if is_statistic(name)}
        differentiate = jax.value_and_grad(self._loss, has_aux=True)
        self._apply = self._loss if eager else jax.jit(self._loss)
        self._differentiate = differentiate if eager else jax.jit(differentiate)

    def losses(self, optimizer: Optimizer) -> Array:
        # All tensors as one vector, as no optimizer mixes its elements: XLA then compiles one update.
        descent = optax.flatten(optax.sgd(**SGD) if optimizer == "sgd" else optax.adam(**ADAM))

        @functools.partial(jax.jit, donate_argnames="memory")
        def step(gradients: State, memory: Any, parameters: State) -> tuple[State, Any]:
            updates, memory = descent.update(gradients, memory, parameters)
            return optax.apply_updates(parameters, updates), memory

        (loss, (_, statistics)), gradients = self._first
        losses = [float(loss)]
        with self._arithmetic():
            parameters, memory = self._parameters, descent.init(self._parameters)
            for _ in range(STEPS - 1):
                parameters, memory = step(gradients, memory, parameters)
                (loss, (_, statistics)), gradients = self._differentiate(parameters, statistics)
                losses.append(float(loss))
        return np.array(losses)

    def _forward(self) -> Forward:
        with self._arithmetic():
            loss, (logits, statistics) = self._apply(self._parameters, self._statistics)
            return Forward(np.asarray(logits), float(loss), jax.tree.map(np.asarray, statistics))

    def _backward(self) -> Backward:
        (loss, _), gradients = self._first
        return Backward(float(loss), jax.tree.map(np.asarray, gradients))

    @functools.cached_property
    def _first(self) -> Any:
        """((loss, (logits, statistics)), gradients) at the canonical weights, where every trajectory starts."""
        with self._arithmetic():
            return self._differentiate(self._parameters, self._statistics)

    def _loss(self, parameters: State, statistics: State) -> tuple[jax.Array, tuple[jax.Array, State]]:
        module: Any = nnx.merge(self._graph, self._abstract, copy=True)
        weights: dict[str, Any] = {**parameters, **statistics}
        load_weights(module, weights)
        logits = module(self._x)
        leaves = (leaf[...] for _, leaf in nnx.to_flat_state(nnx.state(module)))
        after = {name: leaf for name, leaf in zip(shapes(module), leaves, strict=True) if is_statistic(name)}
        loss = optax.softmax_cross_entropy_with_integer_labels(logits, self._labels).mean()
        return loss, (logits, after)

    @contextlib.contextmanager
    def _arithmetic(self) -> Iterator[None]:
        """This case's device and number format, without changing JAX's settings for anybody else."""
        with (
            jax.enable_x64(self.case.dtype == "float64"),
            jax.default_matmul_precision("highest"),
            jax.default_device(jax.devices(self.case.device)[0]),
        ):
            yield
