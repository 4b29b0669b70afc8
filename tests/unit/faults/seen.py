"""Workers that measure networks of tests/unit/plain/small_lane.py, in real processes."""

import dataclasses
import functools
import os
from pathlib import Path

import fwbench
from fwbench.machine import machine
from fwbench.models.project import Project
from fwbench.record.workload import Workload
from fwbench.report import summary
from fwbench.worker.client.starting import PACKAGE
from fwbench.worker.client.workers import Workers
from tests.unit.processes import grandchildren
from tests.unit.shared import UNTIMED

PLAIN = Path(__file__).parents[1] / "plain"
PATH = os.pathsep.join(map(str, (PLAIN, PACKAGE.parent)))
# As many calls as a test needs, whatever they take.
PROTOCOL = dataclasses.replace(UNTIMED, warmup_iterations=2, min_rounds=40, deadline=120.0)


def model(network, module="small_lane", framework="small"):
    """A model whose network in one framework is this class; its weights are drawn by the model's name."""
    return fwbench.Model("net", inputs=fwbench.normal(64), **{framework: f"{module}:{network}"})


class Harness:
    """One thread on one CPU, as a program then takes as long in each call.

    Attributes:
        once: as `measure`, but what was measured before is not measured again.
    """

    def __init__(self, folder):
        here = machine()
        self.project = Project(folder, (PLAIN,))
        self.workers = Workers(
            dataclasses.replace(here, threads=1, cpus=here.cpus[:1]), "cpu", {}, self.project, patience=0.0
        )
        self.once = functools.cache(self.measure)

    def measure(self, network, lane="small", module="small_lane", framework="small", at=lambda stage: None, **amounts):
        self.project.models["net"] = model(network, module, framework)
        workload = Workload(lane, "net", batch_size=8)
        return self.workers.measure(workload, dataclasses.replace(PROTOCOL, **amounts), at)


def workers():
    """The processes that measure now."""
    return grandchildren(os.getpid())


def said(measurement):
    """What the report and the terminal say of one lane, less what they say of other load."""
    return [line for line in summary.cautions([measurement]) if measurement.workload.id in line.partition(":")[0]]
