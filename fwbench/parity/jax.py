"""JAX's side of a proof."""

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped, unused-ignore]
from flax import nnx

from fwbench.frameworks.jax.kinds import Nnx
from fwbench.frameworks.jax.networks import network
from fwbench.parity.case import ADAM, SGD, STEPS, Array, Backward, Case, Forward, Optimizer, Side, is_statistic

State = dict[str, jax.Array]

# XLA's options for a program that runs a few times, in less than it would take to optimise it.
_AS_WRITTEN = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}
# Not for this model: the loops that XLA makes of its convolutions' gradients in float64 are ten times slower so.
_HEAVY = frozenset({"resnet50"})


class JaxSide(Side):
    """The model's network, as a jitted function of its canonical weights or run operator by operator.

    The weights enter through `Network.load` inside the function, so JAX's own differentiation carries the gradients
    back through that door into canonical names and layouts.
    """

    def __init__(self, case: Case, *, module: nnx.Module | None = None, eager: bool = False) -> None:
        """
        Args:
            module: what to run in place of the model's network.
            eager: run without `jax.jit`.
        """
        super().__init__(case)
        self._network = network(case.row, case.sizes)
        if isinstance(self._network, Nnx):
            module = self._network.module() if module is None else module
            for _, part in nnx.iter_graph(module):
                if case.dtype == "float64" and _is_depthwise(part):
                    part.conv_general_dilated = depthwise
            self._network = self._network.replaced(module)
        with self._arithmetic():
            weights = jax.device_put(case.weights(self._network.shapes))
            self._x, self._labels = jax.device_put((case.inputs(), case.labels()))
        self._parameters = {name: value for name, value in weights.items() if not is_statistic(name)}
        self._statistics = {name: value for name, value in weights.items() if is_statistic(name)}
        differentiate = jax.value_and_grad(self._loss, has_aux=True)
        # float32 is compiled as a lane compiles it.
        options = _known_options() if case.dtype == "float64" and case.model not in _HEAVY else None
        self._apply = self._loss if eager else jax.jit(self._loss, compiler_options=options)
        self._differentiate = differentiate if eager else jax.jit(differentiate, compiler_options=options)

    def losses(self, optimizer: Optimizer) -> Array:
        descent = optax.sgd(**SGD) if optimizer == "sgd" else optax.adam(**ADAM)
        compiled = functools.partial(jax.jit, compiler_options=_known_options())

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
            loss, (logits, statistics) = answers
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
        leaves = self._network.load({**parameters, **statistics})
        # Without a key, stochastic layers are off.
        logits, leaves = self._network.apply(leaves, {"": self._x}, train=self.case.mode == "train")
        after = {name: leaf for name, leaf in self._network.canonical(leaves).items() if is_statistic(name)}
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


def depthwise(x: jax.Array, kernel: jax.Array, strides: Sequence[int], padding: Any, **_: Any) -> jax.Array:
    """A depthwise convolution by its definition, for JAX to differentiate: a sum over the kernel's taps.

    Stands in for `jax.lax.conv_general_dilated` in float64, where XLA's CPU compiler makes a dense convolution of a
    depthwise one and of its derivatives: as many times the work as there are channels, over gigabytes of zeros.

    Args:
        x: images of shape (N, H, W, C).
        kernel: of shape (rows, columns, 1, C).
        padding: what is added on either side of H and of W, or XLA's name for it.
    """
    taps = kernel.shape[:2]
    if isinstance(padding, str):
        padding = jax.lax.padtype_to_pads(x.shape[1:3], taps, strides, padding)
    x = jnp.pad(x, ((0, 0), *padding, (0, 0)))
    rows, columns = (
        [slice(tap, tap + edge - count + 1, stride) for tap in range(count)]
        for edge, count, stride in zip(x.shape[1:3], taps, strides, strict=True)
    )
    x = jnp.stack([x[:, row] for row in rows])
    x = jnp.stack([x[:, :, :, column] for column in columns], axis=1)
    return (x * kernel.reshape(*taps, 1, 1, 1, -1)).sum((0, 1))


@functools.cache
def _known_options() -> dict[str, Any]:
    """Of `_AS_WRITTEN`, what this version of XLA knows; it refuses to compile with any other."""
    known = {}
    for name, value in _AS_WRITTEN.items():
        with contextlib.suppress(jax.errors.JaxRuntimeError):
            jax.jit(lambda: 0, compiler_options={name: value})()
            known[name] = value
    return known


def _is_depthwise(part: Any) -> bool:
    if not isinstance(part, nnx.Conv):
        return False
    plain = part.kernel_dilation == part.input_dilation == 1
    return bool(plain and part.feature_group_count == part.in_features == part.out_features > 1)
