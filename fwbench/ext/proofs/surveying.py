"""Builds each model's networks before anything is timed, and reports those that fail or have other weights."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice

from fwbench.models import CATALOG, Model
from fwbench.models.weights import Shape
from fwbench.plugin.progress import Progress
from fwbench.record.lanes import LANES
from fwbench.record.measurement import Failure
from fwbench.record.workload import Workload
from fwbench.suite.profiles import Protocol

# Seconds in which a network is to be built; one that takes longer is left to its tests and their deadlines.
_PATIENCE = 30.0
# The most weights of a network that a sentence names.
_NAMED = 3

Shapes = Callable[[Workload, Protocol], Mapping[str, Shape] | Failure]


def survey(
    asked: Iterable[tuple[Workload, Protocol]], models: Mapping[str, Model], shapes: Shapes, progress: Progress
) -> None:
    """Build each framework's network of a user's model once; report those that cannot be built or have other weights.

    Args:
        shapes: builds a workload's network, and returns the shapes of its weights by name.
    """
    firsts: dict[str, dict[str, tuple[Workload, Protocol]]] = {}
    for workload, protocol in asked:
        lane = LANES[workload.lane]
        if workload.model not in CATALOG and not (lane.internal or lane.derived):
            firsts.setdefault(workload.model, {}).setdefault(lane.framework, (workload, protocol))
    if firsts:
        progress.line("building each network once")
    for name, by_framework in firsts.items():
        for sentence in _faults(models[name], by_framework, shapes):
            progress.line(sentence, stays=True)


def _faults(model: Model, firsts: Mapping[str, tuple[Workload, Protocol]], shapes: Shapes) -> Iterator[str]:
    """A sentence on each network of a model that cannot be built, or whose weights are not those of its reference."""
    found: dict[str, Mapping[str, Shape]] = {}
    for framework, (workload, protocol) in firsts.items():
        answer = shapes(workload, replace(protocol, deadline=min(protocol.deadline, _PATIENCE)))
        if not isinstance(answer, Failure):
            found[framework] = answer
        elif answer.kind not in ("unavailable", "timed_out"):
            yield f"{model.name}: the network of {framework} cannot be built: {answer.message}"
    reference = next((each for each in (model.reference, *found) if each in found), "")
    for framework in found:
        if apart := _apart(reference, found[reference], framework, found[framework]):
            yield (
                f"{model.name}: the weights of {framework} and {reference} differ in names or shapes: {apart}. Both "
                f"are measured and not compared; weights={{...}} of the model maps names, and "
                f"`fwbench prove {model.name}` lists all"
            )


def _apart(reference: str, expected: Mapping[str, Shape], framework: str, actual: Mapping[str, Shape]) -> str:
    """The weights that only one of two networks has, in words; empty if there are none."""
    sides = ((reference, expected, actual), (framework, actual, expected))
    return "; ".join(
        f"in {name} alone {_listed(alone)}"
        for name, own, other in sides
        if (alone := [f"{weight} {shape}" for weight, shape in own.items() if other.get(weight) != shape])
    )


def _listed(names: list[str]) -> str:
    more = [f"{len(names) - _NAMED} more"] if len(names) > _NAMED else []
    return ", ".join([*islice(names, _NAMED), *more])
