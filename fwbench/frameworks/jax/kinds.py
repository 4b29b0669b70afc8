"""The kinds of networks that JAX has: Flax NNX, Linen, Equinox, Haiku, `init` with `apply`, and a plain function.

Linen, Equinox and Haiku are not imported here: the user's network has imported its library.
"""

import inspect
import sys
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from fwbench.frameworks.jax.functional import Network
from fwbench.frameworks.jax.layout import Kind, Leaf
from fwbench.models import Model
from fwbench.models.importing import ModelError, described, parameters

# Names of parameters by which a network's call may take the mode, and the argument from whether the network trains.
_MODES: dict[str, Callable[[bool], bool]] = {
    **dict.fromkeys(("train", "training", "is_training"), lambda train: train),
    **dict.fromkeys(("deterministic", "inference"), lambda train: not train),
}


# Flax's names by Haiku's.
_FROM_HAIKU = {"w": "kernel", "b": "bias", "offset": "bias", "embeddings": "embedding"}


class Nnx(Network):
    """A module of Flax NNX. Its random streams, if it keeps any, advance with its state."""

    def __init__(self, model: Model, module: nnx.Module, build: Callable[[int], Any]) -> None:
        """
        Args:
            module: with abstract or any other weights.
            build: builds such a module with its own initial values from a seed.
        """
        self._build = build
        for _, part in nnx.iter_graph(module):
            # The only Flax layer that by default computes in float32 whatever its weights are: a program in bfloat16
            # and a proof in float64 would both be wrong.
            if isinstance(part, nnx.Embed) and part.dtype == part.param_dtype:
                part.dtype = None
        self._graphs = {}
        for train in (False, True):
            module.train() if train else module.eval()
            self._graphs[train], state = nnx.split(module)
        self._state = state
        self._structure = jax.tree.structure(state)
        flat = nnx.to_flat_state(state)
        leaves = [
            Leaf(".".join(map(str, path)), tuple(jax.tree.leaves(variable)[0].shape), _kind(variable))
            for path, variable in flat
        ]
        self._paths = [path for path, _ in flat]
        super().__init__(model, leaves)

    def module(self) -> nnx.Module:
        """A copy of the module, with the weights that this network was made with, in training mode."""
        return nnx.merge(self._graphs[True], self._state, copy=True)

    def replaced(self, module: nnx.Module) -> "Nnx":
        """The network with a changed copy of its module."""
        return Nnx(self.model, module, self._build)

    def _call(self, leaves: Sequence[Any], inputs: Mapping[str, Any], train: bool, key: Any) -> tuple[Any, list[Any]]:
        module = self.assembled(leaves, train=train)
        if train and key is None:
            for _, part in nnx.iter_graph(module):
                if hasattr(part, "rate") and hasattr(part, "deterministic"):
                    part.rate = 0.0
        rngs = None if key is None else nnx.Rngs(key)
        returned = _called(module, inputs, train, rngs=rngs)
        return returned, self.taken_apart(module)

    @property
    def jit(self) -> Callable[..., Any]:
        return nnx.jit

    def assembled(self, leaves: Sequence[Any], *, train: bool = False) -> Any:
        return nnx.merge(self._graphs[train], jax.tree.unflatten(self._structure, leaves), copy=True)

    def taken_apart(self, held: Any) -> list[Any]:
        state = dict(nnx.to_flat_state(nnx.state(held)))
        return [jax.tree.leaves(state[path])[0] for path in self._paths]

    def _drawn(self, seed: int) -> Any:
        return nnx.split(self._build(seed))[1]


class _Initialised(Network):
    """A network whose weights come from a function of its inputs, which are a batch of two: abstract, or zeros."""

    _inputs: Mapping[str, Any]

    @abstractmethod
    def _variables(self, inputs: Mapping[str, Any], seed: int = 0) -> Any:
        """The tree of the network's weights and its other state."""

    def _drawn(self, seed: int) -> Any:
        zeros = {name: jnp.zeros(given.shape, given.dtype) for name, given in self._inputs.items()}
        return self._variables(zeros, seed)


