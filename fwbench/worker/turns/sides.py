"""The two sides of a duet: a revision or an environment as base, and the working tree or another revision as head."""

import functools
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fwbench.errors import UserError
from fwbench.git import text as git
from fwbench.models.project import Project
from fwbench.worker.client.scratch import Scratch
from fwbench.worker.client.starting import PACKAGE
from fwbench.worker.turns import releases


@dataclass(frozen=True)
class Side:
    """One side of a duet.

    A file that both sides have has a path of the same length on both, as a path's length moves what lies behind it in
    memory.

    Attributes:
        name: `base` or `head`.
        title: for readers: the revision, or the interpreter.
        package: the folder of its `fwbench`.
        caches: a folder for compilers' caches.
        root: the user's repository as this side has it.
        path: the folders in which this side looks for the user's modules first.
        python: the interpreter, of all frameworks.
        pythons: interpreter of a framework's workers, where it has one of its own.
        variables: of its processes' environment, besides those of this process.
        tree: the user's working tree, if its modules are compared with those of a revision.
    """

    name: str
    title: str
    package: Path
    caches: Path
    root: Path
    path: Sequence[Path] = ()
    python: str = sys.executable
    pythons: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    tree: Path | None = None

    def interpreter(self, framework: str) -> str:
        """The interpreter of a framework's workers."""
        return self.pythons.get(framework, self.python)

    def has(self, module: str) -> bool:
        """Whether this side's repository has a module of this dotted name, in any folder."""
        path = module.replace(".", "/")
        files = (f":(glob)**/{path}.py", f":(glob)**/{path}/__init__.py")
        listed = git(self.root, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *files) or ""
        # Git lists deleted files until the deletion is staged.
        return any((self.root / file).is_file() for file in listed.split("\0") if file)


@dataclass(frozen=True)
class Against:
    """The base of a duet.

    Attributes:
        interpreter, revision: one of the two; the other is None.
        top: of the user's repository, or the project's root folder if there is none.
        package: the folder of `fwbench`, from there, where it is part of the repository; None: both sides have the
            installed one.
    """

    interpreter: str | None
    revision: str | None
    top: Path
    package: Path | None


def find(against: str, folder: Path) -> Against:
    """Resolve a revision, an interpreter or a release. If it could be both of the first, only a path is an interpreter.

    Args:
        folder: of the user's project.

    Raises:
        UserError: it is none of them, or a revision that lacks the `fwbench` that is part of this repository.
    """
    told = git(folder, "rev-parse", "--show-toplevel")
    top = Path(told) if told else folder.resolve()
    if release := releases.stated(against, sys.executable):
        return Against(release.python, None, top, own(top))
    revision = told and git(folder, "rev-parse", "--verify", f"{against}^{{commit}}")
    interpreter = shutil.which(against)
    if interpreter and (not revision or os.path.dirname(against)):
        return Against(os.path.abspath(interpreter), None, top, own(top))
    if not revision:
        where = f"no revision of {top}" if told else f"{folder} is in no git repository"
        raise UserError(
            f"--fwbench-against {against!r} is no interpreter, and {where}: give a revision, an interpreter's path, or "
            "a release such as jax==0.10.0."
        )
    package = own(top)
    if package and git(top, "cat-file", "-e", f"{revision}:{package.as_posix()}/__init__.py") is None:
        raise UserError(
            f"--fwbench-against {against!r}: fwbench is part of this repository, so each side is measured with its "
            f"own, and that revision of {top} has none in {package}: give a later one."
        )
    return Against(None, revision, top, package)


def own(top: Path) -> Path | None:
    """The folder of this fwbench in the repository that contains it; None if it is installed."""
    if not PACKAGE.is_relative_to(top):
        return None
    package = PACKAGE.relative_to(top)
    # A virtual environment may lie in the repository, but does not belong to it.
    tracked = git(top, "ls-files", "--error-unmatch", f"{package.as_posix()}/__init__.py")
    return None if tracked is None else package


@contextmanager
def sides(against: str, project: Project, pythons: Mapping[str, str]) -> Iterator[tuple[Side, Side]]:
    """Base and head, in a folder that is removed at the end.

    Args:
        against: a git revision of the project, or an interpreter.
        pythons: interpreter by framework of head, and of base where it is a revision.

    Raises:
        UserError: there is no such revision or interpreter.
    """
    base = find(against, project.root)
    with Scratch(base.top if base.revision else None) as made:
        side = functools.partial(placed, base.top, base.package, made.path, project)
        (made.path / "head").symlink_to(base.top, target_is_directory=True)
        tree = base.top if base.revision else None
        head = side("head", "head", _describe(base.top), pythons=pythons, tree=tree)
        if base.interpreter:
            (made.path / "base").symlink_to(base.top, target_is_directory=True)
            yield side("base", "base", against, python=base.interpreter), head
            return
        assert base.revision is not None
        title = f"{against} ({base.revision[:12]})"
        check_out(base.top, base.revision, made.path / "base", title)
        yield side("base", "base", title, pythons=pythons, tree=tree), head


def placed(
    top: Path, package: Path | None, folder: Path, project: Project, name: str, place: str, title: str, **fields: Any
) -> Side:
    """The side whose repository lies in this place of the folder; `fields` are the side's further ones."""
    root = folder / place
    return Side(
        name,
        title,
        package=root / package if package else PACKAGE,
        caches=folder / f"caches-{place}",
        root=root,
        path=[_within(root, top, entry) for entry in project.path],
        **fields,
    )


def check_out(top: Path, revision: str, folder: Path, title: str) -> None:
    """Make a worktree of the repository in a folder.

    Raises:
        UserError: git cannot.
    """
    if git(top, "worktree", "add", "--detach", "--force", str(folder), revision) is None:
        raise UserError(f"git could not make a worktree of {title} in {folder}: look at its disk's free space.")


def _within(root: Path, top: Path, folder: Path) -> Path:
    """The place of a folder on the side with its repository in `root`; a folder outside of the repository is shared."""
    folder = folder.resolve()
    return root / folder.relative_to(top) if folder.is_relative_to(top) else folder


def _describe(root: Path) -> str:
    revision = git(root, "rev-parse", "--short=12", "HEAD")
    changed = "" if not git(root, "status", "--porcelain") else " with uncommitted changes"
    return f"working tree at {revision}{changed}" if revision else str(root)
