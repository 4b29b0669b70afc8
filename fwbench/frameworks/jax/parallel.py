"""The devices on which a JAX program runs: one, or several with a slice of the batch each (data parallelism).

Each of several devices runs the one-device program on its slice under `jax.shard_map`, whether the devices belong to
one process or to many. State is the same everywhere. A training step averages gradients by all-reduce and by nothing
else, as jax's reduce-scatter over gloo has returned wrong values (jax #40830).
"""

import socket
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from numpy.typing import NDArray

from fwbench.frameworks.contract import Ranks
from fwbench.record.workload import Workload

_AXIS = "devices"
_EVERYWHERE, _DIVIDED = PartitionSpec(), PartitionSpec(_AXIS)

# Seconds for every rank to reach the first rank, and for the first to see all. The second wait is longer, as JAX ends a
# process that waits in vain.
_FINDING, _MEETING = 30, 60

Result = Literal["same", "own"]


def join(ranks: Ranks) -> None:
    """Make this process one of several whose devices JAX treats as one machine's. Called before JAX opens a device.

    Raises:
        OSError: the ranks do not find each other.
    """
    # The port is checked first: if the ranks cannot meet, JAX ends the process instead of raising an exception.
    problem = ranks.gather(_taken(ranks.address) if ranks.rank == 0 else None)[0]
    if problem:
        raise OSError(f"JAX's ranks cannot meet at {ranks.address}: {problem}")
    if ranks.rank:
        _find(ranks.address)
    config: Any = jax.config
    # For CPUs; GPUs use NCCL.
    config.update("jax_cpu_collectives_implementation", "gloo")
    # If a rank is lost, the next step of the others then raises an exception instead of ending their processes.
    config.update("jax_enable_recoverability", True)
    jax.distributed.initialize(
        ranks.address,
        ranks.size,
        ranks.rank,
        # With all of this given, JAX does not ask Slurm, Open MPI or Kubernetes.
        cluster_detection_method="deactivate",
        initialization_timeout=_MEETING,
        # By default it listens on all of the host's interfaces, even if all ranks are on this host.
        coordinator_bind_address=ranks.address if _host(ranks.address)[0] in ("localhost", "127.0.0.1") else None,
    )


def leave(ranks: Ranks | None) -> None:
    """Undo `join`; the first rank leaves last, as losing it ends the others' processes."""
    if ranks is None or not jax.distributed.is_initialized():
        return
    try:
        if ranks.rank:
            jax.distributed.shutdown()
        ranks.agree(0.0)
    finally:
        if not ranks.rank:
            jax.distributed.shutdown()


def _taken(address: str) -> str | None:
    """The reason why no process can listen at an address of this host; None if one can."""
    try:
        socket.create_server(_host(address)).close()
    except OSError as error:
        return (error.strerror or str(error)).partition(" (")[0]
    return None


def _find(address: str) -> None:
    """Wait until the first rank listens."""
    until = time.monotonic() + _FINDING
    while True:
        try:
            return socket.create_connection(_host(address), timeout=_FINDING).close()
        except OSError as error:
            if time.monotonic() >= until:
                raise OSError(
                    f"JAX's first rank was not found at {address} within {_FINDING} s ({error.strerror or error})"
                ) from error
            time.sleep(0.05)


