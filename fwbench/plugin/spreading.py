"""One test spread over its workloads or networks: its parameters, their ids, and the marks that select them."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

import pytest

from fwbench.errors import hint
from fwbench.models import Model
from fwbench.models.project import Project, complete, provable
from fwbench.record.lanes import LANES
from fwbench.record.workload import HARNESS_MODES, MODES, Workload
from fwbench.suite.selection import Selection

# Parameters by which results can be grouped, each with its field of the workload.
_PARAMETERS = {"framework": "lane", **{name: name for name in ("model", "mode", "batch_size", "precision")}}

_SPREAD = "fwbench_spread"


def markers() -> list[str]:
    """Markers that fwbench sets, and that users do not write."""
    return [
        f"{_SPREAD}(what): what fwbench measures or proves in this test, or why it cannot spread it.",
        *(f"{lane.name}: measures the lane {lane.title}." for lane in LANES.values()),
        *(f"{mode}: measures the mode {mode}." for mode in (*MODES, *HARNESS_MODES)),
    ]


@dataclass(frozen=True)
class Candidate:
    """A network to be proved: a model's, in another framework than the reference."""

    model: Model
    framework: str


def workloads(marker: pytest.Mark, selection: Selection, project: Project) -> list[Workload]:
    """The workloads that a test marked by `fwbench.benchmark` measures in this run.

    Raises:
        pytest.UsageError: the options' values make no workload.
        ValueError: the marker's make none; one sentence.
    """
    asked = {"modes": ("inference",), "batch_sizes": (1,), "lanes": (), **marker.kwargs}
    _known(asked["modes"], (*MODES, *HARNESS_MODES), "mode")
    _known(asked["lanes"], LANES, "lane")
    models = _models(marker, project)
    try:
        if not marker.args:
            return [workload for mode in asked["modes"] for workload in selection.workloads(mode, project.models)]
        if selection.study:
            return []
        return [
            workload
            for model in models
            for mode in asked["modes"]
            for workload in selection.of_test(model, mode, asked["batch_sizes"], asked["lanes"])
        ]
    except ValueError as error:
        raise pytest.UsageError(f"{error}.") from None


def candidates(marker: pytest.Mark, project: Project) -> list[Candidate]:
    """The networks that a test marked by `fwbench.proof` proves.

    Raises:
        ValueError: a model is none, or has one network alone.
    """
    networks = []
    for model in map(complete, _models(marker, project)):
        others = provable(model)
        if not others:
            raise ValueError(f"{model.name} has a network in {model.reference} alone, so there is nothing to prove")
        networks += [Candidate(model, framework) for framework in others]
    return networks


def parametrize(metafunc: pytest.Metafunc, workloads: list[Workload]) -> None:
    """Spread a test over workloads, under primitives that pytest-benchmark can group by and under stable ids."""
    axes = list(dict.fromkeys(axis for workload in workloads for axis, _ in workload.axes))
    parameters = dict(_PARAMETERS)
    if any(workload.devices > 1 for workload in workloads):
        parameters["devices"] = "devices"
    values = [
        pytest.param(
            *(getattr(workload, name) for name in parameters.values()),
            *(dict(workload.axes).get(axis) for axis in axes),
            id=workload.id,
            marks=[
                getattr(pytest.mark, workload.lane),
                getattr(pytest.mark, workload.mode),
                getattr(pytest.mark, _SPREAD)(workload),
            ],
        )
        for workload in workloads
    ]
    _parametrize(metafunc, (*parameters, *axes), values)


def parametrize_candidates(metafunc: pytest.Metafunc, candidates: list[Candidate]) -> None:
    """Spread a test over the networks that it proves."""
    values = [
        pytest.param(
            each.framework,
            each.model.name,
            id=f"{each.framework}-{each.model.name}",
            marks=[getattr(pytest.mark, _SPREAD)(each)],
        )
        for each in candidates
    ]
    _parametrize(metafunc, ("framework", "model"), values)


def parametrize_fault(metafunc: pytest.Metafunc, sentence: str) -> None:
    """Make the test fail with this sentence, so that the fault affects no other test."""
    marks = getattr(pytest.mark, _SPREAD)(sentence)
    _parametrize(metafunc, ("framework",), [pytest.param(None, id="fault", marks=marks)])


def workload_of(item: pytest.Item) -> Workload | None:
    """The workload of a test; None if the test was not spread."""
    subject = _spread(item)
    return subject if isinstance(subject, Workload) else None


def candidate_of(item: pytest.Item) -> Candidate | None:
    """The network that a test proves."""
    subject = _spread(item)
    return subject if isinstance(subject, Candidate) else None


def fault_of(item: pytest.Item) -> str | None:
    """Why a test could not be spread."""
    subject = _spread(item)
    return subject if isinstance(subject, str) else None


def _spread(item: pytest.Item) -> Any:
    marker = item.get_closest_marker(_SPREAD)
    return marker.args[0] if marker else None


def _parametrize(metafunc: pytest.Metafunc, names: Iterable[str], values: Iterable[Any]) -> None:
    taken = _taken(metafunc)
    ours = [f"fwbench_{name}" if name in taken else name for name in names]
    # The test need not take them as arguments: ids, groups and fixtures use them.
    metafunc.fixturenames.extend(name for name in ours if name not in metafunc.fixturenames)
    metafunc.parametrize(ours, values)


def _taken(metafunc: pytest.Metafunc) -> set[str]:
    """Names that already mean something in this test: fixtures that it uses, and parameters of its own.

    A parameter of the same name would silently replace a fixture.
    """
    parameters = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize") if mark.args]
    lists = [names.split(",") if isinstance(names, str) else names for names in parameters]
    return {*metafunc._arg2fixturedefs, *(name.strip() for names in lists for name in names)}


def _models(marker: pytest.Mark, project: Project) -> list[Model]:
    """The models that a marker names, which are added to the project."""
    for given in marker.args:
        if not isinstance(given, (Model, str)):
            raise ValueError(f"{given!r} is no model: give an fwbench.Model, or the name of one of the suite's")
    own = [given for given in marker.args if isinstance(given, Model)]
    for model in own:
        _known(
            model.networks, {lane.framework for lane in LANES.values()}, "framework", f" of the model {model.name!r}"
        )
    project.add(own)
    names = [given if isinstance(given, str) else given.name for given in marker.args]
    _known(names, project.models, "model")
    return [project.models[name] for name in names]


def _known(names: Iterable[str], known: Collection[str], kind: str, where: str = "") -> None:
    for name in names:
        if name not in known:
            raise ValueError(f"unknown {kind} {name!r}{where}: {hint(name, sorted(known))}")
