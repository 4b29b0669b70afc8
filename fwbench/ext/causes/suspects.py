"""Lists the differences between two sides, and makes sides between them: head with some of its differences put back.

A part is a difference that a machine can put back: lines of a changed file, other changed files, an environment
variable, an installed distribution, the interpreter. Putting it back never touches the user's repository or
environments: files change in checkouts, and a folder of links, first in the import path, replaces distributions.
"""

import os
import re
import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from fwbench.errors import Absent, UserError
from fwbench.ext.causes.edits import Edits
from fwbench.ext.causes.installed import listed
from fwbench.models.project import Project
from fwbench.worker.turns.checkouts import WORKING_TREE, Checkouts
from fwbench.worker.turns.sides import Named, Side, named, placed

# NAME=VALUE; NAME==VERSION is a release instead.
_VARIABLE = re.compile(r"([A-Za-z_]\w*)=(?!=[\w.!+]+\Z)(.*)", re.DOTALL)


@dataclass(frozen=True)
class Stated:
    """A side as the user states it.

    Attributes:
        text: what the user gave.
        revision: the hash of the commit that holds its files, or WORKING_TREE; None: files are not compared.
        python: its interpreter; None: the one that the framework has here.
        variables: environment variables of its processes, besides those that all processes have.
    """

    text: str
    revision: str | None
    python: str | None
    variables: Mapping[str, str]


@dataclass(frozen=True)
class Suspect:
    """A part in which the sides differ, and what its being put back changes.

    Attributes:
        title: a noun phrase for readers, which fits into "with ... as in base".
        files: paths of files that are base's then.
        change: a file's path, and the number of the change in it that is undone.
        variables: environment variables as base states them; None: base states none.
        distribution: the name of one that is base's.
        python: base's interpreter.
    """

    title: str
    files: Sequence[str] = ()
    change: tuple[str, int] | None = None
    variables: Mapping[str, str | None] = field(default_factory=dict)
    distribution: str | None = None
    python: str | None = None


def resolve(base: str, head: str, top: Path | Absent, here: str) -> tuple[Stated, Stated]:
    """Resolve what the user gave for the two sides.

    Args:
        base, head: each is split into words as a shell does. A word is a revision, `.` for the working tree, an
            interpreter, a release (`NAME==VERSION`) or a variable (`NAME=VALUE`). A side may have one revision, one
            interpreter or release, and any number of variables.
        top: the root of the user's repository.
        here: the interpreter over which a release is installed.

    Raises:
        UserError: a word is none of these, or the sides cannot differ.
    """
    sides = [_stated(text, top, here) for text in (base, head)]
    # A side that names no revision has the working tree's files. If both have them, they are not compared.
    compared = any(side.revision not in (None, WORKING_TREE) for side in sides)
    sides = [replace(side, revision=(side.revision or WORKING_TREE) if compared else None) for side in sides]
    if len({(side.revision, side.python, tuple(sorted(side.variables.items()))) for side in sides}) == 1:
        raise UserError(f"{base!r} and {head!r} are the same: give two that differ in files, interpreter or variables.")
    return sides[0], sides[1]


def _stated(text: str, top: Path | Absent, here: str) -> Stated:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UserError(f"{text!r} cannot be split into words ({error}): close its quotes.") from None
    found: dict[str, str | None] = {}
    variables: dict[str, str] = {}
    for word in words:
        if match := _VARIABLE.fullmatch(word):
            variables[match[1]] = match[2]
            continue
        meant = Named(word) if word == WORKING_TREE else named(word, top, here)
        if isinstance(meant, Absent):
            raise UserError(
                f"{meant}: name a revision, `.` for the working tree, an interpreter's path, a version such as "
                "python3.12, a release such as jax==0.10.0, or NAME=VALUE."
            )
        kind = "revisions" if meant.revision else "interpreters or releases"
        if kind in found:
            raise UserError(f"{text!r} names two {kind}: name one.")
        found[kind] = meant.revision or meant.python
    return Stated(text or "the working tree", found.get("revisions"), found.get("interpreters or releases"), variables)


