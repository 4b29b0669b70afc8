"""Ray as a pool's engine: one actor per accelerator of the cluster at RAY_ADDRESS, or of this machine.

Ray only hands out accelerators. An actor measures by ordinary workers, in processes without Ray.
"""

import os
import secrets
import signal
import socket
import threading
from collections.abc import Collection, Hashable, Sequence
from typing import Any

from fwbench.errors import UserError
from fwbench.worker.pool import Engine, LostError, Place, places
from fwbench.worker.scratch import Scratch
from fwbench.worker.slot import Slot

# A node without GPUs offers so many accelerators of this name: one, unless a test claims more.
RESOURCE = "fwbench_cpu"

# Set before Ray is imported, as Ray reads some of them then; variables that the user has set win.
_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Stops Ray's warning that a task without GPUs will see the GPUs.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
# For a cluster on this machine alone.
_LOCAL = {
    # Ray stays on the loopback device only if told that it can have no other machines.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_AUTH_MODE": "token",
}
_LOOPBACK = "127.0.0.1"

# For a cluster on this machine alone: processes that measure keep the usual priority, and fwbench, not Ray, reports
# that memory ran out.
_CONFIG = {"worker_niceness": 0, "memory_monitor_refresh_ms": 0}

# Bytes of Ray's store for large objects, which fwbench does not use; Ray's minimum is 75 MiB.
_STORE = 80 * 2**20

# Bytes that the path of a socket may have, less what Ray appends to its folder's.
_LONGEST = 107 - 66

# Seconds for a cluster to answer.
_ANSWERS = 10.0

_ASIDE = "aside"


class Ray(Engine):
    """A cluster, joined or started.

    Raises:
        UserError: it cannot be reached, or has no accelerators; one sentence.
    """

    name = "Ray"

    def __init__(self) -> None:
        address = os.environ.get("RAY_ADDRESS", "")
        if "://" in address:
            raise UserError(
                f"RAY_ADDRESS={address}: run pytest on a node of the cluster, and let RAY_ADDRESS be auto or its "
                "HOST:PORT"
            )
        if address:
            _reach(address)
        self._before = {name: os.environ.get(name) for name in (*_QUIET, *_LOCAL, "RAY_AUTH_TOKEN")}
        self._scratch: Scratch | None = None
        self._ray: Any = None
        _set({name: value for name, value in _QUIET.items() if name not in os.environ})
        if not address:
            _set({**_LOCAL, "RAY_AUTH_TOKEN": secrets.token_hex(32)})
        import ray

        self._ray = ray
        main = threading.current_thread() is threading.main_thread()
        handler = signal.getsignal(signal.SIGTERM) if main else None
        try:
            ray.init(
                address=address or "local",
                logging_level="ERROR",
                log_to_driver=False,
                configure_logging=False,
                **({} if address else self._embedded()),
            )
            self._actor = _actor()
            nodes = [node for node in ray.nodes() if node["Alive"]]
            gpu = any(node["Resources"].get("GPU", 0) >= 1 for node in nodes)
            self._kind = "GPU" if gpu else RESOURCE
            counts = {node["NodeID"]: int(node["Resources"].get(self._kind, 0)) for node in nodes}
            self.places = places([(n["NodeID"], n["NodeManagerHostname"], counts[n["NodeID"]]) for n in nodes], gpu)
            # Keeps other work of the cluster off the CPUs of a node that measures.
            self._cpus = {n["NodeID"]: int(n["Resources"].get("CPU", 0)) // max(1, counts[n["NodeID"]]) for n in nodes}
            if not self.places:
                raise UserError(
                    f"the Ray cluster at {address} has neither GPUs nor {RESOURCE}: start each node that shall measure "
                    f"by `ray start --resources '{{\"{RESOURCE}\": 1}}' ...`"
                )
        except (ConnectionError, RuntimeError, ValueError) as error:
            self.close()
            where = f"the Ray cluster at {address} cannot be joined" if address else "Ray cannot be started here"
            raise UserError(f"{where} ({' '.join(str(error).split())[:300]})") from None
        except BaseException:
            self.close()
            raise
        finally:
            if main:
                # Ray has replaced the handlers; restore ours, so that a signal ends the run in order.
                signal.signal(signal.SIGTERM, handler)

    def _embedded(self) -> dict[str, Any]:
        """The arguments that start a cluster on this machine alone.

        Raises:
            UserError: the paths of its sockets would be too long.
        """
        self._scratch = Scratch()
        if len(str(self._scratch.path)) > _LONGEST:
            raise UserError(
                f"TMPDIR={self._scratch.path.parent} is too long for the sockets that Ray makes in it: name a folder "
                "with a shorter path"
            )
        return {
            "_node_ip_address": _LOOPBACK,
            "_temp_dir": str(self._scratch.path),
            "_system_config": _CONFIG,
            "include_dashboard": False,
            # Ray would start a process for each CPU beforehand.
            "num_cpus": 0,
            # Ray's own variable says something else, and Ray would warn about it.
            "resources": None if "RAY_OVERRIDE_RESOURCES" in os.environ else {RESOURCE: 1},
            "object_store_memory": _STORE,
        }

    def start(self, place: Place, arguments: Sequence[Any]) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        options = {"num_gpus": 1} if place.gpu else {"resources": {RESOURCE: 1}}
        on_its_node = NodeAffinitySchedulingStrategy(place.node, soft=False)
        cpus = self._cpus[place.node]
        return self._actor.options(num_cpus=cpus, scheduling_strategy=on_its_node, **options).remote(*arguments)

    def ask(self, handle: Any, method: str, *arguments: Any, aside: bool = False) -> Hashable:
        bound = getattr(handle, method)
        ticket: Hashable = (bound.options(concurrency_group=_ASIDE) if aside else bound).remote(*arguments)
        return ticket

    def wait(self, tickets: Collection[Hashable], seconds: float) -> Collection[Hashable]:
        done, _ = self._ray.wait(list(tickets), num_returns=1, timeout=seconds)
        # All nodes that have joined by now.
        done, _ = self._ray.wait(list(tickets), num_returns=len(tickets), timeout=0) if done else ([], [])
        return set(done)

    def answer(self, ticket: Hashable) -> Any:
        from ray.exceptions import ActorUnschedulableError, RayActorError

        try:
            return self._ray.get(ticket)
        except (RayActorError, ActorUnschedulableError) as error:
            raise LostError(str(error)) from None

    def alive(self, place: Place) -> bool:
        return any(node["NodeID"] == place.node and node["Alive"] for node in self._ray.nodes())

    def kill(self, handle: Any) -> None:
        self._ray.kill(handle)

    def close(self) -> None:
        if self._ray:
            self._ray.shutdown()
        if self._scratch:
            self._scratch.close()
        _set(self._before)


def _reach(address: str) -> None:
    """See whether anybody listens at an address; Ray would wait for minutes.

    Raises:
        UserError: nobody does.
    """
    host, _, port = address.rpartition(":")
    if not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWERS).close()
    except OSError as error:
        raise UserError(
            f"no Ray cluster answers at RAY_ADDRESS={address} ({error}): start one by `ray start --head`, or unset "
            "RAY_ADDRESS to use this machine alone"
        ) from None


def _actor() -> Any:
    import ray

    return ray.remote(concurrency_groups={_ASIDE: 1}, max_restarts=0, max_task_retries=0)(Slot)


def _set(variables: dict[str, Any]) -> None:
    """Set variables of the environment; None: remove it."""
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
