"""The measured side of jobs that measure nothing, and write a file that other measurements read."""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fwbench.errors import UnavailableError
from fwbench.frameworks.contract import Framework
from fwbench.meters import sketching
from fwbench.models import Model, stateful
from fwbench.models.weights import canonical
from fwbench.record.lanes import Lane
from fwbench.record.measurement import Failure, Measurement
from fwbench.record.workload import FORWARD, Workload
from fwbench.worker.process import faults

Job = Mapping[str, Any]


def write(lane: Lane, job: Job) -> Measurement | None:
    """Write the file that a job names under its kind, one of `_WRITERS`; None if it names none.

    The measurement has no samples; its failure says why there is no such file.
    """
    writer = next((writer for kind, writer in _WRITERS.items() if kind in job), None)
    if writer is None:
        return None
    workload = Workload.from_json(job["workload"])
    sys.path[:0] = job["path"]
    model = Model.from_json(job["model"])
    if isinstance(framework := faults.load(lane), Failure):
        return Measurement(workload, failure=framework)
    try:
        writer(framework, model, workload, job)
    except BaseException as error:
        return Measurement(workload, failure=faults.failure(error, framework, stage="build"))
    return Measurement(workload)


def _initial(framework: Framework, model: Model, workload: Workload, job: Job) -> None:
    """Write the values that a network's own constructor sets, from which every lane starts."""
    values = framework.initial(model, stateful.sizes(model, workload), workload.seed)
    np.savez(job["save"], **values)  # type: ignore[arg-type, unused-ignore]


def _shapes(framework: Framework, model: Model, workload: Workload, job: Job) -> None:
    """Write the shape of each weight of a network."""
    shapes = framework.weight_shapes(model, stateful.sizes(model, workload))
    Path(job["shapes"]).write_text(json.dumps(shapes), encoding="utf-8")


def _exact(framework: Framework, model: Model, workload: Workload, job: Job) -> None:
    """Write a workload's folded output in float64, or its first step's loss and gradients.

    Lower precisions state their errors against these.
    """
    if reason := framework.refusal(workload, model):
        raise UnavailableError(reason)
    if model.train_step and workload.mode not in FORWARD:
        raise UnavailableError(f"{model.name} has a training step of its own, which chooses its arithmetic itself")
    shapes = framework.weight_shapes(model, stateful.sizes(model, workload))
    weights = canonical(workload.weights, model, shapes, workload.seed, job["start"])
    program = framework.build(workload, model, weights)
    with program.session():
        program.compile()
        if workload.mode in FORWARD:
            program.call_and_wait()
            folded = sketching.folded_output(program)
        else:
            folded = sketching.folded_step(program, weights)
    sketching.write(job["write_exact"], folded)


_WRITERS: Mapping[str, Callable[[Framework, Model, Workload, Job], None]] = {
    "save": _initial,
    "shapes": _shapes,
    "write_exact": _exact,
}
