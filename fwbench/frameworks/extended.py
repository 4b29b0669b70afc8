"""Programs that extensions have for the core's frameworks, of kinds that are named as the extensions are."""

from typing import Any

from fwbench.extensions import extensions, resolve
from fwbench.models import Model
from fwbench.models.weights import Weights
from fwbench.record.workload import STATEFUL, TRAINING, Workload


def kind_of(workload: Workload, model: Model) -> str:
    """The kind of a workload's program: `state`, `sizes` or `own_steps`; empty if the core has it."""
    if workload.mode in STATEFUL:
        return "state"
    if len(workload.each) > 1:
        return "sizes"
    return "own_steps" if model.train_step and workload.mode in TRAINING else ""


def lacking(workload: Workload, model: Model, framework: str) -> str | None:
    """The reason why no extension here has a workload's program, as one sentence; None if one has, or the core."""
    kind = kind_of(workload, model)
    if not kind or _path(kind, framework):
        return None
    return f"{workload.mode} of {model.name} needs fwbench's extension `{kind}`, which is not here"


def build(kind: str, framework: str, workload: Workload, model: Model, weights: Weights) -> Any:
    """The program of a kind in a framework, for a workload for which `lacking` gives no reason."""
    return resolve(_path(kind, framework))(workload, model, weights)


def _path(kind: str, framework: str) -> str:
    """The import path of the class of these programs; empty if no extension here has one."""
    offered = (extension.kinds.get(kind, {}) for extension in extensions())
    return next((paths[framework] for paths in offered if framework in paths), "")
