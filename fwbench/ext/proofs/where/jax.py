"""Records the calls of modules in networks of Flax NNX, Flax Linen, Equinox and Haiku; other networks have none."""

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from flax import nnx
from jax.tree_util import keystr, tree_flatten_with_path

from fwbench.ext.proofs.where.calls import Array, Call, Module, Recorder, recording
from fwbench.frameworks.jax.functional import Network
from fwbench.frameworks.jax.kinds import Equinox, Haiku, Linen, Nnx


@contextlib.contextmanager
def recorded(network: Network) -> Iterator[list[Call]]:
    """Record the calls of a network's modules while it runs operator by operator."""
    module = functools.cache(_weights(network))
    with jax.disable_jit():
        if isinstance(network, (Linen, Haiku)):
            recorder = Recorder(_on_host)

            def record(call: Any, arguments: Any, keywords: Any, context: Any) -> Any:
                owner = context.module
                if context.method_name != "__call__":
                    return call(*arguments, **keywords)
                names = owner.path if isinstance(network, Linen) else owner.module_name.replace("~/", "").split("/")
                return recorder.call(module(".".join(names)), owner, call, *arguments, **keywords)

            with sys.modules["flax.linen" if isinstance(network, Linen) else "haiku"].intercept_methods(record):
                yield recorder.calls
        elif isinstance(network, (Nnx, Equinox)):
            base = nnx.Module if isinstance(network, Nnx) else sys.modules["equinox"].Module
            parts = _nnx if isinstance(network, Nnx) else _equinox
            with recording(base, lambda root: {id(part): module(path) for path, part in parts(root)}, _on_host) as made:
                yield made
        else:
            yield []


def _weights(network: Network) -> Callable[[str], Module]:
    """A function from a path to its module. The module's weights are known if they consist of its own leaves alone."""
    numbers = [np.full(leaf.shape, number, np.int32) for number, leaf in enumerate(network.leaves)]
    origins = {name: set(np.unique(array).tolist()) for name, array in network.canonical(numbers).items()}

    def module(path: str) -> Module:
        inside = {number for number, leaf in enumerate(network.leaves) if not path or leaf.name.startswith(f"{path}.")}
        names = [name for name, leaves in origins.items() if leaves & inside]
        whole = all(origins[name] <= inside for name in names)
        return Module(path, frozenset(names) if whole else None)

    return module


def _nnx(root: Any) -> Iterator[tuple[str, Any]]:
    for path, part in nnx.iter_graph(root):
        if isinstance(part, nnx.Module):
            yield ".".join(map(str, path)), part


def _equinox(root: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    module = sys.modules["equinox"].Module
    yield path, root
    for keys, part in tree_flatten_with_path(root, lambda part: part is not root and isinstance(part, module))[0]:
        if isinstance(part, module):
            yield from _equinox(part, ".".join(filter(None, [path, keystr(keys, simple=True, separator=".")])))


def _on_host(leaf: Any) -> Array | None:
    """A copy of a real array in float64, with the axes of `jax.vmap` first; None for anything else."""
    kinds = (jax.numpy.floating, jax.numpy.integer)
    if not isinstance(leaf, jax.Array) or not any(jax.numpy.issubdtype(leaf.dtype, kind) for kind in kinds):
        return None
    moved: list[int | None] = []
    while isinstance(leaf, jax.core.Tracer):
        # A tracer of `jax.vmap` holds numbers when it runs operator by operator; other tracers may hold none yet.
        if not hasattr(leaf, "batch_dim") or not hasattr(leaf, "val"):
            return None
        moved.append(leaf.batch_dim)
        leaf = leaf.val
    for axis in reversed(moved):
        leaf = leaf if axis is None else jax.numpy.moveaxis(leaf, axis, 0)
    return np.array(leaf, np.float64)
