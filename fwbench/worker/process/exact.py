"""The measured side: write a workload's results in float64, against which lower precisions state their errors."""

import sys
from collections.abc import Mapping
from typing import Any

from fwbench.meters import sketching
from fwbench.models import Model, stateful
from fwbench.models.weights import canonical
from fwbench.record.lanes import Lane
from fwbench.record.measurement import Failure, Measurement
from fwbench.record.workload import FORWARD, Workload
from fwbench.worker.process import faults


def write(lane: Lane, job: Mapping[str, Any]) -> Measurement:
    """Write the folded output, or the first step's loss and gradients, to the file that the job names as `write_exact`.

    Returns:
        A measurement without samples; its failure says why there is no such file.
    """
    workload = Workload.from_json(job["workload"])
    sys.path[:0] = job["path"]
    model = Model.from_json(job["model"])
    framework = faults.load(lane)
    if isinstance(framework, Failure):
        return Measurement(workload, failure=framework)
    try:
        if reason := framework.refusal(workload, model):
            return Measurement(workload, failure=Failure("unavailable", reason))
        if model.train_step and workload.mode not in FORWARD:
            reason = f"{model.name} has a training step of its own, which chooses its arithmetic itself"
            return Measurement(workload, failure=Failure("unavailable", reason))
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
    except BaseException as error:
        return Measurement(workload, failure=faults.failure(error, framework))
    return Measurement(workload)
