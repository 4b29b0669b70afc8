"""The ranks, processes that run one program together: their numbers, their joining and their messages.

    rank 1 --- rank 0 --- rank 2          a star: rank 0 listens at the coordinator's address
                 |
               rank 3

Messages are JSON, never pickled, or whoever knows a run's key could have code run here. The framework's own process
group listens at another port, a free one that rank 0 chooses when the star is complete.
"""

import json
import os
import queue
import re
import select
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from typing import Any

from fwbench.frameworks.contract import LostError, Ranks

# fwbench's own launchers tell a rank its place by these variables. The coordinator and the key hold for every launcher.
RANK, SIZE, LOCAL = "FWBENCH_RANK", "FWBENCH_RANKS", "FWBENCH_LOCAL_RANK"
COORDINATOR, KEY = "FWBENCH_COORDINATOR", "FWBENCH_KEY"
# The variable that holds a rank's job.
JOB = "FWBENCH_JOB"
# Exit codes of a rank without a result: it has sent the reason; or it lost another rank, which knows the reason.
TOLD, LOST = 70, 75

# Seconds for all ranks to join; none imports anything large before.
DEADLINE = 120.0
# Seconds between two attempts to reach the first rank.
_PAUSE = 0.05
# JAX's range of ports, from which it takes one by a job's number.
_PORTS = range(61440, 65536)
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class RankError(OSError):
    """The ranks cannot find each other; the text is one sentence."""


@dataclass(frozen=True)
class Place:
    """A process's place among the ranks (`fwbench.frameworks.contract.Ranks`), as its launcher states it.

    The first rank listens at `host` and `port`; the ranks of one run know each other by the secret `key`.
    """

    rank: int
    size: int
    local: int
    host: str
    port: int
    key: bytes
    launcher: str


def place(environment: Mapping[str, str]) -> Place | None:
    """This process's place by fwbench's own variables, torchrun's or Slurm's; None: it is not a rank.

    A variable that is missing or is no number raises a RankError.
    """
    for names, launcher, meeting in (
        ((RANK, SIZE, LOCAL), "fwbench", lambda _: ("", 0, "")),
        (("RANK", "WORLD_SIZE", "LOCAL_RANK"), "torchrun", _torchrun),
        (("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"), "Slurm", _slurm),
    ):
        if names[0] not in environment:
            continue
        rank, size, local = (_number(environment, name, launcher) for name in names)
        if not rank < size:
            raise RankError(f"{launcher} says that this is rank {rank} of {size}: ranks count from 0")
        host, port, key = meeting(environment)
        if COORDINATOR in environment:
            host, port = address(environment[COORDINATOR])
        if not host:
            raise RankError(f"{launcher} does not say where the first rank is: set {COORDINATOR}=HOST:PORT")
        key = environment.get(KEY, key)
        return Place(rank, size, local, host, port, key.encode(), launcher)
    return None


def _torchrun(environment: Mapping[str, str]) -> tuple[str, int, str]:
    """The address next to that of torchrun's own store, which listens at its port."""
    host, run = environment.get("MASTER_ADDR", ""), environment.get("TORCHELASTIC_RUN_ID", "")
    port = _number(environment, "MASTER_PORT", "torchrun") if host else 0
    return host, port + 1 if port < _PORTS.stop - 1 else port - 1, f"{run}:{port}"


def _slurm(environment: Mapping[str, str]) -> tuple[str, int, str]:
    """The first node of the step, at a port derived from the step's number: no two steps at one time share it."""
    nodes = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_JOB_NODELIST", "")
    job, step = environment.get("SLURM_JOB_ID", "0"), environment.get("SLURM_STEP_ID", "0")
    number = int(job if job.isdecimal() else 0) + 7 * int(step if step.isdecimal() else 0)
    return first_node(nodes), _PORTS[number % len(_PORTS)], f"{job}.{step}"


def first_node(nodes: str) -> str:
    """The first name in a list of Slurm's, such as `gpu[03-05,09],login`; empty for an empty one."""
    match = re.match(r"([^,\[]*)(?:\[([^\]]*)\])?([^,]*)", nodes.strip())
    assert match is not None
    prefix, numbers, suffix = match.groups()
    return f"{prefix}{re.split('[-,]', numbers)[0]}{suffix}" if numbers else f"{prefix}{suffix}"


def address(text: str) -> tuple[str, int]:
    """Host and port of `HOST:PORT`; a text that is no such address raises a RankError."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise RankError(f"{text!r} is no address of a coordinator: write HOST:PORT")
    return host.strip("[]"), int(port)


def free_port() -> int:
    """A port of this host at which nobody listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _number(environment: Mapping[str, str], name: str, launcher: str) -> int:
    value = environment.get(name, "")
    if not value.isdecimal():
        raise RankError(
            f"{launcher} sets {name} to {value!r}, which is no rank's number: start the ranks by one launcher"
        )
    return int(value)


