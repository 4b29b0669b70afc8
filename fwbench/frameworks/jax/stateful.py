"""A network with a state in JAX: the state, and a call."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fwbench.frameworks.jax.functional import Network
from fwbench.frameworks.jax.program import Leaves, cast
from fwbench.models import Model, stateful
from fwbench.models.importing import ModelError
from fwbench.models.outputs import select


def stepped(network: Network, leaves: Leaves, inputs: Mapping[str, jax.Array], state: Any) -> tuple[jax.Array, Any]:
    """Output and state of a call in inference mode.

    Raises:
        ModelError: the network raised an exception, or returned no such pair.
    """
    returned, _ = network._returned(leaves, {**inputs, stateful.STATE: state}, False, None)
    output = select(network.model, "jax", returned, len(next(iter(inputs.values()))))
    return output, stateful.divided(network.model, "jax", returned)[1]


def placed_state(model: Model, state: Any, device: jax.Device, dtype: Any) -> Any:
    """A state on the device, its floating-point arrays in this number format.

    Raises:
        ModelError: the state holds an object that is neither an array nor a number.
    """

    def placed(leaf: Any) -> jax.Array:
        if not isinstance(leaf, jax.Array | np.ndarray | int | float):
            raise ModelError(
                f"the state of {model.name} in JAX holds an object of type {type(leaf).__name__}: make it of arrays, "
                "numbers, and lists, tuples or dicts of these"
            )
        return jax.device_put(cast(jnp.asarray(leaf), dtype), device)

    return jax.tree.map(placed, state)
