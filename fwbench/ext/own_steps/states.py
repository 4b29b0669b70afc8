"""The parts of a training step of the user's own that both frameworks share: functions, names in the state."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fwbench.frameworks.own_steps import FIRST, SECOND, WEIGHTS
from fwbench.models import Model, importing
from fwbench.models.importing import ModelError
from fwbench.models.weights import Shape

AVERAGE, STEP = "ema", "step"
# Roles by the names that optimizers and users give to an array or number of their state.
_ROLES = {
    **dict.fromkeys(("exp_avg", "mu", "momentum_buffer", "trace"), FIRST),
    **dict.fromkeys(("exp_avg_sq", "nu"), SECOND),
    **dict.fromkeys(("max_exp_avg_sq", "nu_max"), "largest second moment"),
    **dict.fromkeys(("step", "count"), STEP),
}
# Words in the names of averages, such as `ema_params`; and users' names of the weights themselves.
_AVERAGES = frozenset({"ema", "average", "averaged", "avg", "shadow", "polyak"})
_OWN = frozenset({"", "params", "model", "network", "net", "weights"})
# Parts of a path that libraries add around parameters.
FILLERS = frozenset({"params", "batch_stats", "module"})


def functions(model: Model, framework: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The function that makes a network's state, and the function that makes a step.

    Raises:
        ModelError: a path leads to no function.
    """
    paths = model.train_state[framework], model.train_step[framework]
    make, step = map(importing.load, paths)
    for path, function in zip(paths, (make, step), strict=True):
        if not callable(function):
            raise ModelError(f"{path!r} is an object of type {type(function).__name__}: name a function")
    return make, step


def divided(model: Model, framework: str, returned: Any) -> tuple[Any, Any]:
    """The state and the metrics that a step returned.

    Raises:
        ModelError: the step returned no pair.
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
        of: role and parameter's name by an array's path. The name is empty if the array belongs to no parameter.
    """

    def __init__(self, model: Model, shapes: Mapping[str, Shape], parameters: Mapping[str, Shape]) -> None:
        """
        Args:
            shapes: shapes of the state's arrays by their paths, joined by dots.
            parameters: the shapes of the network's weights by the ends of such paths.

        Raises:
            ModelError: the state does not hold the network's weights.
        """
        self.of: dict[str, tuple[str, str]] = {}
        paths: dict[tuple[str, ...], dict[str, str]] = {}
        for path, shape in shapes.items():
            parts = path.split(".")
            ends = (".".join(parts[start:]) for start in range(len(parts)))
            name = next((end for end in ends if parameters.get(end) == shape), "")
            role = _role(parts[: len(parts) - len(name.split("."))] if name else parts)
            paths.setdefault((*role, "" if name else "number"), {})[path] = name
        labels = _labels(key for key in paths if key[-1] != "number")
        labels |= _labels(key for key in paths if key[-1] == "number")
        known = {*_ROLES.values(), AVERAGE}
        held = [key for key in paths if key[-1] == "" and labels[key].split(" (")[0] not in known]
        if not held:
            raise ModelError(f"the state of {model.name}'s training step does not hold the weights of the network")
        labels[max(held, key=lambda key: (labels[key].lower() in _OWN, len(paths[key])))] = WEIGHTS
        for key, members in paths.items():
            self.of |= {path: (labels[key], name) for path, name in members.items()}

    @property
    def roles(self) -> dict[str, dict[str, str]]:
        """The paths of parameters' arrays, by role and by parameter."""
        roles: dict[str, dict[str, str]] = {}
        for path, (role, name) in self.of.items():
            if name:
                roles.setdefault(role, {})[name] = path
        return roles


def _role(parts: Sequence[str]) -> tuple[str, ...]:
    """The named parts of a path, without those that libraries add at its end."""
    named = [part for part in parts if part and not part.isdigit()]
    while named and named[-1] in FILLERS:
        named.pop()
    return tuple(named)


def _labels(keys: Iterable[tuple[str, ...]]) -> dict[tuple[str, ...], str]:
    """A label for each role. A second role of the same label gets a number, except for counters of steps."""
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
    """Arrays by name. All counters of steps become one array of distinct values: frameworks differ in their count."""
    leaves: dict[str, NDArray[Any]] = {}
    for name, array in arrays:
        leaves[name] = np.unique([*leaves.get(name, ()), *array.ravel()]) if name == STEP else array
    return leaves