def _host(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


def lacking(workload: Workload, ranks: Ranks | None) -> str | None:
    """The reason why a workload's devices are not available, as one sentence; None if they are."""
    if workload.devices == 1 and ranks is None:
        return None
    if workload.target and workload.devices > 1:
        return "JAX compiles for a GPU that is not here as one device, and not as several"
    size = ranks.size if ranks else 1
    if workload.devices % size:
        return f"{workload.devices} devices cannot be shared equally by {size} processes"
    needed = workload.devices // size
    counts = [len(devices) for devices in _by_process(workload.device)]
    if len(counts) != size or min(counts) < needed:
        per_process = "" if size == 1 else f" in each of {size} processes"
        here = min(counts) if len(counts) == size else f"those of {len(counts)} processes"
        kind = {"cpu": "CPU", "gpu": "GPU"}[workload.device]
        return f"the workload needs {needed} {kind} devices{per_process}, and JAX has {here}"
    return None


def devices(workload: Workload, ranks: Ranks | None) -> "Devices":
    """The devices that a workload runs on; `lacking` says whether they are available."""
    if workload.devices == 1:
        return Devices(jax.local_devices(backend=workload.device)[0])
    each = workload.devices // (ranks.size if ranks else 1)
    return Several([device for local in _by_process(workload.device) for device in local[:each]])


def _by_process(kind: str) -> list[list[jax.Device]]:
    """All processes' devices of a kind, in the order of their ranks."""
    every = sorted(jax.devices(kind), key=lambda device: (device.process_index, device.id))
    numbers = sorted({device.process_index for device in every})
    return [[device for device in every if device.process_index == number] for number in numbers]


class Devices:
    """The devices of a program: they hold its arrays, and a function becomes a program on them. Here it is one device.

    Attributes:
        local: this process's devices, in the order of their slices.
    """

    def __init__(self, device: jax.Device) -> None:
        self.local: tuple[Any, ...] = (device,)

    def everywhere(self, tree: Any) -> Any:
        """Copy arrays that are the same in all processes to every device.

        Each copy has a buffer of its own: XLA cannot donate a shared buffer or NumPy's memory, and the first step would
        then need more memory than later ones.
        """
        return jax.tree.map(lambda array: _copied(array, self.local[0]), tree)

    def divided(self, batch: Any, place: Callable[[Any, Any], Any]) -> Any:
        """Divide a global batch into a slice for each device.

        Args:
            batch: NumPy arrays, samples first.
            place: puts a slice of such a batch on a device.
        """
        return place(batch, self.local[0])

    def own(self, tree: Any) -> Any:
        """This process's first device's copies of arrays that lie on all devices."""
        return tree

    def rows(self, array: jax.Array) -> NDArray[Any]:
        """Copy the rows that this process's devices have computed to the host, from a result of kind `own`."""
        return np.asarray(array)

    def copied(self, tree: Any) -> Any:
        """The tree with a fresh buffer for every array."""
        return copied(tree)

    def spread(self, function: Callable[..., Any], result: Result) -> Callable[..., Any]:
        """The function for all devices: each gets the whole first argument, and its slices of the others.

        Args:
            result: `same` if all devices return the same result, `own` if each returns its own.
        """
        return function

    # The methods below are called inside such a function.

    def mean(self, tree: Any) -> Any:
        """The mean over the devices."""
        return tree

    def sum(self, tree: Any) -> Any:
        """The sum over the devices."""
        return tree

    def first(self, leaves: Sequence[Any]) -> list[Any]:
        """The first device's values."""
        return list(leaves)

    def keys(self, key: Any, parts: int) -> Any:
        """A random key for each part of this device's slice. All devices' keys together equal those of one device."""
        return [key] if parts == 1 else jax.random.split(key, parts)

    def streams(self, leaves: Sequence[Any]) -> list[Any]:
        """Leaves of a network's state, with random keys changed so that each device draws different numbers."""
        return list(leaves)


def _copied(array: Any, device: Any) -> jax.Array:
    """Copy an array to a device, into a buffer of its own."""
    if isinstance(array, np.ndarray) and array.flags.c_contiguous and array.ctypes.data % 64 == 0:
        # On a CPU `device_put` shares memory that is aligned to 64 bytes, even with `may_alias=False`. This copy begins
        # one number after an aligned address, so that JAX has to copy it.
        array = np.concatenate([array.ravel()[:1], array.ravel()])[1:].reshape(array.shape)
    return jax.device_put(array, device, may_alias=False)


class Several(Devices):
    """The devices of a mesh with one axis."""

    def __init__(self, every: Sequence[jax.Device]) -> None:
        """
        Args:
            every: the devices of all processes, in the order of their slices.
        """
        self._mesh = Mesh(np.array(every), (_AXIS,))
        self._count = len(every)
        mine = [(number, device) for number, device in enumerate(every) if device.process_index == jax.process_index()]
        self._numbers, self.local = zip(*mine, strict=True)

    def everywhere(self, tree: Any) -> Any:
        def put(array: Any) -> jax.Array:
            return self._array(array.shape, _EVERYWHERE, [_copied(array, device) for device in self.local])

        return jax.tree.map(put, tree)

    def divided(self, batch: Any, place: Callable[[Any, Any], Any]) -> Any:
        def part(number: int) -> Any:
            return jax.tree.map(lambda array: np.split(array, self._count)[number], batch)

        def whole(*shards: jax.Array) -> jax.Array:
            samples, *shape = shards[0].shape
            return self._array((self._count * samples, *shape), _DIVIDED, list(shards))

        return jax.tree.map(whole, *(place(part(number), device) for number, device in self._mine()))

    def own(self, tree: Any) -> Any:
        return jax.tree.map(lambda array: array.addressable_data(0), tree)

    def rows(self, array: jax.Array) -> NDArray[Any]:
        shards = {shard.device: shard.data for shard in array.addressable_shards}
        return np.concatenate([np.asarray(shards[device])[0] for device in self.local])

    def copied(self, tree: Any) -> Any:
        def copy(array: jax.Array) -> jax.Array:
            shards = [copied(shard.data) for shard in array.addressable_shards]
            return jax.make_array_from_single_device_arrays(array.shape, array.sharding, shards)

        return jax.tree.map(copy, tree)

    def spread(self, function: Callable[..., Any], result: Result) -> Callable[..., Any]:
        def of_device(*arguments: Any) -> Any:
            output = function(*arguments)
            return output if result == "same" else jax.tree.map(lambda array: array[None], output)

        def spread(first: Any, *rest: Any) -> Any:
            return jax.shard_map(
                of_device,
                mesh=self._mesh,
                in_specs=(_EVERYWHERE, *(_DIVIDED for _ in rest)),
                out_specs=_EVERYWHERE if result == "same" else _DIVIDED,
                # With the check on, differentiation would itself sum gradients over the devices, one by one.
                check_vma=False,
            )(first, *rest)

        return spread

    def mean(self, tree: Any) -> Any:
        return jax.lax.pmean(tree, _AXIS)

    def sum(self, tree: Any) -> Any:
        return jax.lax.psum(tree, _AXIS)

    def first(self, leaves: Sequence[Any]) -> list[Any]:
        leads = jax.lax.axis_index(_AXIS) == 0

        def of_first(array: Any) -> Any:
            if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
                return jax.random.wrap_key_data(of_first(jax.random.key_data(array)), impl=jax.random.key_impl(array))
            if array.dtype == bool:
                return of_first(array.astype(jnp.int8)).astype(bool)
            return jax.lax.psum(jnp.where(leads, array, jnp.zeros_like(array)), _AXIS)

        return [of_first(array) for array in leaves]

    def keys(self, key: Any, parts: int) -> Any:
        every = jax.random.split(key, self._count * parts)
        return jax.lax.dynamic_slice_in_dim(every, jax.lax.axis_index(_AXIS) * parts, parts)

    def streams(self, leaves: Sequence[Any]) -> list[Any]:
        number = jax.lax.axis_index(_AXIS)
        return [
            jax.random.fold_in(leaf, number) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf
            for leaf in leaves
        ]

    def _mine(self) -> list[tuple[int, Any]]:
        return list(zip(self._numbers, self.local, strict=True))

    def _array(self, shape: tuple[int, ...], spec: PartitionSpec, shards: list[jax.Array]) -> jax.Array:
        return jax.make_array_from_single_device_arrays(shape, NamedSharding(self._mesh, spec), shards)


@jax.jit
def copied(tree: Any) -> Any:
    """The tree with a fresh buffer for every array."""
    return jax.tree.map(jnp.copy, tree)
