"""Ray as fwbench's engine: one actor per accelerator of the cluster at RAY_ADDRESS, or of this machine.

Ray only hands out accelerators. An actor measures by ordinary workers, in processes without Ray.
"""

import itertools
import os
import secrets
import signal
import socket
import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from fwbench.errors import UserError
from fwbench.ext.cluster.engine import Engine, LostError, Place
from fwbench.ext.cluster.slot import Description, Slot
from fwbench.worker.client.scratch import Scratch

# Ray's resource that stands for an accelerator in a cluster without GPUs. A cluster that is started here has one unit
# of it, unless RAY_OVERRIDE_RESOURCES claims another number.
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

# The longest path in bytes of Ray's folder: the path of a socket has at most 107 bytes, and Ray appends 66 of them.
_LONGEST = 107 - 66

# Seconds for a cluster to answer.
_ANSWERS = 10.0


class Ray(Engine):
    """A cluster, joined or started.

    Raises:
        UserError: Ray is not installed, or the cluster cannot be reached, or has no accelerators; one sentence.
    """

    name = "Ray"
    status = "`ray status`"

    def __init__(self) -> None:
        address = os.environ.get("RAY_ADDRESS", "")
        _reach(address)
        self._before = {name: os.environ.get(name) for name in (*_QUIET, *_LOCAL, "RAY_AUTH_TOKEN")}
        self._scratch: Scratch | None = None
        self._ray: Any = None
        _set({name: value for name, value in _QUIET.items() if name not in os.environ})
        if not address:
            _set({**_LOCAL, "RAY_AUTH_TOKEN": secrets.token_hex(32)})
        main = threading.current_thread() is threading.main_thread()
        handler = signal.getsignal(signal.SIGTERM) if main else None
        try:
            self._join(address)
        except ImportError as error:
            self.close()
            raise UserError(f"Ray cannot be imported ({error}): `pip install ray` on every node") from None
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

    def _join(self, address: str) -> None:
        """Join the cluster at an address, or start one, and list its accelerators."""
        import ray

        self._ray = ray
        ray.init(
            address=address or "local",
            logging_level="ERROR",
            log_to_driver=False,
            configure_logging=False,
            **({} if address else self._embedded()),
        )
        # One thread of an actor measures; another one answers meanwhile.
        self._actor = ray.remote(max_concurrency=2, max_restarts=0, max_task_retries=0)(RaySlot)
        nodes = [node for node in ray.nodes() if node["Alive"]]
        gpu = any(node["Resources"].get("GPU", 0) >= 1 for node in nodes)
        counts = {node["NodeID"]: int(node["Resources"].get("GPU" if gpu else RESOURCE, 0)) for node in nodes}
        self.places = places([(n["NodeID"], n["NodeManagerHostname"], counts[n["NodeID"]]) for n in nodes], gpu)
        # Keeps other work of the cluster off the CPUs of a node that measures.
        self._cpus = {n["NodeID"]: int(n["Resources"].get("CPU", 0)) // max(1, counts[n["NodeID"]]) for n in nodes}
        if not self.places:
            raise UserError(
                f"the Ray cluster at {address} has neither GPUs nor {RESOURCE}: start each node that shall measure "
                f"by `ray start --resources '{{\"{RESOURCE}\": 1}}' ...`"
            )

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
            # If RAY_OVERRIDE_RESOURCES claims other resources, Ray would warn about these.
            "resources": None if "RAY_OVERRIDE_RESOURCES" in os.environ else {RESOURCE: 1},
            "object_store_memory": _STORE,
        }

    def start(self, place: Place, *arguments: Any) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        accelerator = {"num_gpus": 1} if place.gpu else {"resources": {RESOURCE: 1}}
        options = {"num_cpus": self._cpus[place.node], **accelerator}
        on_its_node = NodeAffinitySchedulingStrategy(place.node, soft=False)
        niceness = os.getpriority(os.PRIO_PROCESS, 0) if hasattr(os, "getpriority") else 0
        return self._actor.options(scheduling_strategy=on_its_node, **options).remote(niceness, place, *arguments)

    def ask(self, handle: Any, method: str, *arguments: Any) -> "Future[Any]":
        from ray.exceptions import ActorUnschedulableError, RayActorError

        answer: Future[Any] = Future()

        def arrived(reply: "Future[Any]") -> None:
            error = reply.exception()
            if error is None:
                answer.set_result(reply.result())
            else:
                lost = isinstance(error, (RayActorError, ActorUnschedulableError))
                answer.set_exception(LostError(str(error)) if lost else error)

        getattr(handle, method).remote(*arguments).future().add_done_callback(arrived)
        return answer

    def kill(self, handle: Any) -> None:
        self._ray.kill(handle)

    def close(self) -> None:
        if self._ray:
            self._ray.shutdown()
        if self._scratch:
            self._scratch.close()
        _set(self._before)


class RaySlot(Slot):
    """A slot in one of Ray's processes, to which Ray may give a lower priority than pytest has.

    Args:
        niceness: the niceness of pytest's process.
    """

    def __init__(self, niceness: int, place: Place, variables: Mapping[str, str], version: str) -> None:
        super().__init__(place, variables, version)
        self._niceness = niceness

    def describe(self) -> Description:
        described = super().describe()
        if not hasattr(os, "setpriority") or os.getpriority(os.PRIO_PROCESS, 0) <= self._niceness:
            return described
        try:
            os.setpriority(os.PRIO_PROCESS, 0, self._niceness)
        except OSError:
            fault = (
                "gives its processes less of the CPUs than others have (niceness "
                f"{os.getpriority(os.PRIO_PROCESS, 0)}), which RAY_worker_niceness=0 before `ray start` ends"
            )
            return Description(described.accelerator, described.machine, described.fault or fault)
        return described


def places(nodes: Iterable[tuple[str, str, int]], gpu: bool) -> Sequence[Place]:
    """The places of a cluster. Nodes on one host get different parts of its cores.

    Args:
        nodes: each node's name, its host's name, and how many accelerators it has.
        gpu: whether these are GPUs.
    """
    accelerators = sorted((host, node) for node, host, count in nodes for _ in range(count))
    hosts = [(host, list(group)) for host, group in itertools.groupby(accelerators, lambda pair: pair[0])]
    return [Place(node, host, part, len(group), gpu) for host, group in hosts for part, (_, node) in enumerate(group)]


def _reach(address: str) -> None:
    """Check that something listens at an address, as Ray itself would wait for minutes.

    Raises:
        UserError: nothing listens there, or the address is of the kind that Ray's clients use.
    """
    if "://" in address:
        raise UserError(
            f"RAY_ADDRESS={address}: run pytest on a node of the cluster, and let RAY_ADDRESS be auto or its HOST:PORT"
        )
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


def _set(variables: Mapping[str, str | None]) -> None:
    """Set variables of the environment; remove those whose value is None."""
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
