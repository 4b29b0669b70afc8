"""A model with a state, such as a cache: the steps of a sequence that a call takes, and those that fill the state.

The sequence's axis is the first size of an input of the model. Its value is a prompt's length in mode `prefill`, and
in mode `decode` the depth: the number of steps of the sequence that the state holds when a call begins.
"""

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from fwbench.models import importing
from fwbench.models.importing import ModelError, described
from fwbench.models.inputs import draw
from fwbench.models.model import Model
from fwbench.record.workload import STATEFUL, Workload

Batch = dict[str, NDArray[Any]]

# The parameter of a network's call that takes the state, and the one of the state's builder that takes the batch size.
STATE, BATCH_SIZE = "state", "batch_size"


def sizes(model: Model, workload: Workload) -> dict[str, int]:
    """The model's axes as the workload's network and state are built for them.

    In the modes with a state the sequence's axis has room for the step that follows: 129 if a prompt has 128 steps.
    """
    chosen = model.sizes(workload.axes)
    return chosen | {model.sequence: chosen[model.sequence] + 1} if workload.mode in STATEFUL else chosen


def called(model: Model, workload: Workload) -> Batch:
    """The batch that a call takes: one step of the sequence in `decode`, the prompt in `prefill`, else all of it."""
    batch = draw(model.inputs, workload.batch_size, workload.seed, sizes(model, workload))
    depth = model.sizes(workload.axes).get(model.sequence, 0)
    steps = {"prefill": slice(depth), "decode": slice(depth, None)}
    return part(model, batch, steps[workload.mode]) if workload.mode in steps else batch


def filling(model: Model, workload: Workload) -> Batch | None:
    """The batch of the call that fills the state before the first call; None in `prefill`, whose state is empty."""
    if workload.mode != "decode":
        return None
    batch = draw(model.inputs, workload.batch_size, workload.seed, sizes(model, workload))
    return part(model, batch, slice(model.sizes(workload.axes)[model.sequence]))


def part(model: Model, batch: Mapping[str, Any], steps: slice) -> dict[str, Any]:
    """These steps of each input; an input without the sequence's axis is left whole."""
    return {
        name: array[:, steps] if model.inputs[name].shape[:1] == (model.sequence,) else array
        for name, array in batch.items()
    }


def empty(model: Model, framework: str, batch_size: int, chosen: Mapping[str, int]) -> Any:
    """The empty state of a batch, as the model's own function makes it; a ModelError if that fails.

    Among the `chosen` sizes of axes, the sequence's has room for all steps that the state is to hold.
    """
    if framework not in model.state:
        raise ModelError(f"{model.name} has a state, and names none in {framework}: add {framework!r} to state")
    path = model.state[framework]
    builder = importing.load(path)
    if not callable(builder):
        raise ModelError(f"{path!r} is an object of type {type(builder).__name__}: name a function that makes a state")
    try:
        return builder(**importing.arguments(builder, {**chosen, BATCH_SIZE: batch_size}))
    except Exception as error:
        raise ModelError(f"{path!r} raised {described(error)}") from error


def divided(model: Model, framework: str, returned: Any) -> tuple[Any, Any]:
    """The output and the state in what a network's call with a state returned; a ModelError if that is no pair."""
    if not isinstance(returned, tuple | list) or len(returned) != 2:
        raise ModelError(
            f"{model.name} has a state, so its network in {framework} returns the pair (output, state), and not an "
            f"object of type {type(returned).__name__}"
        )
    return returned[0], returned[1]


def lacking(model: Model, workload: Workload, framework: str) -> str | None:
    """The reason why a framework cannot run the workload with the model's state, in one sentence; None if it can."""
    if workload.mode not in STATEFUL:
        return None
    if framework not in model.state:
        return (
            f"{model.name} names no state in {framework}, which {workload.mode} needs: "
            f'fwbench.Model(..., state={{"{framework}": "package.module:function"}})'
        )
    if workload.devices > 1:
        return f"{workload.mode} runs on one device alone"
    return f"{workload.mode} compiles for the machine that it runs on alone" if workload.target else None
