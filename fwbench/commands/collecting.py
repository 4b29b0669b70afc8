"""The project's models and plain tests, as pytest collects them, and whether their frameworks are installed here."""

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fwbench import git
from fwbench.errors import Absent, UserError, hint
from fwbench.machine import versions
from fwbench.models import CATALOG, Model
from fwbench.models.project import Project
from fwbench.record.lanes import LANES
from fwbench.record.plain import PlainTest
from fwbench.worker.client.asking import answer
from fwbench.worker.client.starting import PACKAGE, command
from fwbench.worker.turns.plain import Invocation

_COLLECT = PACKAGE / "plugin" / "collect.py"

# Seconds to import all that the tests import.
_COLLECTING = 600.0


@dataclass(frozen=True)
class Collected:
    """The models and settings that pytest collects in the current folder.

    Attributes:
        models: those that the project's tests name.
        untrained: names of the models among them that no test trains or proves.
        pythons: the values of `--fwbench-python` in the project's settings of pytest.
    """

    project: Project
    models: list[Model]
    untrained: frozenset[str]
    pythons: list[str]


def collected(*, collecting: bool = True) -> Collected:
    """Collect the project, in a process of its own, for tests may import anything; no tests unless `collecting`."""
    arguments = [] if collecting else ["--ignore-glob=*"]
    collection = _collection(
        arguments,
        "the project's tests could not be collected, so its models are not known: `pytest --collect-only` says why",
    )
    project = _project(collection)
    models = [Model.from_json(model) for model in collection["models"]]
    try:
        project.add(models)
    except ValueError as error:
        raise UserError(f"{error}.") from None
    suite = [model for model in CATALOG.values() if model.networks and model not in models]
    untrained = frozenset(model.name for model in models) - {*collection["trained"]}
    return Collected(project, [*models, *(suite if collection["suite"] else [])], untrained, collection["pythons"])


def collected_plain(test: str) -> tuple[Project, PlainTest, Invocation]:
    """The project, a plain test as pytest's command line names it, and how pytest is to be called for it.

    Raises:
        UserError: pytest finds no such test, or several.
    """
    collection = _collection([test], f"--test {test}: pytest cannot collect it")
    project, found = _project(collection), collection["plain"]
    if not found:
        raise UserError(f"--test {test}: there is no test with the fixture `benchmark`: name another.")
    if len(found) > 1:
        raise UserError(f"--test {test}: that is {len(found)} tests; name one: {hint(test, found)}.")
    top = git.top(project.root)
    imported = [Path(os.fsdecode(bytes(folder))) for folder in collection["imported"]]
    called = Invocation(project.root if isinstance(top, Absent) else top, Path.cwd(), [], [test], imported)
    return project, PlainTest(found[0]), called


def _collection(arguments: Iterable[str], unknown: str) -> Mapping[str, Any]:
    """The answer of `fwbench.plugin.collect`; the sentence on a failure begins with `unknown`."""
    return answer(command(sys.executable, _COLLECT, *arguments), "root", _COLLECTING, unknown)


def _project(collection: Mapping[str, Any]) -> Project:
    root, *path = (Path(os.fsdecode(bytes(place))) for place in (collection["root"], *collection["path"]))
    return Project(root, tuple(path))


def has_framework(framework: str) -> bool:
    """True if this interpreter has the distributions that the framework's lanes need."""
    lane = next(lane for lane in LANES.values() if lane.framework == framework)
    return versions(lane.distributions).keys() == set(lane.distributions)
