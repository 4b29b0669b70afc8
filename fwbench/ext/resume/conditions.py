"""The conditions of a run: all that a measurement depends on besides its workload and its protocol.

A journal's header holds them. A run takes a measurement from a journal only if its conditions are unchanged, so
anything left out here must not change a number.
"""

import functools
import hashlib
import json
import os
import re
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

import fwbench
from fwbench import git
from fwbench.errors import UserError
from fwbench.machine import Machine
from fwbench.models import CATALOG
from fwbench.models.importing import INSTALLED
from fwbench.models.model import Model
from fwbench.models.project import Project, complete
from fwbench.models.sources import Sources, sources
from fwbench.record.lanes import LANES, Lane, recorded
from fwbench.record.workload import Workload
from fwbench.suite.selection import Selection
from fwbench.text import line, storable
from fwbench.worker.client import asking
from fwbench.worker.client.starting import PACKAGE

# Fields of a selection that change no number, or that workload, protocol, machine or interpreters already hold; a new
# field is a condition unless it is named here.
_ELSEWHERE = {"protocol", "suite", "asked", "settings", "study", "pythons", "device", "threads"}
_ELSEWHERE |= {"patience", "minutes", "devices", "scaling", "quantised"}

# The most characters of a condition that a sentence quotes.
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
        plugins: pytest's; every `conftest.py` is one.
    """
    by_lane: dict[str, set[str]] = {}
    for workload in workloads:
        by_lane.setdefault(workload.lane, set()).add(workload.model)
    asked = {name: project.models[name] for names in by_lane.values() for name in names}
    users = {name: model for name, model in asked.items() if model != CATALOG.get(name)}
    followed = _followed([*users.values()], project)
    top, commit, changes = _repository(project.root, storage)
    profile, here = selection.protocol.profile, machine.to_json()
    # The kernel's own share of the memory varies; and without a GPU the accelerator's name says why there is none.
    varying = {"memory"} if machine.device == "gpu" else {"memory", "accelerator"}
    noted = {
        "profile": profile,
        "machine": here,
        "run": {
            "profile": profile,
            **{name: value for name, value in here.items() if name not in varying},
            **{each.name: getattr(selection, each.name) for each in fields(selection) if each.name not in _ELSEWHERE},
            "commit": commit,
            "fwbench": f"{fwbench.__version__} ({_package()})",
        },
        "changes": changes,
        "modules": followed.files | _loaded(project.root, top, plugins),
        "lanes": {
            name: _of_lane(LANES[name], selection.pythons, followed.distributions if names & users.keys() else ())
            for name, names in by_lane.items()
        },
    }
    # Through JSON, so that it equals what is read back.
    copy: dict[str, Any] = json.loads(json.dumps(storable(noted)))
    return copy


def of_run(then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """A phrase for each difference that bars the use of anything from a run under the conditions `then`."""
    yield from differences(then["run"], now["run"])
    if then["changes"] != now["changes"]:
        yield "other uncommitted changes"
    # A module that only one of the runs has loaded does not count: other tests import it, or an edited module does,
    # which counts itself.
    modules = then["modules"]
    yield from changed({n: v for n, v in now["modules"].items() if n in modules}, modules.get)


def of_workload(then: Mapping[str, Any], now: Mapping[str, Any], workload: Workload) -> Iterator[str]:
    """A phrase for each difference in a workload's lane that bars the use of its measurements."""
    return differences(then["lanes"].get(workload.lane, {}), now["lanes"][workload.lane])


def differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """A phrase for each difference between two mappings."""
    for name in sorted(then.keys() | now.keys()):
        before, after = then.get(name), now.get(name)
        if before != after:
            yield f"{name} {_quoted(before)} then, {_quoted(after)} now"


def changed(texts: Mapping[str, str], other: Callable[[str], str | None]) -> Iterator[str]:
    """A phrase for each text whose digest differs from the `other` one of the same name."""
    return (f"{name} has changed" for name, digest in sorted(texts.items()) if other(name) != digest)


def _of_lane(lane: Lane, pythons: Mapping[str, str], imported: Iterable[str]) -> dict[str, Any]:
    """A lane's variables and interpreter, and the versions in it of what the lane and its networks import."""
    python = pythons.get(lane.framework, sys.executable)
    installed = interpreter(python)
    # NumPy's arithmetic is in every lane. fwbench's own version is among the conditions of the whole run.
    names = {
        canonicalize_name(name) for name in (*lane.distributions, *lane.libraries, "numpy", *imported, lane.package)
    }
    return {
        # Workers have caches of their own.
        **{n: v for n, v in os.environ.items() if n.startswith(recorded([lane])) and n not in lane.caches},
        f"interpreter of {lane.framework}": python,
        "Python": installed["version"],
        **{n: v for n, v in installed["distributions"].items() if n in names - {"fwbench"}},
    }


