"""The two sides of a duet: a revision or an environment to compare with, and the working tree as it is."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from fwbench.errors import UserError
from fwbench.worker.client import PACKAGE


@dataclass(frozen=True)
class Side:
    """What is measured on one side.

    Attributes:
        name: `base` or `head`.
        title: for readers: the revision, or the interpreter.
        package: the folder of its `fwbench`; both sides' paths have the same length, as a path's length moves what lies
            behind it in memory.
        caches: a folder for compilers' caches.
        python: the interpreter, of all frameworks.
        pythons: interpreter of a framework's workers, where it has one of its own.
    """

    name: str
    title: str
    package: Path
    caches: Path
    python: str = sys.executable
    pythons: Mapping[str, str] = field(default_factory=dict)

    def interpreter(self, framework: str) -> str:
        """The interpreter of a framework's workers."""
        return self.pythons.get(framework, self.python)


@dataclass(frozen=True)
class Found:
    """What to compare with.

    Attributes:
        interpreter, revision: one of them.
        root: what stands for the working tree: the repository's top; with an interpreter, what `fwbench` lies in.
        package: the folder of `fwbench`, from there.
    """

    interpreter: str | None
    revision: str | None
    root: Path
    package: str


def find(against: str, project: Path) -> Found:
    """Tell what a text means: where it could be both, a name is a revision, and a path an interpreter.

    Raises:
        UserError: it is neither, or a revision that has no `fwbench`.
    """
    top = _git(project, "rev-parse", "--show-toplevel")
    revision = top and _git(project, "rev-parse", "--verify", f"{against}^{{commit}}")
    interpreter = shutil.which(against)
    if interpreter and (not revision or os.path.dirname(against)):
        return Found(os.path.abspath(interpreter), None, PACKAGE.parent, PACKAGE.name)
    if not revision:
        where = f"no revision of {top}" if top else f"{project} is in no git repository"
        raise UserError(
            f"--fwbench-against {against!r} is no interpreter, and {where}: give a revision, or an interpreter's path."
        )
    assert top is not None
    package = os.path.relpath(PACKAGE, top)
    if _git(Path(top), "cat-file", "-e", f"{revision}:{Path(package).as_posix()}/__init__.py") is None:
        raise UserError(
            f"--fwbench-against {against!r}: that revision of {top} has no fwbench where this run's is, in {PACKAGE}: "
            "give a later one, or install the working tree's with `pip install --editable`."
        )
    return Found(None, revision, Path(top), package)


@contextmanager
def sides(against: str, project: Path, pythons: Mapping[str, str]) -> Iterator[tuple[Side, Side]]:
    """Base and head, in a folder that goes when they are done.

    Args:
        against: a git revision of the project, or an interpreter.
        project: a folder of the user's project.
        pythons: interpreter by framework of head, and of base where it is a revision.

    Raises:
        UserError: there is no such revision or interpreter.
    """
    found = find(against, project)
    with _folder(found.root) as folder:
        package, caches = folder / "head" / found.package, folder / "caches-head"
        head = Side("head", _describe(found.root), package, caches, pythons=pythons)
        if found.interpreter:
            yield _base(folder, against, found.interpreter), head
            return
        assert found.revision is not None
        title, checkout = f"{against} ({found.revision[:12]})", folder / "base"
        try:
            if _git(found.root, "worktree", "add", "--detach", "--force", str(checkout), found.revision) is None:
                raise UserError(f"git could not make a worktree of {title} in {folder}: look at its disk's free space.")
            yield Side("base", title, checkout / found.package, folder / "caches-base", pythons=pythons), head
        finally:
            _git(found.root, "worktree", "remove", "--force", str(checkout))


@contextmanager
def itself() -> Iterator[tuple[Side, Side]]:
    """This very fwbench on both sides."""
    with _folder(PACKAGE.parent) as folder:
        title = _describe(PACKAGE.parent)
        head = Side("head", title, folder / "head" / PACKAGE.name, folder / "caches-head")
        yield _base(folder, title, sys.executable), head


@contextmanager
def _folder(root: Path) -> Iterator[Path]:
    """A folder for both sides, with the working tree as head."""
    with tempfile.TemporaryDirectory(prefix="fwbench-duet-") as made:
        folder = Path(made)
        (folder / "head").symlink_to(root, target_is_directory=True)
        yield folder


def _base(folder: Path, title: str, python: str) -> Side:
    """This very fwbench as base, under this interpreter."""
    (folder / "base").symlink_to(PACKAGE.parent, target_is_directory=True)
    return Side("base", title, folder / "base" / PACKAGE.name, folder / "caches-base", python)


def _describe(root: Path) -> str:
    revision = _git(root, "rev-parse", "--short=12", "HEAD")
    changed = "" if not _git(root, "status", "--porcelain") else " with uncommitted changes"
    return f"working tree at {revision}{changed}" if revision else str(root)


def _git(folder: Path, *arguments: str) -> str | None:
    """What git says; None where it fails or is not there."""
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
