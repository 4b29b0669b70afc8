"""Folders for the temporary files of our processes, which whoever comes next removes where their owner was killed."""

import json
import os
import stat
import subprocess
import sys
import tempfile
import weakref
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from fwbench.worker import lifetime

if sys.platform != "win32":
    import fcntl

_PREFIX = "fwbench-"
# In each folder: who made it, for those who look, and what is to be put right besides.
_OWNER = "fwbench-owner.json"


class Scratch:
    """A new folder in the system's one for temporary files, this process's own, which ends with it.

    As long as the process lives it holds a lock on the folder. So a folder of ours without one is a dead process's, and
    making another removes it.

    Args:
        repository: of which the folder holds git worktrees, which must not stay registered.

    Attributes:
        path: of the folder, without symbolic links.
    """

    def __init__(self, repository: Path | None = None) -> None:
        clear()
        self.path, lock = _made()
        owner = {"pid": os.getpid(), "repository": str(repository) if repository else None}
        (self.path / _OWNER).write_text(json.dumps(owner), encoding="utf-8")
        self._close = weakref.finalize(self, _close, self.path, owner, lock)

    def close(self) -> None:
        """Remove the folder; calling it again does nothing."""
        self._close()

    def __enter__(self) -> "Scratch":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def clear() -> None:
    """Remove the folders of this user's processes that are dead."""
    if sys.platform == "win32":
        return
    parent = Path(tempfile.gettempdir()).resolve()
    for path in parent.glob(f"{_PREFIX}*"):
        # It is somebody else's, somebody else is removing it, or it is none of ours.
        with suppress(OSError, ValueError):
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if os.fstat(lock).st_uid == os.getuid():
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    _remove(path, _owner(lock))
            finally:
                os.close(lock)


def _made() -> tuple[Path, int]:
    """A folder, and the descriptor by which it is locked; -1 where there are no such locks."""
    path = Path(tempfile.mkdtemp(prefix=_PREFIX)).resolve()
    if sys.platform == "win32":
        return path, -1
    lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    # Another process may be looking whose it is, and leaves it, as nobody's name is in it yet. On a disk that knows no
    # locks nobody can hold one, and takes the folder for a dead process's.
    with suppress(OSError):
        fcntl.flock(lock, fcntl.LOCK_EX)
    return path, lock


def _owner(folder: int) -> dict[str, Any]:
    """What the owner of a folder has noted.

    Raises:
        OSError, ValueError: it is none of ours.
    """
    file = os.open(_OWNER, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=folder)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise ValueError(_OWNER)
        owner: dict[str, Any] = json.loads(os.read(file, 1 << 16))
    finally:
        os.close(file)
    return owner


def _close(path: Path, owner: dict[str, Any], lock: int) -> None:
    # A forked child that ends owns nothing.
    if os.getpid() == owner["pid"]:
        with suppress(FileNotFoundError):
            _remove(path, owner)
    if lock >= 0:
        os.close(lock)


def _remove(path: Path, owner: dict[str, Any]) -> None:
    for name in os.listdir(path):
        if name != _OWNER:
            lifetime.remove(str(path / name))
    # The note goes last: where something could not be removed, whoever comes next tries again.
    if os.listdir(path) == [_OWNER]:
        lifetime.remove(str(path))
    if not owner["repository"]:
        return
    listed = git(owner["repository"], "worktree", "list", "--porcelain") or ""
    for line in listed.splitlines():
        worktree = Path(line.removeprefix("worktree "))
        if line.startswith("worktree ") and worktree.parent == path:
            # Twice: one that was being made when its owner died is locked.
            git(owner["repository"], "worktree", "remove", "--force", "--force", str(worktree))


def git(folder: str | Path, *arguments: str) -> str | None:
    """What git says; None where it fails or is not there."""
    command = ["git", "-C", str(folder), *arguments]
    try:
        # A session of its own: a second Ctrl-C must not end it halfway.
        done = subprocess.run(command, capture_output=True, text=True, check=True, start_new_session=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
