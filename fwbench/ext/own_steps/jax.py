"""A training step of the user's own in JAX: one compiled program, to which each call donates its state."""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from numpy.typing import NDArray

from fwbench.ext.own_steps import states
from fwbench.ext.own_steps.states import FILLERS, Names
from fwbench.frameworks.faults import faults
from fwbench.frameworks.jax.functional import Network
from fwbench.frameworks.jax.program import Compiled, Leaves, cast
from fwbench.frameworks.own_steps import WEIGHTS, Arithmetic
from fwbench.frameworks.training import targets
from fwbench.models import Model
from fwbench.models.importing import ModelError
from fwbench.models.weights import Weights
from fwbench.record.workload import Workload


class OwnStep(Compiled):
    """The user's step on a batch that lies on the device. Its arithmetic is the user's, whatever the precision."""

    def __init__(self, workload: Workload, model: Model, weights: Weights) -> None:
        super().__init__(workload, model, weights, jnp.float64 if workload.precision == "fp64" else jnp.float32)
        self.make_state, self.user_step = states.functions(model, "jax")
        self.inputs = {name or "inputs": array for name, array in self.inputs.items()}
        if model.targets:
            wanted: Any = targets(workload, model, ())
            self.inputs["targets"] = jax.device_put(cast(wanted, self.dtype), self.device)
        self.settings |= {"train_step": model.train_step["jax"], "state": "donated"}
        self.own_names = list(own_names(self.network, self.leaves))
        self._begin(self.leaves)
        del self.leaves
        self.function = jax.jit(self._step, donate_argnums=0)
        self.metric_names: tuple[str, ...] = ()
        self.out: Leaves = []

    def _begin(self, leaves: Leaves) -> None:
        with faults(f"{self.network.model.train_state['jax']!r}"):
            made = self.make_state(self.network.assembled(leaves, train=True))
            self.paths, arrays, self.whole = taken_apart(made)
        if self.dtype == jnp.float64:
            arrays = [cast(array, self.dtype) for array in arrays]
        # A call frees the arrays that are donated to it, so leaves that are one array become several.
        self.state: Leaves = jax.device_put([jnp.array(array, copy=True) for array in arrays], self.device)
        shapes = {path: tuple(array.shape) for path, array in zip(self.paths, self.state, strict=True)}
        weights = zip(self.own_names, self.network.leaves, strict=True)
        self.names = Names(self.network.model, shapes, {name: leaf.shape for name, leaf in weights if leaf.is_weight})

    def _step(self, state: Leaves, batch: Mapping[str, jax.Array]) -> tuple[Leaves, Leaves]:
        model = self.network.model
        with faults(f"the training step of {model.name}"):
            returned = self.user_step(self.whole(state), dict(batch))
        after, metrics = states.divided(model, "jax", returned)
        (paths, arrays, _), (names, numbers, _) = taken_apart(after), taken_apart(metrics)
        self._same(dict(zip(paths, arrays, strict=True)), dict(zip(self.paths, state, strict=True)))
        self.metric_names = tuple(name or "loss" for name in names)
        return arrays, numbers

    def _same(self, returned: Mapping[str, Any], taken: Mapping[str, Any]) -> None:
        """Raise ModelError if a step returns a state of other paths, shapes or types than it takes."""
        model = self.network.model
        for path in {**taken, **returned}:
            kinds = [f"{of[path].dtype}{of[path].shape}" if path in of else "nothing" for of in (taken, returned)]
            if kinds[0] != kinds[1]:
                raise ModelError(
                    f"the training step of {model.name} in jax takes {kinds[0]} as {path!r} of its state, and returns "
                    f"{kinds[1]}: a step's state keeps its structure, shapes and element types"
                )

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The arguments of the next call; each call frees the state."""
        return self.state, self.inputs

    def step(self) -> None:
        self.state, self.out = self.compiled(self.state, self.inputs)

    def wait(self) -> None:
        # The state is ready with the metrics, and waiting for its hundreds of arrays would cost more.
        jax.block_until_ready(self.out)

    def metrics(self) -> dict[str, float]:
        arrays = map(np.asarray, self.out)
        return states.scalars(self.network.model, dict(zip(self.metric_names, arrays, strict=True)))

    def output(self) -> NDArray[Any]:
        return np.array(list(self.metrics().values()))

    def weights(self) -> Weights:
        return self._canonical(self.names.roles[WEIGHTS])

    def state_leaves(self) -> dict[str, NDArray[Any]]:
        arrays = dict(zip(self.paths, self.state, strict=True))
        leaves = states.gathered(
            (role, np.asarray(arrays[path]))
            for path, (role, name) in self.names.of.items()
            if not (name or jnp.issubdtype(arrays[path].dtype, jax.dtypes.prng_key))
        )
        for role, paths in self.names.roles.items():
            leaves |= {f"{role}.{name}": array for name, array in self._canonical(paths).items()}
        return leaves

    def _canonical(self, paths: Mapping[str, str]) -> Weights:
        """The arrays of a role under canonical names. A role may lack arrays for some weights."""
        arrays = dict(zip(self.paths, self.state, strict=True))
        weights = [(leaf, paths.get(name)) for name, leaf in zip(self.own_names, self.network.leaves, strict=True)]
        exported = self.network.export([arrays[path] if path else np.zeros(leaf.shape) for leaf, path in weights])
        held = self.network.canonical([np.full(leaf.shape, path is not None) for leaf, path in weights])
        return {name: array for name, array in exported.items() if np.all(held[name])}

    def arithmetic(self) -> Arithmetic:
        program = str(self.function.trace(*self.arguments).jaxpr)  # type: ignore[attr-defined]
        random = any(word in program for word in ("random_bits", "threefry2x32", "rng_bit_generator"))
        return Arithmetic(frozenset(self.lowered.dtypes or ()), random)

    def restart(self, weights: Mapping[str, NDArray[Any]], draw: int = 0) -> None:
        # Freed before the new state is made, as a device may not hold both.
        self.state = []
        self._begin(self._loaded(weights))

    def relocate(self) -> None:
        self.state, self.inputs = self.devices.copied((self.state, self.inputs))


def own_names(network: Network, leaves: Leaves) -> list[str]:
    """For each of a network's leaves, the end of the path by which a state names it."""
    parts = (path.split(".") for path in taken_apart(network.assembled(leaves, train=True))[0])
    return [".".join(of[1:] if of[0] in FILLERS else of) for of in parts]


