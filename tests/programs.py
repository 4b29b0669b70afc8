"""Programs in the tests' own process, built as a worker builds them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fwbench import frameworks
from fwbench.frameworks.contract import Program
from fwbench.frameworks.training import HORIZON
from fwbench.models import CATALOG, Model
from fwbench.models.project import complete
from fwbench.models.weights import Weights, draw
from fwbench.record.lanes import LANES
from fwbench.record.workload import Workload


def built(workload: Workload, model: Model | None = None, horizon: int = HORIZON) -> tuple[Any, Weights]:
    """A program that is not compiled yet, and the drawn weights that it begins with.

    Args:
        model: the workload's; by default that of the catalog.
    """
    model = complete(model or CATALOG[workload.model], workload.lane)
    framework = frameworks.load(LANES[workload.lane].adapter)
    assert framework.refusal(workload, model) is None
    weights = draw(model, framework.weight_shapes(model, model.sizes(workload.axes)), workload.seed)
    return framework.build(workload, model, weights, horizon), weights


def outputs(program: Program, calls: int) -> NDArray[Any]:
    """The outputs of some calls: shape (calls, ...)."""
    made = []
    for _ in range(calls):
        program.call_and_wait()
        made.append(np.array(program.output()))
    return np.array(made)
