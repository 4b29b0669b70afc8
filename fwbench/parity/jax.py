"""JAX's side of a proof."""

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped, unused-ignore]

from fwbench.frameworks.jax import convolutions, networks
from fwbench.frameworks.jax.functional import Leaf, Network
from fwbench.frameworks.jax.losses import loss_of
from fwbench.frameworks.jax.options import faster, known
from fwbench.models import Model
from fwbench.models.weights import Shape
from fwbench.parity.case import ADAM, SGD, STEPS, Array, Backward, Case, Forward, Optimizer, Side, is_statistic

State = dict[str, jax.Array]

# XLA's options for a program that runs a few times, in less than it would take to optimise it.
_AS_WRITTEN = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}
# Not for this model: the loops that XLA makes of its convolutions' gradients in float64 are ten times slower so.
_HEAVY = frozenset({"resnet50"})


class JaxSide(Side):
    """A network in JAX, as a jitted function of its canonical weights or run operator by operator.

    The weights enter through `Network.load` inside the function, so JAX's own differentiation carries the gradients
    back through that door into canonical names and layouts.

    Attributes:
        network: what is run.
    """

    def __init__(self, case: Case, *, network: Network | None = None, eager: bool = False) -> None:
        """
        Args:
            network: what to run in place of the model's.
            eager: run without `jax.jit`.
        """
        super().__init__(case)
        self.network = networks.network(case.model, case.sizes) if network is None else network
        self._criterion = loss_of(case.model)
        self._others = self._buffers()
        with self._arithmetic():
            device = jax.devices(case.device)[0]
            weights = jax.device_put(case.weights(self.network.shapes))
            self._inputs = self.network.place(case.inputs(), case.dtype, device)
        self._parameters = {name: value for name, value in weights.items() if not is_statistic(name)}
        self._statistics = {name: value for name, value in weights.items() if is_statistic(name)}
        differentiate = jax.value_and_grad(self._loss, has_aux=True)
        # float32 is compiled as a lane compiles it.
        forward, backward = faster(device.platform), {}
        if case.dtype == "float64":
            forward = backward = {} if case.model.name in _HEAVY else known(_AS_WRITTEN)
        self._apply = self._loss if eager else jax.jit(self._loss, compiler_options=forward)
        self._differentiate = differentiate if eager else jax.jit(differentiate, compiler_options=backward)

    @staticmethod
    def shapes(model: Model, sizes: Mapping[str, int]) -> dict[str, Shape]:
        return networks.network(model, sizes).shapes

    def losses(self, optimizer: Optimizer) -> Array:
        descent = optax.sgd(**SGD) if optimizer == "sgd" else optax.adam(**ADAM)
        compiled = functools.partial(jax.jit, compiler_options=known(_AS_WRITTEN))

        @functools.partial(compiled, donate_argnames="memory")
        def step(gradients: State, memory: Any, parameters: State) -> tuple[State, Any]:
            update, memory = descent.update(gradients, memory, parameters)
            return optax.apply_updates(parameters, update), memory

        (loss, (_, statistics)), gradients = self._first
        losses, parameters = [float(loss)], self._parameters
        with self._arithmetic():
            memory = compiled(descent.init)(parameters)
            for _ in range(STEPS - 1):
                parameters, memory = step(gradients, memory, parameters)
                (loss, (_, statistics)), gradients = self._differentiate(parameters, statistics)
                losses.append(float(loss))
        return np.array(losses)

    def _forward(self) -> Forward:
        with self._arithmetic():
            # What differentiates has gone forward: no second program for a side that was asked for both.
            answers = self._first[0] if "_first" in vars(self) else self._apply(self._parameters, self._statistics)
            loss, (output, statistics) = answers
            return Forward(np.asarray(output), float(loss), jax.tree.map(np.asarray, statistics))

    def _backward(self) -> Backward:
        (loss, _), gradients = self._first
        return Backward(float(loss), jax.tree.map(np.asarray, gradients))

    @functools.cached_property
    def _first(self) -> Any:
        """((loss, (output, statistics)), gradients) at the canonical weights, where every trajectory starts."""
        with self._arithmetic():
            return self._differentiate(self._parameters, self._statistics)

    def _loss(self, parameters: State, statistics: State) -> tuple[jax.Array, tuple[jax.Array, State]]:
        leaves = self.network.load({**parameters, **statistics})
        others = iter(self._others)
        leaves = [array if leaf.is_weight else next(others) for leaf, array in self._named(leaves)]
        output, leaves = self.network.apply(leaves, self._inputs, train=self.case.mode == "train")
        after = {name: array for name, array in self.network.canonical(leaves).items() if is_statistic(name)}
        if not self.network.shapes:
            return jnp.array(jnp.nan), (output, after)
        wanted = self.case.targets(output.shape)
        return self._criterion(output, *(() if wanted is None else (jnp.asarray(wanted),))), (output, after)

    def _buffers(self) -> list[Any]:
        """What the network brings along besides its weights, as it is measured: computed in float32."""
        if all(leaf.is_weight for leaf in self.network.leaves):
            return []
        weights = {name: np.zeros(shape, np.float32) for name, shape in self.network.shapes.items()}
        with jax.enable_x64(False), jax.default_device(jax.devices(self.case.device)[0]):
            found = [array for leaf, array in self._named(self.network.load(weights)) if not leaf.is_weight]
        with self._arithmetic():
            return [array.astype(self.case.dtype) if array.dtype == np.float32 else array for array in found]

    def _named(self, leaves: Sequence[Any]) -> Iterator[tuple[Leaf, Any]]:
        return zip(self.network.leaves, leaves, strict=True)

    @contextlib.contextmanager
    def _arithmetic(self) -> Iterator[None]:
        """This case's device and number format, without changing JAX's settings for anybody else."""
        device = jax.devices(self.case.device)[0]
        before = convolutions.choose(convolutions.Choice(device.platform))
        try:
            with (
                jax.enable_x64(self.case.dtype == "float64"),
                jax.default_matmul_precision("highest"),
                jax.default_device(device),
            ):
                yield
        finally:
            convolutions.choose(before)
