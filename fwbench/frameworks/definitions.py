"""Checks, the same in every framework, of what a model describes, what its path names, and the weights it is given."""

import difflib
import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any

from fwbench.frameworks import extended, own_steps
from fwbench.frameworks.training import classifies
from fwbench.models import Model, stateful
from fwbench.models.importing import ModelError, parameters
from fwbench.models.weights import Shape
from fwbench.record.workload import TRAINING, Workload


def lacking(model: Model, workload: Workload, framework: str, title: str, modes: Collection[str]) -> str | None:
    """The reason why a framework's lanes cannot run a workload with the model on any machine; None if they can.

    Args:
        title: the framework's name in sentences.
        modes: modes that the framework's lanes have.
    """
    if framework not in model.networks:
        return f"{model.name} names no network in {title}"
    if workload.mode not in modes:
        return f"the lanes of {title} have no mode {workload.mode!r}"
    if reason := stateful.lacking(model, workload, framework) or own_steps.lacking(model, workload, framework):
        return reason
    if workload.mode == "fit" and not classifies(model):
        return f"fit trains a network that makes logits of one input of floating point, and {model.name} is none"
    if workload.mode in TRAINING and isinstance(model.loss, dict) and framework not in model.loss:
        return f"{model.name} names no loss in {title}"
    return extended.lacking(workload, model, framework)


def takes_inputs(
    model: Model, framework: str, named: Callable[..., Any], sizes: Mapping[str, int], random: tuple[str, ...] = ()
) -> bool:
    """True if a path names a function of the model's inputs, False if it names a builder of its network.

    Args:
        named: the class or function that the path names.
        sizes: sizes of the model's axes.
        random: parameters by which the framework's builders take random numbers.

    Raises:
        ModelError: its parameters are those of neither.
    """
    known, is_class = parameters(named), inspect.isclass(named)
    if known is None:
        # Functions in C, such as `torch.nn.functional.scaled_dot_product_attention`, do not list their parameters.
        return not is_class
    kinds = {parameter.kind for parameter in known.values()}
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    required = {
        name: parameter.kind
        for name, parameter in known.items()
        if parameter.default is parameter.empty and parameter.kind not in variable and name not in sizes
    }
    if required.keys() <= set(random):
        return False
    if "" in model.inputs:
        fits = len(required) == 1 and inspect.Parameter.KEYWORD_ONLY not in required.values()
    else:
        takes_all = inspect.Parameter.VAR_KEYWORD in kinds or model.inputs.keys() <= known.keys()
        fits = required.keys() <= model.inputs.keys() and takes_all
    if fits and not is_class:
        return True
    inputs, others = ", ".join(filter(None, model.inputs)), f", {' and '.join(random)}" if random else ""
    raise ModelError(
        f"{model.networks[framework]!r} has the parameters {', '.join(known)}: a builder of {model.name}'s network "
        f"requires none but its axes ({', '.join(model.axes) or 'it has none'}){others}, and a function in its place "
        f"takes {f'its inputs ({inputs})' if inputs else 'its one input'}"
    )


def check_function(path: str, built: Any, network: str) -> None:
    """Check that an object that a builder returned in place of a network is a function.

    Args:
        path: the builder's import path.
        network: the networks that the framework knows, for the sentence.

    Raises:
        ModelError: it is a class, or no function.
    """
    if inspect.isclass(built) or not callable(built):
        what = f"the class {built.__name__}" if inspect.isclass(built) else f"an object of type {type(built).__name__}"
        raise ModelError(f"{path!r} returned {what} instead of {network}")


def check_weights(network: str, expected: Mapping[str, Shape], weights: Mapping[str, Any]) -> None:
    """Check that weights are the ones that a network needs.

    Args:
        network: the network, for the sentence.
        expected: canonical shape of every weight, by canonical name.

    Raises:
        ModelError: one is missing, unknown or of another shape; the sentence names it and its nearest match.
    """
    given = {name: tuple(array.shape) for name, array in weights.items()}
    unknown = {name: shape for name, shape in given.items() if name not in expected}
    wrong, hinted = [], set()
    for name, shape in expected.items():
        if name not in given:
            near = difflib.get_close_matches(name, unknown, n=1)
            hinted.update(near)
            hint = f" (the nearest that nobody needs is {near[0]!r} {unknown[near[0]]})" if near else ""
            wrong.append(f"{name!r} {shape} is missing{hint}")
        elif given[name] != shape:
            wrong.append(f"{name!r} has the shape {given[name]} instead of {shape}")
    wrong += [f"{name!r} {shape} is unknown" for name, shape in unknown.items() if name not in hinted]
    if wrong:
        more = f"; and {len(wrong) - 5} more" if len(wrong) > 5 else ""
        raise ModelError(f"the weights do not fit {network}: {'; '.join(wrong[:5])}{more}")