class Linen(_Initialised):
    """A module of Flax Linen."""

    def __init__(self, model: Model, module: Any, sizes: Mapping[str, int]) -> None:
        self._module = module
        self._inputs = _abstract(model, sizes)
        variables = jax.eval_shape(self._variables, self._inputs)
        self._collections = [name for name in variables if name != "params"]
        kinds: dict[str, Kind] = {"params": "parameter", "batch_stats": "statistic"}
        leaves, self._structure = _flat(variables, lambda path: kinds.get(path[0].key, "buffer"), skip=1)
        super().__init__(model, leaves)

    def _variables(self, inputs: Mapping[str, Any], seed: int = 0) -> Any:
        modes = _besides_inputs(type(self._module).__call__, inputs, False)
        # Not the module's own `init`, which the user may have overridden, often as `init(rng)`.
        init = sys.modules["flax.linen"].Module.init
        return _given(init, inputs, self._module, jax.random.key(seed), **modes)

    def _call(self, leaves: Sequence[Any], inputs: Mapping[str, Any], train: bool, key: Any) -> tuple[Any, list[Any]]:
        variables = jax.tree.unflatten(self._structure, leaves)
        options = {"rngs": key, "mutable": self._collections if train else []}
        modes = _besides_inputs(type(self._module).__call__, inputs, train)
        linen = sys.modules["flax.linen"]

        def without_dropout(call: Any, arguments: Any, keywords: Any, context: Any) -> Any:
            return arguments[0] if isinstance(context.module, linen.Dropout) else call(*arguments, **keywords)

        with linen.intercept_methods(without_dropout) if train and key is None else nullcontext():
            try:
                # All of Linen's streams, dropout's too, derive from that of `params` unless they have their own key.
                returned, changed = _given(self._module.apply, inputs, variables, **modes, **options)
            except sys.modules["flax"].errors.InvalidRngError as error:
                if key is not None:
                    raise
                raise ModelError(
                    f"the network of {self.model.name} draws random numbers outside of flax.linen.Dropout "
                    f"({described(error)}), which cannot be switched off from here: build it with a rate of 0 there, "
                    "such as that of its attention's dropout"
                ) from error
        return returned, jax.tree.leaves({**variables, **changed})


class Equinox(Network):
    """A module of Equinox without state, called on one sample at a time under `jax.vmap`, as Equinox's users do."""

    images = "NCHW"

    def __init__(self, model: Model, static: Any, arrays: Any, build: Callable[[int], Any]) -> None:
        """
        Args:
            static, arrays: the module's two parts, arrays as shapes.
            build: builds such a module with its own initial arrays from a seed.
        """
        self._static = static
        self._build = build
        leaves, self._structure = _flat(arrays, lambda path: "parameter")
        super().__init__(model, [_without_window(leaf) for leaf in leaves])

    def _call(self, leaves: Sequence[Any], inputs: Mapping[str, Any], train: bool, key: Any) -> tuple[Any, list[Any]]:
        module = sys.modules["equinox"].nn.inference_mode(self.assembled(leaves), value=key is None)
        taken = (parameters(type(module).__call__) or {}).get("key")
        if key is None and taken is not None and taken.default is taken.empty:
            # Some networks refuse None, although no layer in inference mode draws from the key.
            key = jax.random.key(0)
        keys = None if key is None else jax.random.split(key, len(next(iter(inputs.values()))))

        def sample(inputs: Mapping[str, Any], key: Any) -> Any:
            return _called(module, inputs, train, key=key)

        return jax.vmap(sample, in_axes=(0, None if keys is None else 0))(inputs, keys), list(leaves)

    @property
    def jit(self) -> Callable[..., Any]:
        return sys.modules["equinox"].filter_jit

    def assembled(self, leaves: Sequence[Any], *, train: bool = False) -> Any:
        return sys.modules["equinox"].combine(jax.tree.unflatten(self._structure, leaves), self._static)

    def taken_apart(self, held: Any) -> list[Any]:
        equinox = sys.modules["equinox"]
        return jax.tree.leaves(equinox.filter(held, equinox.is_array))

    def _drawn(self, seed: int) -> Any:
        equinox = sys.modules["equinox"]
        return equinox.filter(self._build(seed), equinox.is_array)


