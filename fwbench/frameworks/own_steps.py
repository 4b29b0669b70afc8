"""Training steps of the user's own: the contract of their programs, which an extension has for each framework.

A state holds weights, moments and averages of all parameters, and numbers of its own. Each array of it has a *role*
and, if it belongs to a parameter, that parameter's canonical name, so that two frameworks' arrays can be paired:
`first moment.up.weight`. The role of an optimizer's array follows from the optimizer's name for it; all other roles
have the user's names.
"""

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from numpy.typing import NDArray

from fwbench.models import Model
from fwbench.record.workload import FIELDS, Workload

WEIGHTS, FIRST, SECOND = "weights", "first moment", "second moment"

# Settings of a workload that a step of the user's own decides itself.
_DECIDED = ("optimizer", "learning_rate", "accumulate", "remat")


@dataclass(frozen=True)
class Arithmetic:
    """The element types (NumPy's names) of a step's operations, and whether the step draws random numbers."""

    dtypes: frozenset[str]
    random: bool


@runtime_checkable
class Stepping(Protocol):
    """A program that makes training steps of the user's own."""

    def metrics(self) -> dict[str, float]:
        """The last step's metrics by name."""

    def state_leaves(self) -> dict[str, NDArray[Any]]:
        """Every array and number of the state on the host, by role and canonical name, in canonical layouts."""

    def arithmetic(self) -> Arithmetic:
        """The element types and the randomness of a step; may make a step."""


def lacking(model: Model, workload: Workload, framework: str) -> str | None:
    """The reason why a framework cannot measure the workload with the model's own training step; None without one."""
    if not model.train_step or workload.mode not in ("train_step", "fit"):
        return None
    if framework not in model.train_step:
        return f"{model.name} has a training step of its own, and names none in {framework}"
    if workload.mode == "fit":
        return f"fit trains with fwbench's step, and {model.name} has one of its own: measure train_step"
    if set_here := [name for name in _DECIDED if getattr(workload, name) != FIELDS[name].default]:
        return f"{model.name} has a training step of its own, which decides its {set_here[0].replace('_', ' ')} itself"
    if workload.devices > 1 or workload.target:
        return f"the training step of {model.name} is measured on one device of this machine alone"
    return None


def role_of(leaf: str) -> str:
    """The role in a leaf's name, as `Stepping.state_leaves` gives it."""
    return leaf.partition(".")[0]
