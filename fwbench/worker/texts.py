"""A check that all processes of a run have read the same text of each of the user's files."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from fwbench import git
from fwbench.record.measurement import Failure
from fwbench.text import shortened
from fwbench.worker.process.witness import CODE, present

_AGAIN = "so the numbers are of no text that the record could name: measure again, and leave the project's files alone"
_NAMED = 3  # files in a sentence


def edited(names: Sequence[str]) -> Failure:
    """The failure of a process whose files changed while it measured."""
    return Failure("error", f"{shortened(names, _NAMED)} changed while this was measured, {_AGAIN}")


def unlike(names: Sequence[str]) -> Failure:
    """The failure of a process that read other texts than the run began with."""
    return Failure("error", f"{shortened(names, _NAMED)} changed after the run had begun, {_AGAIN}")


class Texts:
    """The text of each file, by digest and its name in the folder `root`, as it was when the run began.

    In a git repository the text of every file is known: files that differ from the commit are digested now, and git
    finds later changes of all others. Elsewhere the text of a module that the first process has read stands for it.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._commit = git.commit(root, "HEAD") if isinstance(git.top(root), Path) else None
        self._known = {name: found for name in self._differing() if (found := present(str(root / name)))}

    def unlike(self, sources: Mapping[str, str]) -> list[str]:
        """The names of the files of which a process has read another text, by the digests of what it has read."""
        known = {name: read for name, read in sources.items() if name in self._known}
        new = {name: read for name, read in sources.items() if name not in known}
        differing = {name for name, read in known.items() if self._known[name] != read}
        within = [name for name in new if not os.path.isabs(name)]
        differing |= set(self._differing(*within)) if within else set()
        # Only code, as a test may write other files anew for each benchmark.
        self._known |= {name: read for name, read in new.items() if name not in differing and name.endswith(CODE)}
        return sorted(differing)

    def _differing(self, *names: str) -> list[str]:
        """The named files that differ from the commit; without names, all that differ, and untracked modules."""
        if not self._commit:
            return []
        where = [f":(literal){name}" for name in names] or ["."]
        compared = ("diff", "--name-only", "-z", "--relative", "--no-renames", self._commit, "--", *where)
        found = git.answer(self._root, *compared).split(b"\0")
        code = [] if names else [name for name in git.untracked(self._root)[0] if os.fsdecode(name).endswith(CODE)]
        return [os.fsdecode(name) for name in (*found, *code) if name]
