"""Matches the weights of two networks by name and shape."""

import difflib
import functools
import re

from fwbench.ext.proofs.case import side
from fwbench.ext.proofs.errors import NotTheSame
from fwbench.models import Model
from fwbench.models.weights import Shape, is_statistic

# Most unmatched weights that are described. Of more, the names and shapes follow.
_LISTED = 6


@functools.cache
def shapes(model: Model, framework: str) -> dict[str, Shape]:
    """Canonical name to canonical shape of every weight and running statistic of a framework's network.

    Raises:
        ModelError: the network cannot be built as the model describes it.
    """
    return side(framework).shapes(model, model.sizes())


def match(model: Model, candidate: str) -> None:
    """Raise NotTheSame if a weight of one network has no counterpart of its name and shape in the other."""
    reference = model.reference
    expected, actual = shapes(model, reference), shapes(model, candidate)
    both = {reference: expected, candidate: actual}
    buffers = {framework: side(framework).buffers(model, model.sizes()) for framework in both}
    unmatched = [name for name in {**actual, **expected} if actual.get(name) != expected.get(name)]
    if not unmatched:
        return

    def line(name: str) -> str:
        if name in actual and name in expected:
            return f"{name!r} is {actual[name]} in {candidate} and {expected[name]} in {reference}"
        one, other = (candidate, reference) if name in actual else (reference, candidate)
        shape = both[one][name]
        if name in buffers[other]:
            return f"{name!r} {shape} is a weight in {one} and a buffer in {other}"
        left = {n: both[other][n] for n in unmatched if n in both[other]}
        alike = [n for n, of in left.items() if of == shape] or list(left)
        near = difflib.get_close_matches(name, alike, n=1, cutoff=0.0)
        nearest = f"; the nearest in {other} is {near[0]!r} {left[near[0]]}" if near else ""
        path, dot, leaf = name.rpartition(".")
        # `scale` in JAX's networks has been renamed to `weight`, whatever the other network calls it.
        if one == "jax" and leaf == "weight" and left.get(scale := f"{path}{dot}scale") == shape:
            nearest += f": if it is the same, weights={{{f'^{re.escape(name)}$'!r}: {scale!r}}} says so"
        return f"{name!r} {shape} is in {one} alone{nearest}"

    lines = [*map(line, unmatched[:_LISTED])]
    if len(unmatched) > _LISTED:
        lines.append(f"and {len(unmatched) - _LISTED} more")
        for framework, of in both.items():
            if own := [f"  {name!r} {of[name]}" for name in unmatched if name in of]:
                lines += [f"all of {framework} without a counterpart:", *own]
    raise NotTheSame(
        f"{model.name}: the weights of {candidate} and {reference} do not all have the same names and shapes. "
        "Rename them, or map names with weights={...} of the model:\n  " + "\n  ".join(lines)
    )


def has_statistics(model: Model) -> bool:
    """True if the reference's network keeps running statistics, as batch normalisation does."""
    return any(map(is_statistic, shapes(model, model.reference)))