class Pair(_Initialised):
    """`init(key)`, or `init(key, *inputs)`, which returns parameters, and `apply(parameters, *inputs)`."""

    def __init__(
        self, model: Model, init: Callable[..., Any], apply: Callable[..., Any], sizes: Mapping[str, int]
    ) -> None:
        self._init, self._apply = init, apply
        self._inputs = _abstract(model, sizes)
        leaves, self._structure = _flat(jax.eval_shape(self._variables, self._inputs), lambda path: "parameter")
        super().__init__(model, leaves)

    def _variables(self, inputs: Mapping[str, Any], seed: int = 0) -> Any:
        required = [one for one in (parameters(self._init) or {}).values() if one.default is one.empty]
        return _given(self._init, inputs if len(required) > 1 else {}, jax.random.key(seed))

    def _call(self, leaves: Sequence[Any], inputs: Mapping[str, Any], train: bool, key: Any) -> tuple[Any, list[Any]]:
        return _given(self._apply, inputs, jax.tree.unflatten(self._structure, leaves)), list(leaves)


class Haiku(_Initialised):
    """A network that Haiku's `transform` or `transform_with_state` returns. Its modules' names become dotted paths."""

    def __init__(self, model: Model, transformed: Any, sizes: Mapping[str, int]) -> None:
        self._transformed = transformed
        self._call_parameters = parameters(transformed.apply) or {}
        self._has_state = "state" in self._call_parameters
        self._inputs = _abstract(model, sizes)
        leaves, self._structure = _flat(jax.eval_shape(self._variables, self._inputs), self._kind)
        super().__init__(model, [_renamed_from_haiku(leaf) for leaf in leaves])

    def _variables(self, inputs: Mapping[str, Any], seed: int = 0) -> Any:
        modes = _modes(self._transformed.init, inputs, True)
        made = _given(self._transformed.init, inputs, jax.random.key(seed), **modes)
        return made if self._has_state else (made, {})

    def _call(self, leaves: Sequence[Any], inputs: Mapping[str, Any], train: bool, key: Any) -> tuple[Any, list[Any]]:
        weights, state = jax.tree.unflatten(self._structure, leaves)
        modes = _modes(self._transformed.apply, inputs, train)
        before = (weights, state) if self._has_state else (weights,)
        if "rng" in self._call_parameters:
            before = (*before, jax.random.key(0) if key is None else key)
        haiku: Any = sys.modules["haiku"]
        dropout = haiku.dropout
        if key is None:
            haiku.dropout = lambda rng, rate, x, *args, **kwargs: x
        try:
            returned = _given(self._transformed.apply, inputs, *before, **modes)
        finally:
            haiku.dropout = dropout
        after = state
        if self._has_state:
            returned, after = returned
        return returned, jax.tree.leaves((weights, after if train else state))

    @staticmethod
    def _kind(path: Any) -> Kind:
        if path[0].idx == 0:
            return "parameter"
        # Batch normalisation applies the average, which is computed from `hidden` and `counter`.
        is_average = path[1].key.endswith(("mean_ema", "var_ema")) and path[-1].key == "average"
        return "statistic" if is_average else "buffer"


class Function(Network):
    """A function of the inputs, without weights."""

    def __init__(self, model: Model, function: Callable[..., Any]) -> None:
        self._function = function
        super().__init__(model, [])

    def _call(self, leaves: Sequence[Any], inputs: Mapping[str, Any], train: bool, key: Any) -> tuple[Any, list[Any]]:
        return _given(self._function, inputs), []


