"""The random numbers that a network draws in JAX."""

import functools
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.random import define_prng_impl, threefry_prng_impl

from fwbench.ext.proofs.case import Array
from fwbench.ext.proofs.draws import Draw
from fwbench.ext.proofs.jax import JaxSide

# A seed that no network's own streams have.
_SEED = 2**31 - 1


class Source:
    """Keys that are split and folded as JAX's own are, and whose draws are noted, or replaced by given numbers.

    Every key has its numbers wherever it draws: in a loop, a batch, a compiled function or a repeated forward pass.
    A key that draws twice draws the same. A key of JAX's own, such as a constant in the network's code, draws what it
    always draws.

    Attributes: see `fwbench.ext.proofs.draws.Source`.
    """

    def __init__(self) -> None:
        self.draws: list[Draw] = []
        self.numbers: Sequence[Array] | None = None
        # The draw of each key, its row in the draw, and the number of rows.
        self._places: dict[bytes, tuple[int, int, int]] = {}
        own = threefry_prng_impl
        self._kind = define_prng_impl(
            key_shape=own.key_shape,
            seed=own.seed,
            split=own.split,
            fold_in=own.fold_in,
            random_bits=self._bits,
            name="shared",
            tag="shared",
        )

    @property
    def key(self) -> jax.Array:
        """The key with which a network is called."""
        return jax.random.key(_SEED, impl=self._kind)

    def shared(self, array: Any) -> Any:
        """The state of a random stream, with a key of this source; any other array unchanged."""
        is_key = jnp.issubdtype(array.dtype, jax.dtypes.prng_key)
        return jax.random.wrap_key_data(jax.random.key_data(array), impl=self._kind) if is_key else array

    def recording(self) -> AbstractContextManager[None]:
        """A context in which loops and compiled functions run operator by operator, in the program's order."""
        return jax.disable_jit()

    def runner(self, side: JaxSide) -> Callable[[], Array]:
        """A function that computes the side's output in training mode at the main point."""
        arguments = side.arguments()

        def run() -> Array:
            with side.arithmetic():
                return np.asarray(side._apply(*arguments)[1][0])

        return run

    def _bits(self, key: Any, width: int, shape: tuple[int, ...]) -> Any:
        # In two words, as a callback's thread may not have the case's 64 bits switched on.
        words = (2,) if width == 64 else ()
        kind = np.dtype(f"uint{min(width, 32)}")
        drawn = jax.ShapeDtypeStruct((*shape, *words), kind)  # type: ignore[no-untyped-call, unused-ignore]
        bits = jax.pure_callback(functools.partial(self._drawn, width, shape), drawn, key, vmap_method="expand_dims")
        return jax.lax.bitcast_convert_type(bits, np.uint64) if words else bits

    def _drawn(self, width: int, shape: tuple[int, ...], keys: Any) -> Array:
        """The bits of a batch of keys, shape (*batch, *shape); 64 bits are two words, the lower one first."""
        keys = np.asarray(keys)
        batch, names = keys.shape[:-1], [key.tobytes() for key in keys.reshape(-1, keys.shape[-1])]
        if self.numbers is None and not self._places.keys() >= set(names):
            for row, name in enumerate(names):
                self._places.setdefault(name, (len(self.draws), row, len(names)))
            self.draws.append(Draw((*batch, *shape)))
        rows = np.array([self._row(name, math.prod(shape)) for name in names])
        bits = (rows * 2.0**width).astype(f"<u{width // 8}").reshape(*batch, *shape)
        return bits.view("<u4").reshape(*batch, *shape, 2) if width == 64 else bits

    def _row(self, name: bytes, size: int) -> Array:
        """The numbers of a key; those of a key that is not known depend on it alone."""
        if self.numbers is None or name not in self._places:
            return np.random.default_rng(list(name)).random(size)
        place, row, rows = self._places[name]
        return np.resize(self.numbers[place].reshape(rows, -1)[row], size)
