"""What a measurement depends on besides its workload and its protocol, noted so that a later run can compare.

The journal's header holds it. A run that resumes a journal takes a measurement from it only where all of this is as it
was, so whatever is left out here must not change a number.
"""

import dataclasses
import functools
import hashlib
import json
import os
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import fwbench
from fwbench import git
from fwbench.errors import UserError
from fwbench.machine import Machine
from fwbench.models import CATALOG
from fwbench.models.model import Model
from fwbench.models.project import Project, complete
from fwbench.parity.sources import sources
from fwbench.record.lanes import LANES, recorded
from fwbench.record.workload import Workload
from fwbench.suite.selection import Selection
from fwbench.text import line, storable
from fwbench.worker.client import asking
from fwbench.worker.client.starting import PACKAGE

# Fields of a selection that change no number, or that workload, protocol, machine or interpreters already hold; all
# others are settings.
_TOLD = frozenset(
    {
        *("protocol", "suite", "asked", "settings", "study", "pythons", "device"),
        *("threads", "patience", "minutes", "devices", "scaling"),
    }
)

_INSTALLED = frozenset({"site-packages", "dist-packages"})

# Packages besides a lane's own distributions that its arithmetic comes from.
_EVERYWHERE = ("numpy",)

_DIGITS = 16
# Most characters of a condition in a sentence.
_QUOTED = 200


def conditions(
    selection: Selection,
    machine: Machine,
    project: Project,
    workloads: Iterable[Workload],
    storage: Path,
    plugins: Iterable[object],
) -> dict[str, Any]:
    """The conditions of a run, as JSON primitives for its journal's header.

    Args:
        workloads: those that the run will measure.
        storage: the folder of records, which are not code.
        plugins: of pytest; every `conftest.py` is one.
    """
    asked = list(workloads)
    lanes = list(dict.fromkeys(workload.lane for workload in asked))
    frameworks = dict.fromkeys(LANES[lane].framework for lane in lanes)
    pythons = {framework: selection.pythons.get(framework, sys.executable) for framework in frameworks}
    models = [project.models[name] for name in dict.fromkeys(workload.model for workload in asked)]
    modules, imported = _followed(models, project)
    top, commit, changes = _repository(project.root, storage)
    noted = {
        "profile": selection.protocol.profile,
        "machine": machine.to_json(),
        "settings": {
            field.name: getattr(selection, field.name)
            for field in dataclasses.fields(selection)
            if field.name not in _TOLD
        },
        "code": {
            "commit": commit,
            "changes": changes,
            "modules": modules | _loaded(project.root, top, plugins),
            "fwbench": f"{fwbench.__version__} ({_package()})",
        },
        "environment": _variables(lanes),
        "pythons": pythons,
        "interpreters": {python: interpreter(python) for python in dict.fromkeys(pythons.values())},
        "imported": imported,
    }
    # Through JSON, so that it equals what is read back.
    copy: dict[str, Any] = json.loads(json.dumps(storable(noted)))
    return copy