def _called(module: Any, inputs: Mapping[str, Any], train: bool, **random: Any) -> Any:
    """Call a module in a mode, with its stream of random numbers if its call has a parameter for it."""
    call = type(module).__call__
    random = {name: given for name, given in random.items() if name in (parameters(call) or {})}
    return _given(module, inputs, **{**_besides_inputs(call, inputs, train), **random})


def _given(call: Callable[..., Any], inputs: Mapping[str, Any], /, *before: Any, **others: Any) -> Any:
    """Call with inputs after other arguments: an input without a name by its position, all others by their names."""
    unnamed = (inputs[name] for name in inputs if not name)
    return call(*before, *unnamed, **{name: inputs[name] for name in inputs if name}, **others)


def _besides_inputs(call: Callable[..., Any], inputs: Mapping[str, Any], train: bool) -> dict[str, Any]:
    """The arguments of a module's call besides the inputs: the mode, and None for all others that it requires."""
    known = list((parameters(call) or {}).values())[1:]
    single = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    required = [one.name for one in known if one.default is one.empty and one.kind in single]
    # An input without a name is the first parameter, whatever that is called.
    others = set(required[1:] if "" in inputs else required) - inputs.keys()
    return {**dict.fromkeys(others), **_modes(call, inputs, train)}


def _modes(call: Callable[..., Any], inputs: Mapping[str, Any], train: bool) -> dict[str, bool]:
    wanted = (parameters(call) or {}).keys() - inputs.keys()
    return {name: mode(train) for name, mode in _MODES.items() if name in wanted}


def _abstract(model: Model, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Shapes and types of a batch of two."""
    return {
        name: jax.ShapeDtypeStruct((2, *given.sizes(sizes)), jax.dtypes.canonicalize_dtype(given.dtype))
        for name, given in model.inputs.items()
    }


def _kind(variable: Any) -> Kind:
    """The kind of a leaf of NNX's state."""
    if isinstance(variable, nnx.RngState):
        return "random"
    if isinstance(variable, nnx.BatchStat):
        return "statistic"
    trained = isinstance(variable, nnx.Param) and _is_floating(jax.tree.leaves(variable)[0])
    return "parameter" if trained else "buffer"


def _flat(tree: Any, kind: Callable[[Any], Kind], skip: int = 0) -> tuple[list[Leaf], Any]:
    """The leaves of a tree of shapes, named by their paths without the first `skip` parts, and its structure."""
    paths, structure = jax.tree_util.tree_flatten_with_path(tree)
    leaves = [
        Leaf(
            jax.tree_util.keystr(path[skip:], simple=True, separator="."),
            tuple(leaf.shape),
            kind(path) if _is_floating(leaf) else "buffer",
        )
        for path, leaf in paths
    ]
    return leaves, structure


def _is_floating(leaf: Any) -> bool:
    return bool(jnp.issubdtype(leaf.dtype, jnp.floating))


def _renamed_from_haiku(leaf: Leaf) -> Leaf:
    """A leaf of Haiku's, such as `w` of `mlp/~/linear_0`, under Flax's names.

    Normalisations keep axes of length 1, which the canonical shape lacks.
    """
    module, _, name = leaf.name.partition(".")[2].rpartition(".")
    shape = leaf.canonical
    if leaf.kind == "statistic":
        module, _, average = module.rpartition("/")
        name = average.removesuffix("_ema")
    if leaf.kind == "statistic" or name in ("scale", "offset"):
        shape = leaf.shape[-1:]
    path = module.replace("/~", "").replace("~/", "").replace("/", ".")
    return Leaf(f"{path}.{_FROM_HAIKU.get(name, name)}", leaf.shape, leaf.kind, shape)


def _without_window(leaf: Leaf) -> Leaf:
    """A leaf of Equinox's. Convolutions keep their bias as (channels, 1, 1); its canonical shape is (channels,)."""
    if not leaf.name.endswith("bias") or len(leaf.shape) < 2 or set(leaf.shape[1:]) != {1}:
        return leaf
    return Leaf(leaf.name, leaf.shape, leaf.kind, leaf.shape[:1])
