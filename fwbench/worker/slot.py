"""One accelerator of a pool, as its node sees it: its description, and the ordinary workers that measure on it."""

import dataclasses
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import fwbench
from fwbench.machine import Machine, machine, nvml
from fwbench.models.project import Project
from fwbench.record.workload import Workload
from fwbench.suite.profiles import Protocol
from fwbench.worker.chain import several
from fwbench.worker.client import Workers


@dataclass(frozen=True)
class Setup:
    """What a run asks of every slot: the fields of `Selection` that do not belong to a workload.

    Attributes:
        processes: that measure each workload.
        patience: seconds that each slot may wait in all until other load ends.
    """

    project: Project
    device: str
    pythons: Mapping[str, str]
    threads: int
    processes: int
    patience: float
    fit_batch: bool


class Slot:
    """Measures one workload after another on one accelerator; all its answers are JSON.

    A host's cores are cut into as many equal parts as it has accelerators; this one has its own part.

    Args:
        part, parts: which part of the host's cores, from 0, and of how many.
        gpu: whether it has a GPU, the one that `CUDA_VISIBLE_DEVICES` names; else it has its cores alone.
        variables: of the environment, with which pytest was started.
        niceness: with which pytest runs.
        version: of pytest's fwbench.
    """

    def __init__(
        self, part: int, parts: int, gpu: bool, variables: Mapping[str, str], niceness: int, version: str
    ) -> None:
        self._part, self._parts, self._gpu = part, parts, gpu
        self._niceness, self._version = niceness, version
        os.environ.update(variables)
        if not gpu:
            # The engine has given it no GPU.
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
        self._workers: Workers | None = None
        self._stages: list[str] = []

    def describe(self) -> dict[str, Any]:
        """Describe the host, the accelerator and this slot's part of the machine; or say in `fault` why it cannot run.

        The fault is half a sentence, which follows the host's name.
        """
        here = machine()
        cores = len(here.cpus) // self._parts
        mine = here.cpus[self._part * cores : (self._part + 1) * cores]
        found = nvml.find() if self._gpu else None
        told = {
            "host": socket.gethostname(),
            "accelerator": found.uuid if isinstance(found, nvml.Gpu) else f"CPUs {', '.join(map(str, mine))}",
            "machine": dataclasses.replace(here, cpus=mine, threads=cores).to_json(),
        }
        return told | {"fault": self._fault(here, cores)}

    def _fault(self, here: Machine, cores: int) -> str:
        if self._gpu and here.device != "gpu":
            return f"counts a GPU, and NVML does not find it ({here.accelerator})"
        if not cores:
            return f"has {len(here.cpus)} cores for {self._parts} accelerators: let it count no more than it has cores"
        if fwbench.__version__ != self._version:
            return f"has fwbench {fwbench.__version__}, and this is {self._version}: install one version everywhere"
        if hasattr(os, "setpriority") and os.getpriority(os.PRIO_PROCESS, 0) > self._niceness:
            try:
                os.setpriority(os.PRIO_PROCESS, 0, self._niceness)
            except OSError:
                nice = os.getpriority(os.PRIO_PROCESS, 0)
                return (
                    f"gives its processes less of the CPUs than others have (niceness {nice}), which "
                    "RAY_worker_niceness=0 before `ray start` ends"
                )
        return ""

    def measure(self, setup: Setup, workload: dict[str, Any], protocol: dict[str, Any]) -> dict[str, Any]:
        """Measure a workload, in as many processes as the run asks for, as without a pool."""
        asked, amounts = Workload.from_json(workload), Protocol(**protocol)
        self._stages = []
        workers = self._workers = self._workers or self._made(setup)
        return several(workers.measure, setup.processes)(asked, amounts, self._stages.append).to_json()

    def _made(self, setup: Setup) -> Workers:
        described = dict(self.describe()["machine"])
        here = Machine(**{**described, "threads": setup.threads})
        return Workers(
            here,
            setup.device,
            setup.pythons,
            setup.project,
            fit_batch=setup.fit_batch,
            patience=setup.patience,
        )

    def stages(self) -> list[str]:
        """The stages of the current measurement so far, for whoever asks meanwhile."""
        return list(self._stages)

    def end(self) -> None:
        """End the current measurement and all its processes."""
        if self._workers:
            self._workers.close()