def taken_apart(tree: Any) -> tuple[tuple[str, ...], Leaves, Callable[[Sequence[Any]], Any]]:
    """Take a tree apart: modules and optimizers of Flax NNX, Equinox's modules, and any tree of JAX.

    Returns:
        The paths of its arrays, joined by dots; its arrays in the same order, and numbers as arrays; and a function
        that makes the tree from such arrays.
    """
    modules = (nnx.Module, nnx.Optimizer)
    if any(isinstance(part, modules) for part in jax.tree.leaves(tree, is_leaf=lambda part: isinstance(part, modules))):
        graph, state = nnx.split(tree)
        structure = jax.tree.structure(state)
        paths = tuple(".".join(map(str, path)) for path, _ in nnx.to_flat_state(state))
        return paths, jax.tree.leaves(state), lambda arrays: nnx.merge(graph, jax.tree.unflatten(structure, arrays))
    leaves, structure = jax.tree.flatten(tree)
    # `nnx.split` returns a tree of variables. The path of a variable is that of its array.
    parts, _ = jax.tree_util.tree_flatten_with_path(tree, is_leaf=lambda part: isinstance(part, nnx.Variable))
    found = zip((path for path, part in parts for _ in jax.tree.leaves(part)), leaves, strict=True)
    # Equinox's modules keep settings as numbers, which are no part of its states.
    equinox: Any = sys.modules.get("equinox")
    settings = equinox and any(
        isinstance(part, equinox.Module)
        for part in jax.tree.leaves(tree, is_leaf=lambda part: isinstance(part, equinox.Module))
    )
    kinds = jax.Array | np.ndarray if settings else jax.Array | np.ndarray | bool | int | float

    def whole(arrays: Sequence[Any]) -> Any:
        given = iter(arrays)
        return jax.tree.unflatten(structure, [next(given) if isinstance(leaf, kinds) else leaf for leaf in leaves])

    chosen = [(path, leaf) for path, leaf in found if isinstance(leaf, kinds)]
    paths = tuple(jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in chosen)
    return paths, [jnp.asarray(leaf) for _, leaf in chosen], whole
