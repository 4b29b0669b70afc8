"""`fwbench prove`: proves that the networks of a model's frameworks compute the same thing."""

import argparse
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
from fwbench.models.project import Project, proofs
from fwbench.parity.store import Proved, of_suite
from fwbench.record.lanes import LANES
from fwbench.record.plain import PlainTest
from fwbench.suite.selection import pythons
from fwbench.worker.client.asking import answer
from fwbench.worker.client.prove import interpreter, prove
from fwbench.worker.client.starting import PACKAGE, command
from fwbench.worker.turns.plain import Invocation

_COLLECT = PACKAGE / "plugin" / "collect.py"

# Seconds to import all that the tests import.
_COLLECTING = 600.0

# Exit code where a proof found a difference.
_NOT_THE_SAME = 1


def add(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Compares each framework's network with the reference's in float64: output, loss, gradients, "
        "running statistics, and the losses of five SGD and Adam steps; and what each loses in float32. It says which "
        "choices of the reference no input takes. A proof is kept for as long as the model, its source files "
        "and the frameworks' versions stay as they are. Ends with 0 where all is proved that tests measure, 1 "
        "where networks differ, and 4 where there can be no proof."
    )
    parser.add_argument(
        "models",
        nargs="*",
        metavar="MODEL",
        help="names of models that the project's tests name, or of the suite's own. Default: all that the tests name",
    )
    parser.add_argument(
        "--python",
        metavar="FRAMEWORK=PATH",
        action="append",
        default=[],
        help="interpreter that proves a framework's networks, as pytest's --fwbench-python names the one that measures "
        "them; it needs the reference's framework, too. May be repeated. Default: what pytest's own settings name",
    )
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    given = pythons(options.python, "--python")
    # The suite's own models are known without looking at any test.
    found = collected(collecting=not (options.models and set(options.models) <= set(CATALOG)))
    project, others = found.project, {**pythons(found.pythons), **given}
    code = 0
    for chosen in _chosen(options.models, project, found.models):
        pairs = proofs(chosen)
        if not pairs:
            print(f"{chosen.name}: only in {chosen.reference}, so there is nothing to prove")
        for model, candidate in pairs:
            here = interpreter(model, candidate, others) == sys.executable
            if here and of_suite(model, candidate) and not is_installed(candidate):
                print(f"{model.name}: {candidate} is not installed here, so its network is not proved")
                continue
            try:
                proved = prove(model, candidate, project, tell, pythons=others)
            except UserError as error:
                print(f"fwbench: {error}", file=sys.stderr)
                code = code or UserError.EXIT_CODE
                continue
            differs = proved.state != "proved" and not (proved.training_alone and chosen.name in found.untrained)
            print(_line(proved, differs=differs), flush=True)
            if differs:
                code = _NOT_THE_SAME
    return code


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


def _chosen(names: Iterable[str], project: Project, named: list[Model]) -> list[Model]:
    if not names:
        if not named:
            raise UserError(
                "no test names a model to prove: mark one with @fwbench.proof(model) or @fwbench.benchmark(model), or "
                f"name one of the suite's own: {', '.join(name for name in CATALOG if CATALOG[name].networks)}."
            )
        return named
    for name in names:
        if name not in project.models or not project.models[name].networks:
            known = ", ".join(name for name, model in project.models.items() if model.networks)
            raise UserError(f"no test names a model {name!r}, and the suite has none: choose from {known}.")
    return [project.models[name] for name in names]


def is_installed(framework: str) -> bool:
    """True if this interpreter has the distributions that the framework's lanes need."""
    lane = next(lane for lane in LANES.values() if lane.framework == framework)
    return versions(lane.distributions).keys() == set(lane.distributions)


def _line(proved: Proved, *, differs: bool) -> str:
    """The result of a proof, in which something `differs` that tests measure, or nothing."""
    pair = f"{proved.candidate} {{}} the same as {proved.reference}"
    if differs:
        return f"{proved.model}: {pair.format('does not compute')}: {proved.sentence}"
    at = f" at {len(proved.points)} points ({'; '.join(proved.points)})" if proved.points else ""
    left_out = [f"not compared at {point}: {reason}" for point, reason in proved.left_out.items()]
    if proved.state == "proved":
        line = f"{pair.format('computes')}{at} (closest to its bound: {_nearest(proved)})"
        power = f"The proof {proved.power.sentence}" if proved.power else ""
        rest = [power, proved.sentence]
    else:
        line = f"in inference, which is all that the tests measure, {pair.format('computes')}{at}"
        rest = [f"In training it does not: {proved.sentence}"]
    return ". ".join(filter(None, [f"{proved.model}: {line}", *left_out, proved.not_tried, *rest]))


def _nearest(proved: Proved) -> str:
    nearest = proved.nearest
    if nearest is None:
        worst = max(proved.errors, key=lambda quantity: proved.errors[quantity] / proved.bounds[quantity])
        return f"{worst} {proved.errors[worst]:.1e}, at most {proved.bounds[worst]:.0e}"
    tensor = "" if nearest.tensor == nearest.quantity else f" of {nearest.tensor}"
    return f"{nearest.quantity}{tensor} {nearest.error:.1e}, at most {nearest.bound:.0e}, in {nearest.mode} mode"


def tell(stage: str) -> None:
    """Show a stage of a proof on a terminal, in the place of the last one."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K  {stage}", end="\r", file=sys.stderr, flush=True)