class Star(Ranks):
    """The ranks, joined within `deadline` seconds.

    If the port is in use, or some do not come, a RankError says which in one sentence.
    """

    def __init__(self, place: Place, deadline: float = DEADLINE) -> None:
        self.rank, self.size, self.local = place.rank, place.size, place.local
        self._parting = False
        until = time.monotonic() + deadline
        # The first rank holds a connection to each other rank, by number; every other rank holds one to the first.
        self._others = [self._reach(place, until, deadline)] if self.rank else self._await(place, until, deadline)
        here = "127.0.0.1" if place.host in _LOOPBACK else place.host
        self.address = self._share(f"{here}:{free_port()}" if self.rank == 0 else "")

    def _await(self, place: Place, until: float, deadline: float) -> list[Connection]:
        # Listen to other hosts too if the coordinator's name is not this machine's.
        host = "127.0.0.1" if place.host in _LOOPBACK else "0.0.0.0"
        try:
            listener = Listener((host, place.port), backlog=self.size, authkey=place.key)
        except OSError as error:
            raise RankError(
                f"the first rank cannot listen at port {place.port} ({error.strerror or error}): name another by "
                f"{COORDINATOR}=HOST:PORT"
            ) from error
        came: queue.Queue[Connection] = queue.Queue()

        def accept() -> None:
            while True:
                try:
                    came.put(listener.accept())
                except (AuthenticationError, EOFError, ConnectionError):
                    continue  # a stranger, which is not a rank
                except OSError:
                    return  # closed

        threading.Thread(target=accept, daemon=True).start()
        connections: dict[int, Connection] = {}
        try:
            while len(connections) < self.size - 1:
                connection = came.get(timeout=max(0.0, until - time.monotonic()))
                rank = json.loads(connection.recv_bytes())
                if rank in connections or not 0 < rank < self.size:
                    raise RankError(f"two processes say that they are rank {rank}: start each rank once")
                connections[rank] = connection
        except queue.Empty:
            missing = [str(rank) for rank in range(1, self.size) if rank not in connections]
            ranks = f"rank {missing[0]}" if len(missing) == 1 else f"ranks {', '.join(missing)}"
            raise RankError(
                f"{ranks} of {self.size} did not come to {place.host}:{place.port} within {deadline:g} s: look whether "
                f"{place.launcher} has started them, and whether that port is open between the hosts"
            ) from None
        finally:
            listener.close()
        return [connections[rank] for rank in range(1, self.size)]

    def _reach(self, place: Place, until: float, deadline: float) -> Connection:
        while True:
            try:
                connection = Client((place.host, place.port), authkey=place.key)
                connection.send_bytes(json.dumps(self.rank).encode())
                return connection
            except AuthenticationError:
                raise RankError(
                    f"at {place.host}:{place.port} listens somebody of another run: name another port by "
                    f"{COORDINATOR}=HOST:PORT"
                ) from None
            except (OSError, EOFError) as error:
                if time.monotonic() > until:
                    raise RankError(
                        f"rank {self.rank} did not reach the first one at {place.host}:{place.port} within "
                        f"{deadline:g} s ({error})"
                    ) from error
                time.sleep(_PAUSE)

    def agree(self, value: float) -> float:
        return float(self._share(value))

    def gather(self, value: Any) -> list[Any]:
        gathered: list[Any] = self._meet(value, lambda values: values)
        return gathered

    def _share(self, value: Any) -> Any:
        """Give every rank the first rank's value."""
        return self._meet(value, lambda values: values[0])

    def _meet(self, value: Any, answer: Callable[[list[Any]], Any]) -> Any:
        """Send every rank's value to the first rank, and the first rank's answer to all."""
        try:
            if self.rank:
                self._others[0].send_bytes(json.dumps(value).encode())
                return json.loads(self._others[0].recv_bytes())
            told = answer([value, *(json.loads(other.recv_bytes()) for other in self._others)])
            message = json.dumps(told).encode()
            for other in self._others:
                other.send_bytes(message)
            # The others receive JSON, which has no tuples.
            return json.loads(message)
        except (OSError, EOFError) as error:
            raise LostError("another rank is gone") from error

    def watch(self) -> None:
        """End this process as soon as the first rank is gone, whatever it waits for."""
        if not self.rank or not hasattr(select, "POLLRDHUP"):
            return

        def look() -> None:
            poll = select.poll()
            poll.register(self._others[0].fileno(), select.POLLRDHUP)
            poll.poll()
            if not self._parting:
                os._exit(LOST)

        threading.Thread(target=look, daemon=True).start()

    def part(self) -> None:
        """Wait until all ranks are done, after which each may end."""
        self._parting = True
        self.agree(0.0)

    def close(self) -> None:
        """End the star."""
        for other in self._others:
            with suppress(OSError):
                other.close()
