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


@dataclass(frozen=True)
class Side:
    """What is measured on one side.

    Attributes:
        name: `base` or `head`.
        title: for readers: the revision, or the interpreter.
        root: the folder that code is imported from; both sides' paths have the same length, as a path's length moves
            what lies behind it in memory.
        caches: a folder for compilers' caches.
        python: the interpreter, of all frameworks.
        pythons: interpreter of a framework's workers, where it has one of its own.
    """

    name: str
    title: str
    root: Path
    caches: Path
    python: str = sys.executable
    pythons: Mapping[str, str] = field(default_factory=dict)

    def interpreter(self, framework: str) -> str:
        """The interpreter of a framework's workers."""
        return self.pythons.get(framework, self.python)


@dataclass(frozen=True)
class Found:
    """What to compare with, and the top folder of the project's repository where there is one."""

    interpreter: str | None
    revision: str | None
    top: Path | None


def find(against: str, project: Path) -> Found:
    """Tell what a name means: where it could be both, an interpreter and no revision.

    Raises:
        UserError: it is neither.
    """
    top = _git(project, "rev-parse", "--show-toplevel")
    interpreter = shutil.which(against)
    if interpreter:
        return Found(os.path.abspath(interpreter), None, Path(top) if top else None)
    revision = top and _git(project, "rev-parse", "--verify", f"{against}^{{commit}}")
    if not revision:
        where = f"no revision of {top}" if top else f"{project} is in no git repository"
        raise UserError(
            f"--fwbench-against {against!r} is no interpreter, and {where}: give a revision, or an interpreter's path."
        )
    return Found(None, revision, Path(top) if top else None)


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
    here = found.top or project
    with _folder(here) as folder:
        head = Side("head", _describe(here), folder / "head", folder / "caches-head", pythons=pythons)
        if found.interpreter:
            yield _base(folder, here, against, found.interpreter), head
            return
        assert found.revision is not None
        title = f"{against} ({found.revision[:12]})"
        try:
            if _git(here, "worktree", "add", "--detach", "--force", str(folder / "base"), found.revision) is None:
                raise UserError(f"git could not make a worktree of {title} in {folder}: look at its disk's free space.")
            yield Side("base", title, folder / "base", folder / "caches-base", pythons=pythons), head
        finally:
            _git(here, "worktree", "remove", "--force", str(folder / "base"))


@contextmanager
def itself(project: Path) -> Iterator[tuple[Side, Side]]:
    """The working tree on both sides."""
    with _folder(project) as folder:
        title = _describe(project)
        yield (
            _base(folder, project, title, sys.executable),
            Side("head", title, folder / "head", folder / "caches-head"),
        )


@contextmanager
def _folder(project: Path) -> Iterator[Path]:
    """A folder for both sides, with the working tree as head."""
    with tempfile.TemporaryDirectory(prefix="fwbench-duet-") as made:
        folder = Path(made)
        (folder / "head").symlink_to(project, target_is_directory=True)
        yield folder


def _base(folder: Path, project: Path, title: str, python: str) -> Side:
    """The working tree as base, under this interpreter."""
    (folder / "base").symlink_to(project, target_is_directory=True)
    return Side("base", title, folder / "base", folder / "caches-base", python)


def _describe(project: Path) -> str:
    revision = _git(project, "rev-parse", "--short=12", "HEAD")
    changed = "" if not _git(project, "status", "--porcelain") else " with uncommitted changes"
    return f"working tree at {revision}{changed}" if revision else "working tree"


def _git(folder: Path, *arguments: str) -> str | None:
    """What git says; None where it fails or is not there."""
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
