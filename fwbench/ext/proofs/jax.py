"""JAX's side of a proof."""

import contextlib
import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped, unused-ignore]
from jax._src.lax import lax
from jax.interpreters import partial_eval

from fwbench.ext.proofs.case import (
    ADAM,
    MAIN,
    SGD,
    STEPS,
    Array,
    Backward,
    Case,
    Forward,
    Optimizer,
    Point,
    Side,
    Stepped,
)
from fwbench.ext.proofs.where.calls import Call
from fwbench.ext.proofs.where.jax import recorded
from fwbench.frameworks.jax import convolutions, networks
from fwbench.frameworks.jax.functional import Network
from fwbench.frameworks.jax.layout import Leaf
from fwbench.frameworks.jax.options import faster, known
from fwbench.frameworks.jax.stateful import placed_state, stepped
from fwbench.frameworks.jax.training import criterion
from fwbench.models import Model, stateful
from fwbench.models.weights import Shape, is_statistic

State = dict[str, jax.Array]

# XLA's options for a program that runs only a few times: optimising it would take longer than it saves.
_AS_WRITTEN = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}
# Models that are compiled without these options, which make XLA's loops for the gradients of their convolutions ten
# times slower in float64.
_HEAVY = frozenset({"resnet50"})

# The end of a buffer's name in a side's state.
_BUFFER = " (buffer)"


def options(model: Model) -> dict[str, Any]:
    """XLA's options for a model's programs in float64."""
    return {} if model.name in _HEAVY else known(_AS_WRITTEN)


