"""What both frameworks share of a training step of the user's own: its functions, its batch, and its state's names.

A state holds weights, moments and averages of all parameters, and numbers of its own. Each array of it has a *role*
and, if it belongs to a parameter, that parameter's canonical name, so that two frameworks' arrays can be paired:
`first moment.up.weight`. The role of an optimizer's array is known by the optimizer's own word for it; all others are
called as the user calls them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fwbench.models import Model, importing
from fwbench.models.importing import ModelError
from fwbench.models.inputs import draw
from fwbench.models.weights import Shape
from fwbench.record.workload import FIELDS, Workload

WEIGHTS, FIRST, SECOND, AVERAGE, STEP = "weights", "first moment", "second moment", "ema", "step"
# What optimizers, and users, call an array or number of their state.
_ROLES = {
    **dict.fromkeys(("exp_avg", "mu", "momentum_buffer", "trace"), FIRST),
    **dict.fromkeys(("exp_avg_sq", "nu"), SECOND),
    **dict.fromkeys(("max_exp_avg_sq", "nu_max"), "largest second moment"),
    **dict.fromkeys(("step", "count"), STEP),
}
# Words in the names of averages, such as `ema_params`; and what users call the weights themselves.
_AVERAGES = frozenset({"ema", "average", "averaged", "avg", "shadow", "polyak"})
_OWN = frozenset({"", "params", "model", "network", "net", "weights"})
# Parts of a path that libraries add around parameters.
FILLERS = frozenset({"params", "batch_stats", "module"})

# Settings of a workload that a step of the user's own decides itself.
_DECIDED = ("optimizer", "learning_rate", "accumulate", "remat")


@dataclass(frozen=True)
class Arithmetic:
    """What a step computes with: the element types (NumPy's names) of its operations, and whether it draws numbers."""

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
        """What a step computes with; may make a step."""


def lacking(model: Model, workload: Workload, framework: str) -> str | None:
    """Why a framework cannot measure the workload with the model's own training step; None if it can, or has none."""
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


def functions(model: Model, framework: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """What makes the state of a network, and the step.

    Raises:
        ModelError: a path leads to no function.
    """
    paths = model.train_state[framework], model.train_step[framework]
    make, step = map(importing.load, paths)
    for path, function in zip(paths, (make, step), strict=True):
        if not callable(function):
            raise ModelError(f"{path!r} is an object of type {type(function).__name__}: name a function")
    return make, step


def batch(model: Model, batch_size: int, seed: int, sizes: Mapping[str, int]) -> dict[str, NDArray[Any]]:
    """A step's batch: the inputs by name, `inputs` where there is only one, and `targets` where there are any."""
    arrays = {name or "inputs": array for name, array in draw(model.inputs, batch_size, seed, sizes).items()}
    if model.targets:
        rng = np.random.default_rng([seed, batch_size, 1])
        arrays["targets"] = model.targets.sample((batch_size, *model.targets.sizes(sizes)), rng)
    return arrays


def divided(model: Model, framework: str, returned: Any) -> tuple[Any, Any]:
    """State and metrics in what a step returned.

    Raises:
        ModelError: it is no pair.
    """
    if not isinstance(returned, tuple) or len(returned) != 2:
        raise ModelError(
            f"the training step of {model.name} in {framework} returns the pair (state, metrics), and not an object of "
            f"type {type(returned).__name__}"
        )
    return returned[0], returned[1]


def scalars(model: Model, metrics: Mapping[str, NDArray[Any]]) -> dict[str, float]:
    """A step's metrics as numbers.

    Raises:
        ModelError: there are none, or one is an array of several numbers.
    """
    for name, array in metrics.items():
        if array.size != 1:
            raise ModelError(f"the metric {name!r} of {model.name} has the shape {array.shape}: return single numbers")
    if not metrics:
        raise ModelError(f"the training step of {model.name} returns no metrics: return its loss at least")
    return {name: float(array.reshape(())) for name, array in metrics.items()}


class Names:
    """Roles and parameters of a state's arrays, found once from their paths and shapes.

    Attributes:
        of: by an array's path, its role and its parameter's name; empty where it belongs to none.
    """

    def __init__(self, model: Model, shapes: Mapping[str, Shape], parameters: Mapping[str, Shape]) -> None:
        """
        Args:
            shapes: of the state's arrays by their paths, joined by dots.
            parameters: the shapes of the network's weights by the ends of such paths.

        Raises:
            ModelError: the state does not hold the network's weights.
        """
        self.of: dict[str, tuple[str, str]] = {}
        paths: dict[tuple[str, ...], list[str]] = {}
        found: dict[str, tuple[tuple[str, ...], str]] = {}
        for path, shape in shapes.items():
            parts = path.split(".")
            ends = (".".join(parts[start:]) for start in range(len(parts)))
            name = next((end for end in ends if parameters.get(end) == shape), "")
            role = _role(parts[: len(parts) - len(name.split("."))] if name else parts)
            found[path] = role, name
            paths.setdefault((*role, "" if name else "number"), []).append(path)
        labels = _labels(key for key in paths if key[-1] != "number")
        labels |= _labels(key for key in paths if key[-1] == "number")
        known = {*_ROLES.values(), AVERAGE}
        held = [key for key in paths if key[-1] == "" and labels[key].split(" (")[0] not in known]
        if not held:
            raise ModelError(f"the state of {model.name}'s training step does not hold the weights of the network")
        labels[max(held, key=lambda key: (labels[key].lower() in _OWN, len(paths[key])))] = WEIGHTS
        for key, members in paths.items():
            self.of |= {path: (labels[key], found[path][1]) for path in members}

    @property
    def roles(self) -> dict[str, dict[str, str]]:
        """By role, the path of each parameter's array."""
        roles: dict[str, dict[str, str]] = {}
        for path, (role, name) in self.of.items():
            if name:
                roles.setdefault(role, {})[name] = path
        return roles


def _role(parts: Sequence[str]) -> tuple[str, ...]:
    """The named parts of a path, without what libraries add at its end."""
    named = [part for part in parts if part and not part.isdigit()]
    while named and named[-1] in FILLERS:
        named.pop()
    return tuple(named)


def _labels(keys: Iterable[tuple[str, ...]]) -> dict[tuple[str, ...], str]:
    """A label for each role; a second one of the same label has a number, but for counters of steps."""
    labels: dict[tuple[str, ...], str] = {}
    for *role, kind in keys:
        last = role[-1] if role else ""
        label = AVERAGE if _AVERAGES & {*last.lower().split("_")} else last
        label = _ROLES.get(last.lower(), label)
        if label == STEP:
            labels[*role, kind] = STEP
            continue
        taken = sum(known.split(" (")[0] == label for known in labels.values())
        labels[*role, kind] = f"{label} ({taken + 1})" if taken else label
    return labels


def gathered(arrays: Iterable[tuple[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """Arrays by name; of several counters of steps, which frameworks have different numbers of, their values once."""
    leaves: dict[str, NDArray[Any]] = {}
    for name, array in arrays:
        leaves[name] = np.unique([*leaves.get(name, ()), *array.ravel()]) if name == STEP else array
    return leaves


def role_of(leaf: str) -> str:
    """The role in a leaf's name, as `Stepping.state_leaves` gives it."""
    return leaf.partition(".")[0]
