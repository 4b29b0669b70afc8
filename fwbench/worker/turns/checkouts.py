"""Checkouts of the user's repository, which is read and never written to.

To git each checkout is a linked worktree (gitrepository-layout(5), "commondir"), but its `HEAD` and its index lie in a
folder of ours, and the repository does not know it. So refs, settings and objects are the repository's at no cost, and
nothing is to be undone there, whenever this process ends. Objects that git makes on the way, such as those of the
working tree, go into a store of ours.
"""

import functools
import os
import shutil
from contextlib import suppress
from pathlib import Path

from fwbench import git
from fwbench.errors import UserError
from fwbench.text import line

# Stands for a revision: the working tree with what is not committed.
WORKING_TREE = "."

# A split index would be written into the user's repository; a warning of line ends must not end the copy.
_COPYING = ("-c", "core.splitIndex=false", "-c", "core.safecrlf=false")


class Checkouts:
    """Makes checkouts of the user's repository, whose top folder is `top`, in a folder that whoever calls removes.

    Untracked files that the copy of the working tree does not hold are in `left_out`. If git fails, every method raises
    a UserError.
    """

    def __init__(self, top: Path, folder: Path) -> None:
        self.left_out: list[str] = []
        self._top = top
        self._folder = folder
        store = folder / "objects"
        # Paths are names of files here, not patterns.
        self._variables = {"GIT_OBJECT_DIRECTORY": str(store), "GIT_LITERAL_PATHSPECS": "1"}
        (store / "info").mkdir(parents=True)
        # Quoted as in C, as a path may hold a line feed.
        quoted = "".join(f"\\{byte:03o}" for byte in os.fsencode(self._path("--git-path", "objects")))
        (store / "info" / "alternates").write_text(f'"{quoted}"\n', encoding="ascii")

    def tree(self, revision: str) -> str:
        """The revision under a name that git knows; for the working tree, the hash of its copy."""
        return self._copied if revision == WORKING_TREE else revision

    def make(self, revision: str, place: str, title: str) -> None:
        """Check out a revision in this place of the folder, unless that is done."""
        root, own = self._folder / place, self._own(place)
        if root.exists():
            return
        # A copy of the working tree is, as the tree itself, HEAD with changes.
        head = git.commit(self._top, "HEAD") if revision == WORKING_TREE else revision
        try:
            own.mkdir()
            root.mkdir()
            (own / "HEAD").write_text(f"{head or 'ref: refs/heads/unborn'}\n", encoding="ascii")
            (own / "commondir").write_bytes(os.fsencode(self._path("--git-common-dir")))
            (root / ".git").write_bytes(b"gitdir: " + os.fsencode(own))
            self._in(place, *self._sparse(own), "read-tree", "--reset", "-u", self.tree(revision))
            shutil.copy2(own / "ours", own / "index")
            if head and head != revision:
                git.answer(root, "read-tree", "--reset", head)
        except (OSError, UserError) as error:
            for folder in (root, own):
                shutil.rmtree(folder, ignore_errors=True)
            why = error.strerror if isinstance(error, OSError) else error
            raise UserError(f"{title} could not be checked out in {line(str(self._folder))}: {why}") from None

    def restore(self, place: str, revision: str, path: str) -> None:
        """Give a checkout a revision's file, link or submodule; by git, which follows no links out of the checkout."""
        if self._read("ls-tree", self.tree(revision), "--", path):
            self._in(place, "checkout", self.tree(revision), "--", path)
        else:
            self._in(place, "rm", "-r", "--force", "--quiet", "--ignore-unmatch", "--", path)

    def changed(self, base: str, head: str) -> list[str]:
        """The paths of files in which two revisions differ."""
        listed = self._read("diff-tree", "-r", "--no-renames", "--name-only", "-z", self.tree(base), self.tree(head))
        return [os.fsdecode(path) for path in listed.split(b"\0") if path]

    def text(self, revision: str, path: str) -> str | None:
        """A file's text in a revision; None where it has no regular file there."""
        tree = self.tree(revision)
        if not self._read("ls-tree", tree, "--", path).startswith(b"100"):
            return None
        return self._read("cat-file", "blob", f"{tree}:{path}").decode("utf-8", "surrogateescape")

    @functools.cached_property
    def _copied(self) -> str:
        """The tree of what `git commit --all` would commit, and of untracked code, which head may import."""
        index = self._folder / "index"
        # A repository to which nothing was ever added has no index.
        with suppress(FileNotFoundError):
            # Copied with its time, or git would miss a file that was edited in the moment when the index was written.
            shutil.copy2(self._path("--git-path", "index"), index)
        variables = {**self._variables, "GIT_INDEX_FILE": str(index)}
        code, others = git.untracked(self._top)
        self.left_out.extend(map(os.fsdecode, others))
        git.answer(self._top, *_COPYING, "add", "--update", variables=variables)
        adding = (*_COPYING, "update-index", "--add", "-z", "--stdin")
        git.answer(self._top, *adding, variables=variables, given=b"\0".join(code))
        return os.fsdecode(git.answer(self._top, *_COPYING, "write-tree", variables=variables)).strip()

    def _path(self, *named: str) -> Path:
        """The path of something in the repository."""
        return self._top / os.fsdecode(git.answer(self._top, "rev-parse", *named)).removesuffix("\n")

    def _own(self, place: str) -> Path:
        return self._folder / f"git-{place}"

    def _sparse(self, own: Path) -> tuple[str, ...]:
        """Settings by which a checkout leaves out what the user's working tree leaves out."""
        if git.ask(self._top, "config", "--type=bool", "core.sparseCheckout") != "true":
            return ()
        (own / "info").mkdir()
        shutil.copy(self._path("--git-path", "info/sparse-checkout"), own / "info" / "sparse-checkout")
        return ("-c", "core.sparseCheckout=true", "-c", "core.sparseCheckoutCone=false")

    def _read(self, *arguments: str) -> bytes:
        return git.answer(self._top, *arguments, variables=self._variables)

    def _in(self, place: str, *arguments: str) -> None:
        """Change a checkout; the index that code of its own sees stays as it is."""
        variables = {**self._variables, "GIT_INDEX_FILE": str(self._own(place) / "ours")}
        git.answer(self._folder / place, *arguments, variables=variables)
