"""One accelerator of a pool, as its node sees it: its description, and the ordinary workers that measure on it."""

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass

import fwbench
from fwbench.ext.cluster.engine import Place
from fwbench.machine import Machine, machine, nvml
from fwbench.models.project import Project
from fwbench.record.measurement import Measurement
from fwbench.record.workload import Workload
from fwbench.suite.profiles import Protocol
from fwbench.suite.selection import Selection
from fwbench.worker.chain import several
from fwbench.worker.client.workers import Workers


@dataclass(frozen=True)
class Description:
    """A slot's description of itself.

    Attributes:
        accelerator: the GPU's UUID, or its CPUs.
        machine: the node's machine, with this slot's part of the cores only.
        fault: why it cannot measure: half a sentence, which follows the host's name; empty if it can.
    """

    accelerator: str
    machine: Machine
    fault: str


class Slot:
    """Measures one workload after another on one accelerator.

    A host's cores are cut into as many equal parts as it has accelerators, and each slot has one part.

    Args:
        place: where the slot runs; `CUDA_VISIBLE_DEVICES` names its GPU, if it has one.
        variables: the environment variables of pytest's process that change measurements.
        version: the version of fwbench in pytest's process.
    """

    def __init__(self, place: Place, variables: Mapping[str, str], version: str) -> None:
        self._place, self._version = place, version
        os.environ.update(variables)
        if not place.gpu:
            # The engine has given this slot no GPU.
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
        self._workers: Workers | None = None
        self._stages: list[str] = []

    def describe(self) -> Description:
        """Describe the accelerator and this slot's part of the machine."""
        here, place = machine(), self._place
        cores = len(here.cpus) // place.parts
        mine = here.cpus[place.part * cores : (place.part + 1) * cores]
        gpu = nvml.find() if place.gpu else None
        accelerator = gpu.uuid if isinstance(gpu, nvml.Gpu) else f"CPUs {', '.join(map(str, mine))}"
        fault = ""
        if fwbench.__version__ != self._version:
            fault = f"has fwbench {fwbench.__version__}, and this is {self._version}: install one version everywhere"
        elif place.gpu and here.device != "gpu":
            fault = f"counts a GPU, and NVML does not find it ({here.accelerator})"
        elif not cores:
            fault = f"has {len(here.cpus)} cores for {place.parts} accelerators: let it count no more than it has cores"
        here = dataclasses.replace(here, cpus=mine, threads=cores)
        return Description(accelerator, here, fault)

    def measure(self, selection: Selection, project: Project, workload: Workload, protocol: Protocol) -> Measurement:
        """Measure a workload, in as many processes as the run asks for, as without a pool."""
        self._stages = []
        if self._workers is None:
            here = dataclasses.replace(self.describe().machine, threads=selection.threads)
            self._workers = Workers.selected(selection, here, project)
        return several(self._workers.measure, selection.processes)(workload, protocol, self._stages.append)

    def stages(self) -> list[str]:
        """The stages of the current measurement so far; another thread calls this during `measure`."""
        return list(self._stages)

    def end(self) -> None:
        """End the current measurement and all its processes."""
        if self._workers:
            self._workers.close()