class Between:
    """Sides from head to base.

    Args:
        stated: base and head.
        top: the root of the user's repository, or of the project.
        python: the interpreter of a side that names none.
        folder: the folder for checkouts and links; the caller removes it.

    Attributes:
        checkouts: checkouts of revisions; None: files are not compared.
        suspects: the parts, in the order in which they are put back; none until `find` has found them.
    """

    def __init__(self, stated: tuple[Stated, Stated], top: Path, project: Project, python: str, folder: Path) -> None:
        self.suspects: list[Suspect] = []
        self._base, self._head = stated
        self.checkouts = Checkouts(top, folder) if self._base.revision else None
        self._top, self._project, self._python, self._folder = top, project, python, folder
        self._edits: dict[str, Edits] = {}

    def title(self, restored: int) -> str:
        """A state's title: head, base, or head with the part that was put back last (earlier parts are not named)."""
        if not 0 < restored < len(self.suspects):
            return "BASE" if restored else "HEAD"
        return f"HEAD with {self.suspects[restored - 1].title} as in BASE"

    def side(self, name: str, restored: int) -> Side:
        """Head with the first `restored` parts put back; with all, or 1 before `find` has found any, base itself."""
        if 0 < restored >= len(self.suspects):
            return self._made(name, "base", self._base, self._base.variables, self._base.python)
        undone = self.suspects[:restored]
        stated: dict[str, str | None] = dict(self._head.variables)
        for suspect in undone:
            stated |= suspect.variables
        variables = {variable: value for variable, value in stated.items() if value is not None}
        python = next((suspect.python for suspect in undone if suspect.python), None)
        distributions = [suspect.distribution for suspect in undone if suspect.distribution]
        if distributions and python is None:
            path = self._linked(restored, distributions)
            given = variables.get("PYTHONPATH", os.environ.get("PYTHONPATH"))
            variables["PYTHONPATH"] = os.pathsep.join(filter(None, (path, given)))
        side = self._made(name, f"{restored:04}", self._head, variables, python or self._head.python)
        changes: dict[str, set[int]] = defaultdict(set)
        for path, number in (suspect.change for suspect in undone if suspect.change):
            changes[path].add(number)
        for path, numbers in changes.items():
            (side.root / path).write_text(
                self._edits[path].undone(numbers), encoding="utf-8", errors="surrogateescape", newline=""
            )
        for path in dict.fromkeys(path for suspect in undone for path in suspect.files):
            assert self.checkouts
            self.checkouts.restore(side.root.name, str(self._base.revision), path)
        return side

    def _made(self, name: str, label: str, stated: Stated, variables: Mapping[str, str], python: str | None) -> Side:
        # All folder names have one length: a path's length moves what lies behind it in memory.
        folder_name = f"state-{label}"
        root = self._folder / folder_name
        tree = None
        if self.checkouts and stated.revision:
            tree = self._top
            self.checkouts.make(stated.revision, folder_name, stated.text)
        elif not root.exists():
            root.symlink_to(self._top, target_is_directory=True)
        fields = {"python": python or self._python, "variables": variables, "tree": tree}
        return placed(self._top, self._folder, self._project, name, folder_name, stated.text, **fields)

    def _linked(self, restored: int, names: Iterable[str]) -> str:
        """A folder of links to base's distributions."""
        folder = self._folder / f"links-{restored:04}"
        _, installed = listed(self._base.python or self._python)
        for name in names if not folder.exists() else ():
            for path in installed[name].paths:
                link = folder / path
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(installed[name].folder / path)
        return str(folder)

    def find(self, sources: Sequence[Mapping[str, str]]) -> list[str]:
        """Find the suspects.

        Args:
            sources: for head and for base, digests by path of the repository's modules that their processes loaded.

        Returns:
            A phrase for each difference that cannot be put back separately.
        """
        loaded = {path for each in sources for path in each}
        distributions, told = self._distributions()
        self.suspects = [*self._files(loaded), *self._variables(), *distributions]
        return told

    def _files(self, loaded: set[str]) -> Iterator[Suspect]:
        base, head = self._base.revision, self._head.revision
        if self.checkouts is None or base is None or head is None or base == head:
            return
        changed = self.checkouts.changed(base, head)
        for path in sorted(loaded.intersection(changed)):
            before, after = (self.checkouts.text(revision, path) for revision in (base, head))
            if before is None or after is None:
                what = "the new file" if before is None else "the file"
                yield Suspect(f"{what} {path}", files=[path])
                continue
            edits = self._edits[path] = Edits(before, after)
            for number, title in enumerate(edits.titles()):
                yield Suspect(f"{path}, {title}", change=(path, number))
        if others := [path for path in changed if path not in loaded]:
            title = others[0] if len(others) == 1 else f"{len(others)} other changed files"
            yield Suspect(title, files=others)

    def _variables(self) -> Iterator[Suspect]:
        for name in sorted({*self._base.variables, *self._head.variables}):
            before = self._base.variables.get(name, os.environ.get(name))
            after = self._head.variables.get(name, os.environ.get(name))
            if before != after:
                title = f"{name} ({_value(before)} in base, {_value(after)} in head)"
                yield Suspect(title, variables={name: self._base.variables.get(name)})

    def _distributions(self) -> tuple[list[Suspect], list[str]]:
        """The suspects among distributions and interpreter, and the differences that cannot be put back separately."""
        if self._base.python == self._head.python:
            return [], []
        before, after = (side.python or self._python for side in (self._base, self._head))
        (old, base), (new, head) = listed(before), listed(after)
        interpreter = Suspect(f"the interpreter {before}", python=before)
        if old[:2] != new[:2]:
            versions = (".".join(map(str, each)) for each in (old, new))
            return [interpreter], ["Python {} in base, {} in head".format(*versions)]
        different = [name for name in sorted(base.keys() & head.keys()) if base[name].version != head[name].version]
        titles = {name: f"{name} ({base[name].version} in base, {head[name].version} in head)" for name in different}
        linkable = [name for name in different if base[name].replaces(head[name])]
        suspects = [Suspect(titles[name], distribution=name) for name in linkable]
        return [*suspects, interpreter], [title for name, title in titles.items() if name not in linkable]


def _value(value: str | None) -> str:
    return "unset" if value is None else repr(value)
