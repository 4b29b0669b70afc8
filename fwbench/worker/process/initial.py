"""The measured side: write the values that a network's own constructor sets, from which every lane starts."""

import json
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fwbench import frameworks
from fwbench.models import Model, ModelError, stateful
from fwbench.record.lanes import Lane
from fwbench.record.measurement import Failure, Measurement
from fwbench.record.workload import Workload
from fwbench.worker.process import faults


def save(lane: Lane, job: Mapping[str, Any]) -> Measurement:
    """Write the initial values of the lane's network to the file that the job names as `save`.

    Returns:
        A measurement without samples; its failure says why there is no such file.
    """
    workload = Workload.from_json(job["workload"])
    sys.path[:0] = job["path"]
    model = Model.from_json(job["model"])
    try:
        framework = frameworks.load(lane.adapter)
        values = framework.initial(model, stateful.sizes(model, workload), workload.seed)
        np.savez(job["save"], **values)  # type: ignore[arg-type, unused-ignore]
    except (ImportError, ModelError, NotImplementedError, OSError) as error:
        return Measurement(workload, failure=Failure("unavailable", str(error)))
    except BaseException as error:
        return Measurement(workload, failure=Failure("error", str(error), detail=traceback.format_exc()))
    return Measurement(workload)


def list_shapes(lane: Lane, job: Mapping[str, Any]) -> Measurement:
    """Build the lane's network, and write the shape of each of its weights to the file that the job names as `shapes`.

    Returns:
        A measurement without samples; its failure says why there is no such file.
    """
    workload = Workload.from_json(job["workload"])
    sys.path[:0] = job["path"]
    model = Model.from_json(job["model"])
    if isinstance(framework := faults.load(lane), Failure):
        return Measurement(workload, failure=framework)
    try:
        shapes = framework.weight_shapes(model, stateful.sizes(model, workload))
        Path(job["shapes"]).write_text(json.dumps(shapes), encoding="utf-8")
    except BaseException as error:
        return Measurement(workload, failure=faults.failure(error, framework, stage="build"))
    return Measurement(workload)
