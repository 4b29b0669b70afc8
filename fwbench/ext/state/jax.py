"""A call of a network with a state in JAX: a prompt (`prefill`), or one further step (`decode`)."""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from fwbench.frameworks.jax.flops import counted
from fwbench.frameworks.jax.options import known
from fwbench.frameworks.jax.program import DTYPE, Compiled, Leaves
from fwbench.frameworks.jax.stateful import placed_state, stepped
from fwbench.models import Model, stateful
from fwbench.models.importing import ModelError
from fwbench.models.weights import Weights
from fwbench.record.measurement import Metric
from fwbench.record.workload import Workload

# XLA's options for a program that runs only a few times: optimising it would take longer than it saves.
_AS_WRITTEN = {"xla_backend_optimization_level": 0}
# Largest distance of two results of the same call, in units in the last place.
_ROUNDINGS = 64


class Stateful(Compiled):
    """Every call starts from the same state: the empty one, or the one that the steps before have filled.

    Leaves that a further call would write again, such as a cache, are donated, and go from call to call. Each call
    takes all others, such as a position, with their first values. Calls return the whole state. Arguments are those of
    `Forward`.
    """

    def __init__(self, workload: Workload, model: Model, weights: Weights, ranks: None = None) -> None:
        super().__init__(workload, model, weights, DTYPE[workload.precision], ranks)
        self.workload = workload
        filling = stateful.filling(model, workload)
        self.filling = None if filling is None else self._placed(filling)
        self._stepped = jax.jit(self._call, compiler_options=known(_AS_WRITTEN))
        self.structure: Any
        state, self.structure = jax.tree.flatten(self._initial())
        self.donated = self._written_again(state)
        self.settings["state"] = "donated" if any(self.donated) else "returned anew"
        self._take(state)
        self.function = jax.jit(self._flat, donate_argnums=2)
        # A CPU may run independent calls out of order, so all outputs are held, except those that the next call
        # overwrites.
        self.pending: deque[Any] = deque(maxlen=None if self.device.platform == "cpu" else 1)
        self.out: Any = (jnp.zeros(()), [])

    def _initial(self) -> Any:
        """The state that every call starts from."""
        sizes = stateful.sizes(self.network.model, self.workload)
        made = stateful.empty(self.network.model, "jax", self.workload.batch_size, sizes)
        state = placed_state(self.network.model, made, self.device, self.dtype)
        return state if self.filling is None else self._stepped(self.leaves, self.filling, state)[1]

    def _call(self, leaves: Leaves, inputs: Mapping[str, jax.Array], state: Any) -> tuple[jax.Array, Any]:
        return stepped(self.network, leaves, inputs, state)

    def _flat(
        self, leaves: Leaves, inputs: Mapping[str, jax.Array], donated: Leaves, kept: Leaves
    ) -> tuple[jax.Array, Leaves, Leaves]:
        """The output, and the state's leaves after the call: those that were donated, and the others."""
        taken = {True: iter(donated), False: iter(kept)}
        state = jax.tree.unflatten(self.structure, [next(taken[of]) for of in self.donated])
        output, after = self._call(leaves, inputs, state)
        return output, *_divided(jax.tree.leaves(after), self.donated)

    def _written_again(self, first: Leaves) -> list[bool]:
        """For each leaf, True if a second call leaves it as the first call wrote it, so that it may be donated."""

        def called(state: Leaves) -> Leaves:
            after = self._stepped(self.leaves, self.inputs, jax.tree.unflatten(self.structure, state))[1]
            if jax.tree.structure(after) != self.structure:
                raise ModelError(
                    f"the network of {self.network.model.name} in JAX returns a state of another structure than it "
                    f"takes: {jax.tree.structure(after)}, and not {self.structure}"
                )
            return jax.tree.leaves(after)

        once = called(first)
        carried = [
            jnp.issubdtype(old.dtype, jnp.floating) and (old.shape, old.dtype) == (new.shape, new.dtype)
            for old, new in zip(first, once, strict=True)
        ]
        twice = called([new if of else old for old, new, of in zip(first, once, carried, strict=True)])
        return [of and _same(one, two) for of, one, two in zip(carried, once, twice, strict=True)]

    def _take(self, state: Leaves) -> None:
        # A call frees the arrays that are donated to it, so leaves that are one array become several.
        self.carried, self.kept = _divided([jnp.copy(leaf) for leaf in state], self.donated)

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The arguments of the next call; each call frees the donated leaves."""
        return self.leaves, self.inputs, self.carried, self.kept

    def step(self) -> None:
        output, self.carried, kept = self.compiled(*self.arguments)
        self.out = (output, kept)
        self.pending.append(self.out)

    def wait(self) -> None:
        jax.block_until_ready((list(self.pending), self.carried))
        self.pending.clear()

    def output(self) -> NDArray[Any]:
        return np.asarray(self.out[0]).astype(np.float32, copy=False)

    def restart(self, weights: Mapping[str, NDArray[Any]], draw: int = 0) -> None:
        self.leaves = list(map(self.devices.everywhere, self.network.replaced_weights(self.leaves, weights)))
        self._take(jax.tree.leaves(self._initial()))

    def relocate(self) -> None:
        self.leaves, self.inputs, self.carried, self.kept = self.devices.copied(self.arguments)

    def state_memory(self) -> Metric:
        return Metric(float(sum(leaf.nbytes for leaf in (*self.carried, *self.kept))), "the arrays that a call takes")

    def forward_flops(self) -> float:
        return counted(self.function, *self.arguments)


def _divided(leaves: Sequence[Any], donated: Sequence[bool]) -> tuple[Leaves, Leaves]:
    pairs = list(zip(leaves, donated, strict=True))
    return [leaf for leaf, of in pairs if of], [leaf for leaf, of in pairs if not of]


def _same(one: jax.Array, other: jax.Array) -> bool:
    """True if two arrays are equal but for rounding: a GPU may round a sum differently at each call."""
    first, second = (np.asarray(array).astype(np.float64) for array in (one, other))
    unit = float(jnp.finfo(one.dtype).eps)
    return bool(np.linalg.norm(first - second) <= _ROUNDINGS * unit * np.linalg.norm(first))
