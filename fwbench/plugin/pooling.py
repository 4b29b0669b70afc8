"""`--fwbench-workers`: the accelerators over which a run is spread."""

from collections.abc import Callable
from typing import Protocol

import pytest

from fwbench.extensions import needed
from fwbench.machine import Machine
from fwbench.models.project import Project
from fwbench.record.measurement import Measurement
from fwbench.record.workload import Workload
from fwbench.suite import profiles
from fwbench.suite.selection import Selection
from fwbench.worker.chain import Tell


class Pool(Protocol):
    """Accelerators that measure at the same time; its length is their number.

    Attributes:
        machine: each accelerator's machine; all are alike.
        told: half a sentence that states their number and place.
    """

    machine: Machine

    def __len__(self) -> int: ...

    @property
    def told(self) -> str: ...

    def equip(self, selection: Selection, project: Project) -> None:
        """Set the selection and the project of all measurements; called before the first one."""

    def submit(
        self, workload: Workload, protocol: profiles.Protocol, arrived: Callable[[Measurement], Measurement]
    ) -> None:
        """Measure a workload as soon as an accelerator is free; `arrived` returns what replaces its measurement."""

    def take(self, workload: Workload, protocol: profiles.Protocol, tell: Tell) -> Measurement:
        """Wait for a workload's measurement."""

    def close(self) -> None:
        """End all measurements; a second call does nothing."""


def pool(config: pytest.Config) -> Pool | None:
    """The pool that `--fwbench-workers` asks for, which ends with pytest; a UserError if it cannot be used."""
    name = config.getoption("fwbench_workers")
    if name is None:
        return None
    spread: Pool = needed("pool", "--fwbench-workers")(name)
    config.add_cleanup(spread.close)
    return spread