class JaxSide(Side):
    """A network in JAX, as a jitted function of its canonical weights or run operator by operator.

    The weights enter through `Network.load` inside the function. JAX differentiates through it, so the gradients have
    canonical names and layouts.
    """

    def __init__(self, case: Case, *, network: Network | None = None, eager: bool = False) -> None:
        """
        Args:
            network: the network to run in place of the model's.
            eager: run without `jax.jit`.
        """
        super().__init__(case)
        self.network = networks.network(case.model, case.sizes) if network is None else network
        self._criterion = case.amplified(criterion(case.model))
        self._others = self._buffers()
        device = jax.devices(case.device)[0]
        differentiate = jax.value_and_grad(self.answer, has_aux=True)
        # A program in float32 is compiled as a lane compiles it.
        forward, backward = faster(case.model.name, device.platform), {}
        if case.dtype == "float64":
            forward = backward = options(case.model)
        self._apply = self.answer if eager else jax.jit(self.answer, compiler_options=forward)
        self._differentiate = differentiate if eager else jax.jit(differentiate, compiler_options=backward)

    @staticmethod
    def shapes(model: Model, sizes: Mapping[str, int]) -> dict[str, Shape]:
        return networks.network(model, sizes).shapes

    @staticmethod
    def buffers(model: Model, sizes: Mapping[str, int]) -> frozenset[str]:
        return frozenset(leaf.name for leaf in networks.network(model, sizes).leaves if leaf.kind == "buffer")

    def arguments(self, point: Point = MAIN) -> tuple[State, State, State]:
        """Parameters, running statistics with all buffers, and inputs on the device, as `answer` takes them."""
        device = jax.devices(self.case.device)[0]
        with self.arithmetic():
            # On a named device, like all results: JAX compiles a program again for arguments placed otherwise.
            weights = jax.device_put(self.case.weights(self.network.shapes, point), device)
            parameters = {name: value for name, value in weights.items() if not is_statistic(name)}
            state = {name: value for name, value in weights.items() if is_statistic(name)}
            state |= jax.device_put(self._states(self._others), device)
            draws = [self.network.place(self.case.inputs(point, draw), self.case.dtype, device) for draw in point.draws]
            for call in range(point.calls):
                state = self._train(parameters, state, draws[1 + call % (len(draws) - 1)])
        return parameters, state, draws[0]

    def answer(
        self, parameters: State, state: State, inputs: State, streams: Any = None, key: Any = None
    ) -> tuple[jax.Array, tuple[jax.Array, State]]:
        """Compute the loss, the output and the state after the call: a pure function, not yet transformed.

        Args:
            state: running statistics and buffers.
            streams: a number that advances the network's own random streams, if it keeps any.
            key: a random key, which switches random layers on; that of shared draws does so without it.
        """
        output, after = self._called(parameters, state, inputs, streams, key, train=self.case.mode == "train")
        if not self.network.shapes:
            return jnp.array(jnp.nan), (output, after)
        wanted = self.case.targets(output.shape)
        return self._criterion(output, *(() if wanted is None else (jnp.asarray(wanted),))), (output, after)

    def _called(
        self, parameters: State, state: State, inputs: State, streams: Any = None, key: Any = None, *, train: bool
    ) -> tuple[jax.Array, State]:
        """The output and the state after the call."""
        key = self._key if key is None else key
        leaves = self._leaves({**parameters, **state}, streams)
        output, leaves = self.network.apply(leaves, inputs, train=train, key=key)
        after = {name: array for name, array in self.network.canonical(leaves).items() if is_statistic(name)}
        others = [array for leaf, array in self._named(leaves) if not leaf.is_weight]
        return output, after | self._states(others)

    @functools.cached_property
    def _train(self) -> Callable[..., State]:
        """A compiled training call: from parameters, state and inputs to the state after it."""
        return jax.jit(lambda *arguments: self._called(*arguments, train=True)[1], compiler_options=known(_AS_WRITTEN))

    def _changing(self) -> tuple[str, ...]:
        if not (names := self._states(self._others)):
            return ()
        before, after = (self.arguments(Point(calls=calls))[1] for calls in (0, 1))
        return tuple(name.removesuffix(_BUFFER) for name in names if not np.array_equal(before[name], after[name]))

    def held(self, state: State) -> list[str]:
        """The names under which the leaves of a state are watched, in JAX's order: those in `changing`, else empty."""
        names = (name.removesuffix(_BUFFER) if name.endswith(_BUFFER) else "" for name in sorted(state))
        return [name if name in (self.changing or ()) else "" for name in names]

    def _states(self, others: Sequence[Any]) -> State:
        """The buffers among all arrays besides the weights, but no keys, by names that no weight has."""
        leaves = (leaf for leaf in self.network.leaves if not leaf.is_weight)
        return {
            f"{leaf.name}{_BUFFER}": array
            for leaf, array in zip(leaves, others, strict=True)
            if leaf.kind == "buffer" and not _is_key(array)
        }

    def _leaves(self, weights: State, streams: Any = None) -> list[Any]:
        """All of the network's leaves with these canonical weights and buffers."""
        own = {name: array for name, array in weights.items() if not name.endswith(_BUFFER)}
        leaves = self._named(self.network.load(own))
        others = iter(self._others)
        return [
            array if leaf.is_weight else self._other(leaf, next(others), weights, streams) for leaf, array in leaves
        ]

    def _other(self, leaf: Leaf, array: Any, given: State, streams: Any) -> Any:
        """A given buffer; any other array as it is, the state of a random stream advanced or that of shared draws."""
        if self.source is not None and leaf.kind == "random":
            return self.source.shared(array)
        if _is_key(array):
            return array if streams is None else jax.random.fold_in(array, streams)
        return given.get(f"{leaf.name}{_BUFFER}", array)

    @property
    def _key(self) -> Any:
        return None if self.source is None else self.source.key

    def calls(self, point: Point = MAIN) -> list[Call]:
        parameters, state, inputs = self.arguments(point)
        with self.arithmetic():
            leaves = self._leaves({**parameters, **state})
            with recorded(self.network) as calls:
                self.network.apply(leaves, inputs, train=self.case.mode == "train", key=self._key)
        return calls

    def stepped(self, calls: Sequence[int], point: Point = MAIN) -> Stepped:
        model, (parameters, statistics, inputs) = self.case.model, self.arguments(point)

        @functools.partial(jax.jit, compiler_options=known(_AS_WRITTEN))
        def step(weights: State, inputs: State, state: Any) -> tuple[jax.Array, Any]:
            return stepped(self.network, self._leaves(weights), inputs, state)

        outputs, begin = [], 0
        with self.arithmetic():
            made = stateful.empty(model, "jax", self.case.batch_size, self.case.sizes)
            state = placed_state(model, made, jax.devices(self.case.device)[0], self.case.dtype)
            for steps in calls:
                taken = stateful.part(model, inputs, slice(begin, begin + steps))
                output, state = step({**parameters, **statistics}, taken, state)
                outputs.append(np.asarray(output))
                begin += steps
        paths = jax.tree_util.tree_leaves_with_path(state)
        named = {jax.tree_util.keystr(path, simple=True, separator="."): np.asarray(leaf) for path, leaf in paths}
        return Stepped(outputs, named)

    @staticmethod
    @contextlib.contextmanager
    def widened() -> Iterator[dict[str, None]]:
        changed: dict[str, None] = {}
        cast, shapes = lax._convert_element_type, jax.eval_shape
        settings = ("jax_enable_x64", "jax_default_matmul_precision")
        config: Any = jax.config
        before = {name: getattr(config, name) for name in settings}

        def wide(operand: Any, new_dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
            if new_dtype is not None and jnp.issubdtype(new_dtype, jnp.floating):
                if jnp.dtype(new_dtype).itemsize < 4:
                    changed["computes in float64 what jax casts to a format of 16 bits"] = None
                new_dtype = np.dtype(np.float64)
            return cast(operand, new_dtype, *args, **kwargs)

        def as_written(*args: Any, **kwargs: Any) -> Any:
            # At each call Linen evaluates the shapes of its initialisers, which do not run with such casts.
            lax._convert_element_type = cast
            try:
                return shapes(*args, **kwargs)
            finally:
                lax._convert_element_type = wide

        config.update("jax_enable_x64", True)
        jax.eval_shape = as_written
        lax._convert_element_type = wide
        try:
            yield changed
        finally:
            lax._convert_element_type, jax.eval_shape = cast, shapes
            for name, value in before.items():
                config.update(name, value)

    def may_draw(self) -> bool:
        return self._depends_on_key(self._drawn)

    def is_steady(self) -> bool:
        return not self._depends_on_key(functools.partial(self._drawn, randomness=False))

    def draws(self, keys: int) -> Array:
        arguments = self.arguments()
        with self.arithmetic():
            drawn = jax.jit(self._drawn, compiler_options=known(_AS_WRITTEN))
            return np.stack([np.ravel(drawn(*arguments, np.uint32(key))) for key in range(keys)])

    def _drawn(self, *arguments: Any, randomness: bool = True) -> jax.Array:
        """The output for a key, which is the last argument."""
        parameters, state, inputs, key = arguments
        switched_on = jax.random.key(key) if randomness else None
        return self.answer(parameters, state, inputs, streams=key, key=switched_on)[1][0]

    def _depends_on_key(self, function: Callable[..., jax.Array]) -> bool:
        """True if the output depends on the key, as the traced program shows without compiling."""
        arguments = self.arguments()
        with self.arithmetic():
            program = jax.make_jaxpr(function)(*arguments, np.uint32(0))
        _, used = partial_eval.dce_jaxpr(program.jaxpr, [True])
        return bool(used[-1])

    def trains_as_it_infers(self) -> bool:
        """True if the programs that differentiate are the same in both modes, as their traces show."""
        return self._traced() == JaxSide(replace(self.case, mode="eval"), network=self.network)._traced()

    def _traced(self) -> tuple[str, list[bytes]]:
        arguments = self.arguments()
        with self.arithmetic():
            program = jax.make_jaxpr(jax.value_and_grad(self.answer, has_aux=True))(*arguments)
            constants = [np.asarray(constant).tobytes() for constant in program.consts]
        # Drop the addresses of differentiation rules' functions. These programs have applied the rules already.
        return re.sub(r" at 0x[0-9a-f]+", "", str(program)), constants

    def losses(self, optimizer: Optimizer) -> Array:
        # One long array in place of hundreds takes a tenth of the time to compile.
        descent = optax.flatten(optax.sgd(**SGD) if optimizer == "sgd" else optax.adam(**ADAM))
        compiled = functools.partial(jax.jit, compiler_options=known(_AS_WRITTEN))

        @functools.partial(compiled, donate_argnames="memory")
        def step(gradients: State, memory: Any, parameters: State) -> tuple[State, Any]:
            update, memory = descent.update(gradients, memory, parameters)
            return optax.apply_updates(parameters, update), memory

        losses, gradients = [self.backward().loss], self.backward().gradients
        # Each step can free the gradients then; together the buffers of a large network would fill the memory.
        self._backward_passes.clear()
        parameters, _, inputs = self.arguments()
        with self.arithmetic():
            first = self.forward()
            state = jax.device_put({**first.statistics, **first.state}, jax.devices(self.case.device)[0])
            memory = compiled(descent.init)(parameters)
            for _ in range(STEPS - 1):
                parameters, memory = step(gradients, memory, parameters)
                (loss, (_, state)), gradients = self._differentiate(parameters, state, inputs)
                losses.append(float(loss))
        return np.array(losses)

    def _forward(self, point: Point) -> Forward:
        arguments = self.arguments(point)
        with self.arithmetic():
            return _on_host(self._apply(*arguments))

    def _backward(self, point: Point) -> tuple[Forward, Backward]:
        arguments = self.arguments(point)
        with self.arithmetic():
            answer, gradients = self._differentiate(*arguments)
            forward = _on_host(answer)
        return forward, Backward(forward.loss, jax.tree.map(np.asarray, gradients))

    def _buffers(self) -> list[Any]:
        """The arrays that the network holds besides its weights, computed in float32 as for a measurement."""
        with jax.enable_x64(False), jax.default_device(jax.devices(self.case.device)[0]):
            buffers = self.network.others()
        with self.arithmetic():
            return [array.astype(self.case.dtype) if array.dtype == np.float32 else array for array in buffers]

    def _named(self, leaves: Sequence[Any]) -> Iterator[tuple[Leaf, Any]]:
        return zip(self.network.leaves, leaves, strict=True)

    @contextlib.contextmanager
    def arithmetic(self) -> Iterator[None]:
        """A context with this case's device and number format. JAX's settings outside of it stay as they are."""
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


def _is_key(array: Any) -> bool:
    return bool(jnp.issubdtype(array.dtype, jax.dtypes.prng_key))


def _on_host(answer: tuple[jax.Array, tuple[jax.Array, State]]) -> Forward:
    loss, (output, after) = answer
    arrays = {name: np.asarray(array) for name, array in after.items()}
    statistics = {name: array for name, array in arrays.items() if is_statistic(name)}
    state = {name: array for name, array in arrays.items() if not is_statistic(name)}
    return Forward(np.asarray(output), float(loss), statistics, state)