def _quoted(value: object) -> str:
    if value is None:
        return "not there"
    text = line(" ".join(map(str, value)) if isinstance(value, list) else str(value), _QUOTED)
    # A commit is shortened.
    return text[:12] if re.fullmatch(r"[0-9a-f]{40,64}", text) else text


# Code


def _repository(folder: Path, storage: Path) -> tuple[Path | None, str | None, str | None]:
    """The top of the repository that contains a folder, its commit, and a digest of what the commit does not hold.

    The digest is empty if the commit holds everything. All are None if git does not answer: then the files that tests
    have loaded are noted one by one.
    """
    try:
        top = git.top(folder)
        if not isinstance(top, Path):
            return None, None, None
        commit = git.commit(top, "HEAD")
        within = storage.resolve()
        records = f":(exclude,literal){within.relative_to(top).as_posix()}" if top in within.parents else ""
        where = (".", *filter(None, [records]))
        # On a branch without a commit, everything differs from the empty tree.
        held = commit or os.fsdecode(git.answer(top, "hash-object", "-t", "tree", "--stdin")).strip()
        plain = ("--binary", "--no-color", "--no-ext-diff", "--no-textconv", "--submodule=diff")
        differing = git.answer(top, "diff", held, *plain, "--", *where)
        new, _ = git.untracked(top, *where)
    except UserError:
        return None, None, None
    texts = (part for name in new for part in (b"\0" + name + b"\0", _contents(top / os.fsdecode(name))))
    return top, commit, _digest([differing, *texts]) if differing or new else ""


@functools.cache
def _package() -> str:
    """Digest of this fwbench's own files."""
    files = [path for path in sorted(PACKAGE.rglob("*")) if path.is_file() and "__pycache__" not in path.parts]
    return _digest(part for p in files for part in (f"\0{p.relative_to(PACKAGE)}\0".encode(), _contents(p)))


def _loaded(root: Path, top: Path | None, plugins: Iterable[object]) -> dict[str, str]:
    """Digests of the user's files that the tests have loaded and that no commit holds."""
    known = (PACKAGE, Path(sysconfig.get_paths()["stdlib"]), *((top,) if top else ()))
    # Compared as text: there are thousands of modules, and comparing paths part by part would take long.
    folders = tuple(os.path.normcase(folder / "_")[:-1] for folder in known)
    digests = {}
    for file in sorted({getattr(module, "__file__", None) or "" for module in (*sys.modules.values(), *plugins)}):
        path = Path(file)
        if path.is_absolute() and not INSTALLED & {*path.parts} and not os.path.normcase(path).startswith(folders):
            name = path.relative_to(root) if path.is_relative_to(root) else path
            digests[str(name)] = _digest([_contents(path)])
    return digests


def _followed(models: Sequence[Model], project: Project) -> Sources:
    """The modules that the user's networks consist of, and the distributions that these import."""
    paths = [path for model in models for path in (*complete(model).networks.values(), *model.paths)]
    paths += [path for model in models for framework in model.networks for path in model.functions(framework)]
    before = list(sys.path)
    # The same import path as in workers.
    sys.path[:0] = map(str, project.path)
    try:
        return sources(path for path in paths if ":" in path)
    finally:
        sys.path[:] = before


def _contents(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _digest(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()[:16]


# Versions


@functools.cache
def interpreter(python: str) -> dict[str, Any]:
    """An interpreter's `version`, and those of its `distributions` by normalised name; a SilentError: no answer."""
    version: str | None = sys.version.split()[0]
    path = sys.path
    if python != sys.executable:
        try:
            version, path = asking.ask(python, "import platform, sys; answer = [platform.python_version(), sys.path]")
        except asking.SilentError:
            # Each benchmark under this interpreter would wait in vain, too.
            raise
        except UserError:
            # The worker reports it.
            version, path = None, []
    # Folders' names hold name and version; reading each metadata file would take 0.2 s. Of two versions of a
    # distribution, the one in the earlier folder is imported.
    found = [file.stem.split("-", 1) for folder in reversed(path) for file in Path(folder).glob("*-*.dist-info")]
    return {"version": version, "distributions": {canonicalize_name(name): number for name, number in found}}