def of_run(then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Why nothing of one run may be used in another: one phrase per reason.

    Args:
        then, now: their conditions.
    """
    yield from differences({"profile": then["profile"]}, {"profile": now["profile"]})
    # The kernel's own share of the memory varies; and without a GPU the accelerator's name says why there is none.
    both_gpus = then["machine"].get("device") == now["machine"]["device"] == "gpu"
    left_out = {"memory"} if both_gpus else {"memory", "accelerator"}
    machines = ({n: v for n, v in of["machine"].items() if n not in left_out} for of in (then, now))
    yield from differences(*machines)
    yield from differences(then["settings"], now["settings"])
    yield from differences(*({name: of["code"][name] for name in ("commit", "fwbench")} for of in (then, now)))
    if then["code"]["changes"] != now["code"]["changes"]:
        yield "other uncommitted changes"
    # A module that only one of the runs has loaded comes from an edited module, or from other tests.
    for module in sorted(then["code"]["modules"].keys() & now["code"]["modules"].keys()):
        if then["code"]["modules"][module] != now["code"]["modules"][module]:
            yield f"{module} has changed"


def of_workload(then: Mapping[str, Any], now: Mapping[str, Any], workload: Workload) -> Iterator[str]:
    """Why no measurement of a workload may be used: what differs in its lane alone, one phrase per difference."""
    lane = LANES[workload.lane]
    names = recorded([lane])
    yield from differences(*({n: v for n, v in of["environment"].items() if n.startswith(names)} for of in (then, now)))
    pythons = [of["pythons"].get(lane.framework) for of in (then, now)]
    yield from differences(*({f"interpreter of {lane.framework}": python} for python in pythons))
    before, after = (of["interpreters"].get(python, {}) for of, python in zip((then, now), pythons, strict=True))
    yield from differences(*({"Python": installation.get("version")} for installation in (before, after)))
    imported = now["imported"].get(workload.model, ())
    relevant = {_normal(name) for name in (*lane.distributions, *lane.libraries, *_EVERYWHERE, *imported, lane.package)}
    relevant.discard("fwbench")
    installed = (installation.get("distributions", {}) for installation in (before, after))
    yield from differences(*({name: of[name] for name in relevant & of.keys()} for of in installed))


def differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """What differs between two mappings: a phrase each."""
    for name in sorted(then.keys() | now.keys()):
        before, after = then.get(name), now.get(name)
        if before != after:
            yield f"{name} {_told(before)} then, {_told(after)} now"


def _told(value: object) -> str:
    if value is None:
        return "not there"
    text = line(" ".join(map(str, value)) if isinstance(value, list) else str(value), _QUOTED)
    # A commit.
    return text[:12] if re.fullmatch(r"[0-9a-f]{40,64}", text) else text


# Code


def _repository(folder: Path, storage: Path) -> tuple[Path | None, str | None, str | None]:
    """The top of the repository that contains a folder, its commit, and a digest of its changes.

    All are None where git does not answer: then what tests have loaded is noted file by file.
    """
    try:
        top = git.top(folder)
        if isinstance(top, Path):
            commit = git.commit(top, "HEAD")
            return top, commit, _changes(top, commit, storage)
    except UserError:
        pass
    return None, None, None


def _changes(top: Path, commit: str | None, storage: Path) -> str:
    """Digest of what a repository's commit does not hold; empty if the commit holds everything.

    Args:
        commit: None: a branch without a commit.
        storage: the folder of records, which are not code.

    Raises:
        UserError: git fails.
    """
    where = ["."]
    within = storage.resolve()
    if within.is_relative_to(top) and within != top:
        where.append(f":(exclude,literal){within.relative_to(top).as_posix()}")
    plain = ("--binary", "--no-color", "--no-ext-diff", "--no-textconv", "--submodule=diff")
    held = commit or os.fsdecode(git.answer(top, "hash-object", "-t", "tree", "--stdin")).strip()
    changed = git.answer(top, "diff", held, *plain, "--", *where)
    names, _ = git.untracked(top, *where)
    digest = hashlib.sha256(changed)
    for name in names:
        digest.update(b"\0" + name + b"\0" + _contents(top / os.fsdecode(name)))
    return digest.hexdigest()[:_DIGITS] if changed or names else ""


@functools.cache
def _package() -> str:
    """Digest of this fwbench's own files."""
    digest = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            digest.update(f"\0{path.relative_to(PACKAGE)}\0".encode())
            digest.update(_contents(path))
    return digest.hexdigest()[:_DIGITS]


def _loaded(root: Path, top: Path | None, plugins: Iterable[object]) -> dict[str, str]:
    """Digests of the user's files that the tests have loaded and that no commit holds."""
    known = (PACKAGE, Path(sysconfig.get_paths()["stdlib"]), *((top,) if top else ()))
    # Compared as text: there are thousands of modules, and comparing paths part by part would take long.
    folders = tuple(os.path.normcase(folder / "_")[:-1] for folder in known)
    digests = {}
    for file in sorted({getattr(module, "__file__", None) or "" for module in (*sys.modules.values(), *plugins)}):
        path = Path(file)
        if path.is_absolute() and not _INSTALLED & {*path.parts} and not os.path.normcase(path).startswith(folders):
            name = path.relative_to(root) if path.is_relative_to(root) else path
            digests[str(name)] = hashlib.sha256(_contents(path)).hexdigest()[:_DIGITS]
    return digests


def _followed(models: Sequence[Model], project: Project) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Digests of the modules that the user's networks consist of, and by model the distributions that these import."""
    files: dict[str, str] = {}
    imported: dict[str, list[str]] = {}
    before = list(sys.path)
    # The same import path as in workers.
    sys.path[:0] = map(str, project.path)
    try:
        for model in map(complete, models):
            if model != CATALOG.get(model.name):
                losses = [] if isinstance(model.loss, str) else model.loss.values()
                parts = sources(path for path in (*model.networks.values(), *losses) if ":" in path)
                files |= parts.files
                imported[model.name] = list(parts.distributions)
    finally:
        sys.path[:] = before
    return files, imported


def _contents(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


# Environment


def _variables(lanes: Iterable[str]) -> dict[str, str]:
    """The variables that are set and change what these lanes measure."""
    chosen = [LANES[lane] for lane in lanes]
    names = recorded(chosen)
    caches = {name for lane in chosen for name in lane.caches}
    return {name: value for name, value in sorted(os.environ.items()) if name.startswith(names) and name not in caches}


@functools.cache
def interpreter(python: str) -> dict[str, Any]:
    """An interpreter's `version` and its `distributions`: versions by normalised name.

    Raises:
        SilentError: it does not answer.
    """
    version: str | None = sys.version.split()[0]
    path = sys.path
    if python != sys.executable:
        try:
            version, path = asking.ask(python, "import platform, sys; answer = [platform.python_version(), sys.path]")
        except asking.SilentError:
            # Each of its benchmarks would wait for it, too.
            raise
        except UserError:
            # The worker reports it.
            version, path = None, []
    versions: dict[str, str] = {}
    for folder in path:
        try:
            names = os.listdir(folder or ".")
        except OSError:
            continue
        for name in names:
            # The folder's name holds the distribution's name and version; reading each metadata file would take 0.2 s.
            distribution, dash, number = name.removesuffix(".dist-info").partition("-")
            if dash and name.endswith(".dist-info"):
                versions.setdefault(_normal(distribution), number)
    return {"version": version, "distributions": dict(sorted(versions.items()))}


def _normal(name: str) -> str:
    """A distribution's name, the same for all its spellings (packaging.python.org, "Names and normalization")."""
    return re.sub(r"[-_.]+", "-", name).lower()
