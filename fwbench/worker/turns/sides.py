"""The two sides of a duet: a revision or an environment as base, and the working tree or another revision as head."""

import functools
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fwbench import git
from fwbench.errors import Absent, UserError
from fwbench.extensions import addition, resolve
from fwbench.models.project import Project
from fwbench.text import line
from fwbench.worker.client.scratch import Scratch
from fwbench.worker.client.starting import PACKAGE
from fwbench.worker.turns.checkouts import Checkouts

# An interpreter that is named by its version is looked up on the PATH.
_VERSION = re.compile(r"python\d+\.\d+t?")


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
        """True if this side's repository has a module of this dotted name, in any folder."""
        path = module.replace(".", "/")
        files = (f":(glob)**/{path}.py", f":(glob)**/{path}/__init__.py")
        listed = git.answer(self.root, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *files)
        # Git lists deleted files until the deletion is staged.
        return any((self.root / os.fsdecode(file)).is_file() for file in listed.split(b"\0") if file)

    def unseen(self, module: str, file: str) -> UserError:
        """The error for a module that this side has, but that its process imported from another file."""
        return UserError(
            f"{self.title} has a module {module!r}, but it was imported from {file}, so no change in it could be seen: "
            "add the folder that holds it in the repository to pytest's configuration, as in `pythonpath = src`."
        )


@dataclass(frozen=True)
class Named:
    """The meaning of a word: a revision's hash, or an interpreter's path; the other is None."""

    revision: str | None = None
    python: str | None = None


def named(word: str, top: Path | Absent, here: str) -> Named | Absent:
    """Resolve a word by its form: a release, a path of an interpreter, an interpreter's version, or else a revision.

    A word of another form is never looked up as a program, which would be run where the user meant a revision. A
    release is put over the packages of the interpreter `here`.

    Raises:
        UserError: the release cannot be had, or git fails.
    """
    if (stated := addition("release")) and (release := resolve(stated)(word, here)):
        return Named(python=release.python)
    if (os.path.dirname(word) or _VERSION.fullmatch(word)) and (path := shutil.which(word)):
        return Named(python=os.path.abspath(path))
    if isinstance(top, Absent):
        return Absent(f"{word!r} is no interpreter, and {top}")
    if revision := git.commit(top, word):
        return Named(revision=revision)
    apart = " yet, as git keeps a push apart until pre-receive has ended" if "GIT_QUARANTINE_PATH" in os.environ else ""
    return Absent(f"{word!r} is no interpreter, and no revision of {line(str(top))}{apart}")


def find(against: str, folder: Path) -> tuple[Named, Path]:
    """Resolve a revision, an interpreter or a release for the project in this folder.

    Returns:
        Its meaning, and the top folder of the user's repository, or the project's root folder if there is none.

    Raises:
        UserError: it is none of them, or a revision that lacks the `fwbench` that is part of this repository.
    """
    known = git.top(folder)
    top = known if isinstance(known, Path) else folder.resolve()
    meant = named(against, known, sys.executable)
    if isinstance(meant, Absent):
        raise UserError(
            f"--fwbench-against {meant}: give a revision, an interpreter's path, a version such as python3.12, or a "
            "release such as jax==0.10.0."
        )
    package = own(top)
    if meant.revision and package:
        file = f"{package.as_posix()}/__init__.py"
        if not git.answer(top, "--literal-pathspecs", "ls-tree", meant.revision, "--", file):
            raise UserError(
                f"--fwbench-against {against!r}: fwbench is part of this repository, so each side is measured with its "
                f"own, and that revision of {line(str(top))} has none in {package}: give a later one."
            )
    return meant, top


def own(top: Path) -> Path | None:
    """The folder of this fwbench in the repository that contains it; None if it is installed."""
    if not PACKAGE.is_relative_to(top) or isinstance(git.top(top), Absent):
        return None
    package = PACKAGE.relative_to(top)
    # A virtual environment may lie in the repository, but does not belong to it.
    tracked = git.answer(top, "--literal-pathspecs", "ls-files", "--", f"{package.as_posix()}/__init__.py")
    return package if tracked else None


@contextmanager
def sides(against: str, project: Project, pythons: Mapping[str, str]) -> Iterator[tuple[Side, Side]]:
    """Base (a git revision of the project, or an interpreter) and head, in a folder that is removed at the end.

    Frameworks have the interpreters `pythons` in head, and in base where it is a revision. If there is no such revision
    or interpreter, a UserError says so.
    """
    base, top = find(against, project.root)
    with Scratch() as made:
        side = functools.partial(placed, top, made.path, project)
        (made.path / "head").symlink_to(top, target_is_directory=True)
        tree = top if base.revision else None
        head = side("head", "head", _describe(top), pythons=pythons, tree=tree)
        if base.python:
            (made.path / "base").symlink_to(top, target_is_directory=True)
            yield side("base", "base", against, python=base.python), head
            return
        assert base.revision is not None
        title = f"{against} ({base.revision[:12]})"
        Checkouts(top, made.path).make(base.revision, "base", title)
        yield side("base", "base", title, pythons=pythons, tree=tree), head


def placed(top: Path, folder: Path, project: Project, name: str, place: str, title: str, **fields: Any) -> Side:
    """The side whose repository lies at this place in the folder; `fields` are further fields of the side."""
    root, package = folder / place, own(top)
    return Side(
        name,
        title,
        package=root / package if package else PACKAGE,
        caches=folder / f"caches-{place}",
        root=root,
        path=[within(root, top, entry) for entry in project.path],
        **fields,
    )


def within(root: Path, top: Path, folder: Path) -> Path:
    """The place of a folder on the side with its repository in `root`; a folder outside of the repository is shared."""
    folder = folder.resolve()
    return root / folder.relative_to(top) if folder.is_relative_to(top) else folder


def _describe(root: Path) -> str:
    try:
        revision = git.ask(root, "rev-parse", "--verify", "--quiet", "--short=12", "HEAD")
        changed = " with uncommitted changes" if git.answer(root, "status", "--porcelain") else ""
    except UserError:
        return str(root)
    return f"working tree at {revision}{changed}" if revision else str(root)
