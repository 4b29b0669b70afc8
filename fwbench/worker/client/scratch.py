"""Folders for temporary files. If their owner was killed, the next process that makes one removes them."""

import json
import os
import sys
import tempfile
import weakref
from contextlib import suppress
from pathlib import Path

from fwbench.record import files
from fwbench.worker.process import lifetime

if sys.platform != "win32":
    import fcntl

_PREFIX = "fwbench-"
# A note in each folder: the process that made it.
_OWNER = "fwbench-owner.json"


class Scratch:
    """A new folder in the system's folder for temporary files; it belongs to this process and ends with it.

    While the process lives it holds a lock on the folder. So a folder of fwbench's without a lock belonged to a dead
    process, and whoever makes another folder removes it. The folder's `path` is without symbolic links; if it cannot be
    made, a UserError says why.
    """

    def __init__(self) -> None:
        with files.temporary():
            clear()
            self.path, lock = _made(json.dumps({"pid": os.getpid()}))
        self._close = weakref.finalize(self, _close, self.path, os.getpid(), lock)

    def close(self) -> None:
        """Remove the folder; a second call does nothing."""
        self._close()

    def __enter__(self) -> "Scratch":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def clear() -> None:
    """Remove the folders that dead processes of this user have left."""
    if sys.platform == "win32":
        return
    parent = Path(tempfile.gettempdir()).resolve()
    for path in parent.glob(f"{_PREFIX}*"):
        # Another user's folder, one that another process is removing, or one that is not fwbench's.
        with suppress(OSError, ValueError):
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if os.fstat(lock).st_uid == os.getuid():
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    # Without its owner's note the folder is not fwbench's.
                    if not (path / _OWNER).is_symlink():
                        json.loads(files.read(path / _OWNER, 1 << 16))
                        _remove(path)
            finally:
                os.close(lock)


def _made(owner: str) -> tuple[Path, int]:
    """Make a folder with this note, or nothing; return it with the descriptor that locks it.

    On a system without such locks the descriptor is -1.
    """
    path = Path(tempfile.mkdtemp(prefix=_PREFIX)).resolve()
    lock = -1
    try:
        if sys.platform != "win32":
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            # Another process may examine the folder before it is locked, and leaves it alone, as it holds no note yet.
            # On a disk without locks no process takes the folder for a dead process's.
            with suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_EX)
        (path / _OWNER).write_text(owner, encoding="utf-8")
    except OSError:
        # The folder goes without being listed: there may be no descriptor left.
        for remove in ((path / _OWNER).unlink, path.rmdir):
            with suppress(OSError):
                remove()
        if lock >= 0:
            os.close(lock)
        raise
    return path, lock


def _close(path: Path, owner: int, lock: int) -> None:
    # A forked child does not own the folder, so its end removes nothing.
    if os.getpid() == owner:
        # It may be gone; whatever is left of it is for the next process.
        with suppress(OSError):
            _remove(path)
    if lock >= 0:
        os.close(lock)


def _remove(path: Path) -> None:
    for name in os.listdir(path):
        if name != _OWNER:
            lifetime.remove(str(path / name))
    # The note goes last: if something could not be removed, the next process tries again.
    if os.listdir(path) == [_OWNER]:
        lifetime.remove(str(path))
