"""Engines, which let many accelerators measure at the same time, one workload each (`--fwbench-workers`).

    pytest's items, one by one          the pool: a thread a place      a slot: one accelerator of a node
      |                                   | -- start, describe ---------> |  as many as there are accelerators
      | -- submit all workloads --------> | -- measure the next one ----> |  whichever is free
      | -- take the first ---- waits ---> | <-- its measurement --------- |
      |                                   |    a slot dies: its workload goes to the next one that is free

In the chain that yields a measurement (`fwbench.worker.chain`), `Pool.take` replaces this machine's workers. A slot
measures with ordinary workers, in processes that do not load the engine's library. The engine only starts and calls
slots. It comes from a package of its own, through the entry point group `fwbench.engines`; docs/clusters.md shows how.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any

from fwbench.errors import UserError, hint

GROUP = "fwbench.engines"


class LostError(Exception):
    """The process of a slot is gone."""


@dataclass(frozen=True)
class Place:
    """The place of a slot: one accelerator of a node.

    Attributes:
        node: the engine's name of the node.
        host: the name of its machine; several nodes may share one machine.
        part, parts: the number of its part of the host's cores, from 0, and how many parts there are.
        gpu: whether its accelerator is a GPU; else it is the cores themselves.
    """

    node: str
    host: str
    part: int
    parts: int
    gpu: bool


class Engine(ABC):
    """Starts slots on other machines; the pool's threads share one engine.

    An entry point of the group names a callable that makes the engine without any argument, or raises a `UserError`.

    Attributes:
        name: the engine's name in messages.
        places: a place for each accelerator; the engine never gives an accelerator to two slots.
        status: the command that shows a user which accelerators others hold, as messages name it.
    """

    name: str
    places: Sequence[Place]
    status: str

    @abstractmethod
    def start(self, place: Place, *arguments: Any) -> Any:
        """Start a `fwbench.ext.cluster.slot.Slot` with the place and these arguments; return its handle.

        If the node is gone, this raises nothing; every later `ask` of the slot then answers with `LostError`.
        """

    @abstractmethod
    def ask(self, handle: Any, method: str, *arguments: Any) -> "Future[Any]":
        """Call a slot's method, even during another call; the future's error is a `LostError` if the slot is gone."""

    @abstractmethod
    def kill(self, handle: Any) -> None:
        """End a slot's process at once."""

    @abstractmethod
    def close(self) -> None:
        """Give back what was started; no slot is called afterwards."""


def load(name: str) -> Engine:
    """Make the engine of an installed package.

    Raises:
        UserError: the engine is not installed or cannot be used; one sentence.
    """
    points = {point.name: point for point in entry_points(group=GROUP)}
    if name not in points:
        others = f"; of the engines that are, {hint(name, sorted(points))}" if points else ""
        raise UserError(
            f"the engine {name!r} is not installed here: `pip install fwbench-{name}` on every node, or in a checkout "
            f"`pip install ./engines/{name}`{others}"
        )
    try:
        make = points[name].load()
    except Exception as error:
        raise UserError(
            f"the engine {name!r} cannot be loaded from {points[name].value!r} ({error}): upgrade or uninstall it"
        ) from error
    engine: Engine = make()
    return engine
