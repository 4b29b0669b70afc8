"""One test spread over its workloads or networks: its parameters, their ids, and the marks that select them.

A marker that makes no workload or network is a ValueError of one sentence.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest

from fwbench.errors import hint
from fwbench.models import Model
from fwbench.models.project import Project, proofs
from fwbench.record.lanes import LANES
from fwbench.record.workload import HARNESS_MODES, MODES, Workload, shown
from fwbench.suite.selection import Selection

_SPREAD = "fwbench_spread"

_Kind = TypeVar("_Kind")


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

    @property
    def id(self) -> str:
        return f"{self.framework}-{self.model.name}"


# A test is spread over subjects; one that is a text is the sentence with which the test fails.
Subject = Workload | Candidate | str


def workloads(marker: pytest.Mark, selection: Selection, project: Project) -> list[Workload]:
    """The workloads that a test marked by `fwbench.benchmark` measures in this run.

    Raises:
        pytest.UsageError: the options' values make no workload.
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
    """The networks that a test marked by `fwbench.proof` proves."""
    networks = []
    for model in _models(marker, project):
        pairs = proofs(model)
        if not pairs:
            raise ValueError(f"{model.name} has a network in {model.reference} alone, so there is nothing to prove")
        networks += [Candidate(named, framework) for named, framework in pairs]
    return networks


def parametrize(metafunc: pytest.Metafunc, subjects: Sequence[Subject]) -> None:
    """Spread a test over its subjects, with stable ids and with primitives that results can be grouped by.

    A subject that is a sentence makes this test alone fail with it.
    """
    fields = ["model", "mode", "batch_size", "precision"]
    if any(isinstance(subject, Workload) and subject.devices > 1 for subject in subjects):
        fields.append("devices")
    rows = [_parameters(subject, fields) for subject in subjects]
    names = list(dict.fromkeys(name for row in rows for name in row)) or ["framework"]
    values = [
        pytest.param(
            *map(row.get, names),
            id="fault" if isinstance(subject, str) else subject.id,
            marks=[
                getattr(pytest.mark, _SPREAD)(subject),
                *(
                    getattr(pytest.mark, row[name].partition(":")[0])
                    for name in ("framework", "mode")
                    if isinstance(subject, Workload)
                ),
            ],
        )
        for subject, row in zip(subjects, rows, strict=True)
    ]
    taken = _taken(metafunc)
    ours = [f"fwbench_{name}" if name in taken else name for name in names]
    # The test need not take them as arguments: ids, groups and fixtures use them.
    metafunc.fixturenames.extend(name for name in ours if name not in metafunc.fixturenames)
    metafunc.parametrize(ours, values)


def subject_of(item: pytest.Item, kind: type[_Kind]) -> _Kind | None:
    """The subject that a test was spread over, if it is of this kind."""
    marker = item.get_closest_marker(_SPREAD)
    return marker.args[0] if marker and isinstance(marker.args[0], kind) else None


def _parameters(subject: Subject, fields: Iterable[str]) -> dict[str, Any]:
    if isinstance(subject, Workload):
        sizes = {axis: shown(size) for axis, size in subject.axes}
        return {"framework": subject.lane, **{name: getattr(subject, name) for name in fields}, **sizes}
    if isinstance(subject, Candidate):
        return {"framework": subject.framework, "model": subject.model.name}
    return {"framework": None}


def _taken(metafunc: pytest.Metafunc) -> set[str]:
    """Names that already mean something in this test: fixtures that it uses, and parameters of its own.

    A parameter of the same name would silently replace a fixture.
    """
    parameters = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize") if mark.args]
    lists = [names.split(",") if isinstance(names, str) else names for names in parameters]
    return {*metafunc._arg2fixturedefs, *(name.strip() for names in lists for name in names)}


def _models(marker: pytest.Mark, project: Project) -> list[Model]:
    """Add the models that a marker names to the project, and return them."""
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
