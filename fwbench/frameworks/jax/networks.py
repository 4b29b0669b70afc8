"""Finds and builds the network that a model's import path names in JAX."""

import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any

import jax
from flax import nnx

from fwbench.frameworks.definitions import check_function, takes_inputs
from fwbench.frameworks.faults import faults
from fwbench.frameworks.jax.functional import Network
from fwbench.frameworks.jax.kinds import Equinox, Function, Haiku, Linen, Nnx, Pair
from fwbench.models import Model
from fwbench.models.importing import ModelError, arguments, load, parameters

_KINDS = (
    "a module of Flax NNX, Flax Linen or Equinox, a transformed function of Haiku, an object with init and apply, or a "
    "function of the inputs"
)


def network(model: Model, sizes: Mapping[str, int]) -> Network:
    """The network that a model names.

    Args:
        sizes: sizes of the model's axes.

    Raises:
        ModelError: its import path does not lead to one.
    """
    return _network(model, tuple(sizes.items()))


@functools.cache
def _network(model: Model, sizes: tuple[tuple[str, int], ...]) -> Network:
    """The network, cached, as Flax takes most of a second to build a large one."""
    path = model.networks["jax"]
    definition = load(path)
    if _is_module(definition) or (not inspect.isclass(definition) and _pair(definition)):
        return _built(model, dict(sizes), lambda seed=0: definition)
    if not callable(definition):
        raise ModelError(f"{path!r} is an object of type {type(definition).__name__} instead of {_KINDS}")
    given, known = arguments(definition, dict(sizes)), parameters(definition) or {}
    hidden = inspect.Parameter.VAR_POSITIONAL in {parameter.kind for parameter in known.values()}
    # A function that hides its parameters, such as a wrapper, takes inputs.
    if takes_inputs(model, "jax", definition, given, ("rngs", "key")) or (hidden and not inspect.isclass(definition)):
        return Function(model, functools.partial(definition, **given))

    def build(seed: int = 0) -> Any:
        random: dict[str, Any] = {}
        if "rngs" in known:
            random["rngs"] = nnx.Rngs(seed)
        if "key" in known:
            random["key"] = jax.random.key(seed)
        return definition(**given, **random)

    return _built(model, dict(sizes), build)


def _built(model: Model, sizes: Mapping[str, int], build: Callable[..., Any]) -> Network:
    """The network of the object that a builder returns."""
    path = model.networks["jax"]
    seen: list[Any] = []

    def arrays() -> Any:
        built = build()
        static, state = None, None
        if isinstance(built, nnx.Module):
            static, state = nnx.split(built)
        elif _has_state(built):
            raise ModelError(f"{path!r} has layers with a state (equinox.nn.State), which fwbench cannot carry along")
        elif isinstance(built, _modules("equinox")):
            state, static = sys.modules["equinox"].partition(built, sys.modules["equinox"].is_array)
        seen[:] = type(built), static
        return state

    # Shapes without storage: canonical weights take the place of the drawn ones.
    with faults(repr(path)):
        state = jax.eval_shape(arrays)
    kind, static = seen
    if issubclass(kind, nnx.Module):
        return Nnx(model, nnx.merge(static, state), build)
    if issubclass(kind, _modules("equinox")):
        return Equinox(model, static, state, build)
    # Built again, as networks of the other kinds must not hold values of a trace.
    with faults(repr(path)):
        built = build()
    if isinstance(built, _modules("flax.linen")):
        return Linen(model, built, sizes)
    if type(built).__module__.startswith("haiku."):
        return Haiku(model, built, sizes)
    if pair := _pair(built):
        return Pair(model, *pair, sizes)
    check_function(path, built, _KINDS)
    return Function(model, built)


def _pair(definition: Any) -> tuple[Callable[..., Any], Callable[..., Any]] | None:
    """`init` and `apply` of an object or a tuple that has them."""
    init, apply = getattr(definition, "init", None), getattr(definition, "apply", None)
    if isinstance(definition, tuple) and len(definition) == 2:
        init, apply = definition
    return (init, apply) if callable(init) and callable(apply) else None


def _is_module(definition: Any) -> bool:
    return isinstance(definition, (nnx.Module, *_modules("flax.linen"), *_modules("equinox")))


def _modules(library: str) -> tuple[type, ...]:
    """The library's class of modules, in a tuple; empty if the user's code has not imported the library."""
    return (sys.modules[library].Module,) if library in sys.modules else ()


def _has_state(built: Any) -> bool:
    """True if an Equinox network has layers that keep a state, or comes with their state."""
    if "equinox" not in sys.modules:
        return False
    kinds = (sys.modules["equinox"].nn.State, sys.modules["equinox"].nn.StateIndex)
    return any(isinstance(node, kinds) for node in jax.tree.leaves(built, is_leaf=lambda node: isinstance(node, kinds)))
