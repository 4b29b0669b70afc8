"""Finds the array that a model computes in what its network returns: an array, a tuple, a dict, or an object."""

from collections.abc import Mapping
from typing import Any

from fwbench.models.importing import ModelError
from fwbench.models.model import Model
from fwbench.models.stateful import divided


def select(model: Model, framework: str, returned: Any, batch_size: int) -> Any:
    """The model's output in what the network of a framework returned.

    A ModelError says if the output is not in the place that the model names, is no array, or if its first axis is not
    the batch.
    """
    output = divided(model, framework, returned)[0] if model.state else returned
    selector = model.output_of(framework)
    if selector is not None:
        whole, output = output, _part(output, selector)
        if output is None:
            place = f"what its network in {framework} returns"
            raise ModelError(f"{model.name} has no output {selector!r} in {place}: {contents(whole)}")
    if not hasattr(output, "shape") or not hasattr(output, "dtype"):
        first = next(iter(_selectors(output)), 0)
        raise ModelError(
            f"{model.name} returns {contents(output)} instead of an array: name the output's index, key or attribute, "
            f"as in fwbench.Model(..., output={first!r}), or for this framework alone, "
            f"output={{{framework!r}: {first!r}}}"
        )
    if tuple(output.shape[:1]) != (batch_size,):
        raise ModelError(
            f"{model.name} returns an output of shape {tuple(output.shape)} for a batch of {batch_size}: "
            "the first axis must be the batch"
        )
    return output


def contents(returned: Any) -> str:
    """A returned value in a few words, with the parts that a selector could name."""
    if isinstance(returned, Mapping):
        return f"a {type(returned).__name__} with the keys {', '.join(map(repr, returned))}"
    if isinstance(returned, (tuple, list)):
        return f"a {type(returned).__name__} of {len(returned)} values"
    attributes = _selectors(returned)
    named = f" with the attributes {', '.join(map(repr, attributes))}" if attributes else ""
    return f"a {type(returned).__name__}{named}"


def _selectors(returned: Any) -> list[Any]:
    """The keys, indices or attributes by which a returned value's parts can be named."""
    if isinstance(returned, Mapping):
        return list(returned)
    if isinstance(returned, (tuple, list)):
        return list(range(len(returned)))
    return [name for name, value in getattr(returned, "__dict__", {}).items() if hasattr(value, "shape")]


def _part(returned: Any, selector: str | int) -> Any:
    try:
        return returned[selector]
    except (KeyError, IndexError, TypeError):
        return getattr(returned, selector, None) if isinstance(selector, str) else None
