"""The states of a range that `fwbench bisect` searches: commits of git, or releases of a distribution."""

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from packaging.utils import canonicalize_name

from fwbench import git
from fwbench.errors import Absent, UserError
from fwbench.ext.bisect.releases import NAME, Environment, between, environment
from fwbench.ext.causes.steps import Stretch, UnmeasurableError
from fwbench.models.project import Project
from fwbench.text import line
from fwbench.worker.client.scratch import Scratch
from fwbench.worker.turns.checkouts import Checkouts
from fwbench.worker.turns.sides import Side, placed

# Makes the side of a state from its name, `base` or `head`, and the state's number.
Make = Callable[[str, int], Side]

_RELEASE = re.compile(rf"(?P<name>{NAME})==(?P<version>[\w.!+]+)")


class Range(ABC):
    """The states of a range, in their order.

    Attributes:
        noun: `commit` or `release`.
        names: the states' short names.
        titles: the states' titles in the answer.
    """

    noun: str
    names: list[str]
    titles: list[str]

    @abstractmethod
    def sides(self, project: Project, pythons: Mapping[str, str]) -> AbstractContextManager[Make]:
        """A function that makes sides, which end with the context; it raises UnmeasurableError for a state without one.

        Args:
            pythons: interpreters by framework, used if the range itself brings none.
        """

    def about(self, step: Stretch) -> str:
        """Further facts about a step, in sentences that begin with a space; empty if there are none."""
        del step
        return ""


def resolve(base: str, head: str, folder: Path, python: str) -> Range:
    """The states between two ends.

    Args:
        base, head: two commits, or two releases of a distribution, as NAME==VERSION.
        folder: the folder of the user's project.
        python: the interpreter of the workload's framework.

    Raises:
        UserError: the two are not the ends of a range of at least two states.
    """
    first, last = map(_RELEASE.fullmatch, (base, head))
    if first and last and first["name"] == last["name"]:
        return Releases(first["name"], first["version"], last["version"], python)
    return Commits(base, head, folder)


class Commits(Range):
    """The line of first parents between two commits, the oldest first.

    Args:
        base, head: names of commits; both are included.

    Attributes:
        top: the root of the repository.

    Raises:
        UserError: the two are not the ends of a line of at least two commits.
    """

    noun = "commit"

    def __init__(self, base: str, head: str, folder: Path) -> None:
        asked = f"{base}..{head}"
        top = git.top(folder)
        if isinstance(top, Absent):
            raise UserError(f"no commits can be had: {top}; start in a folder of a repository.")
        self.top = top
        first, last = (self._commit(asked, name) for name in (base, head))
        self.revisions: list[str] = []
        self.titles = []
        listing = ("--no-show-signature", "--first-parent", "--reverse", "-z", "--format=%H %P%n%s")
        later = git.answer(folder, "log", *listing, f"{first}..{last}")
        earliest = git.answer(folder, "log", *listing, "--max-count=1", first)
        for entry in filter(None, os.fsdecode(earliest + b"\0" + later).split("\0")):
            hashes, _, subject = entry.partition("\n")
            revision, *parents = hashes.split()
            if self.revisions and self.revisions[-1] not in parents[:1]:
                raise UserError(
                    f"{asked!r}: {base} is not on {head}'s line of first parents: name a commit of that line."
                )
            self.revisions.append(revision)
            self.titles.append(line(f"{revision[:12]} ({subject})"))
        if len(self.revisions) < 2:
            raise UserError(f"{asked!r} holds no second commit: name the older one first, as in main~60..main.")
        self.names = [revision[:12] for revision in self.revisions]

    def _commit(self, asked: str, name: str) -> str:
        found = git.commit(self.top, name)
        if found is None:
            raise UserError(f"{asked!r}: {line(str(self.top))} has no revision {name!r}: name another, or fetch it.")
        return found

    @contextmanager
    def sides(self, project: Project, pythons: Mapping[str, str]) -> Iterator[Make]:
        with Scratch() as made:
            checkouts = Checkouts(self.top, made.path)

            def side(name: str, number: int) -> Side:
                place = self.names[number]
                try:
                    checkouts.make(self.revisions[number], place, place)
                except UserError as error:
                    raise UnmeasurableError(number, str(error)) from None
                return placed(self.top, made.path, project, name, place, place, pythons=pythons, tree=self.top)

            yield side


class Releases(Range):
    """The releases of a distribution, the oldest first, each in an environment of its own.

    Args:
        name: the distribution's name.
        first, last: versions; both are included.
        python: the interpreter below the environments.

    Raises:
        UserError: there are no two releases.
    """

    noun = "release"

    def __init__(self, name: str, first: str, last: str, python: str) -> None:
        self._name, self._python = name, python
        self._versions = between(name, first, last, python)
        if len(self._versions) < 2:
            raise UserError(
                f"uv finds no two releases from {name} {first} to {name} {last} for {python}: name others, the older "
                "one first."
            )
        self.names = self.titles = [f"{name} {version}" for version in self._versions]

    @contextmanager
    def sides(self, project: Project, pythons: Mapping[str, str]) -> Iterator[Make]:
        del pythons
        known = git.top(project.root)
        top = (project.root if isinstance(known, Absent) else known).resolve()
        with Scratch() as made:

            def side(name: str, number: int) -> Side:
                try:
                    python = self._environment(number).python
                except UserError as error:
                    raise UnmeasurableError(number, str(error)) from None
                place = f"release-{number:04}"
                if not (made.path / place).exists():
                    (made.path / place).symlink_to(top, target_is_directory=True)
                return placed(top, made.path, project, name, place, self.titles[number], python=python)

            yield side

    def about(self, step: Stretch) -> str:
        before, after = (self._environment(number) for number in (step.first, step.last))
        others = [
            f"{each} {before.versions.get(each, 'none')} to {after.versions.get(each, 'none')}"
            for each in sorted({*before.versions, *after.versions})
            if before.versions.get(each) != after.versions.get(each) and each != canonicalize_name(self._name)
        ]
        with_it = f" These changed with it: {', '.join(others)}." if others else ""
        address = after.changelog(self._name)
        return with_it + (f" Changelog: {address}" if address else "")

    def _environment(self, number: int) -> Environment:
        return environment(self._name, self._versions[number], self._python)
