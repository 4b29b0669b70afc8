"""Files that are written whole or not at all, and read without waiting for what is no file."""

import contextlib
import errno
import io
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

from fwbench.errors import UserError, exhausted

if sys.platform != "win32":
    import fcntl

# Opening a pipe waits for its other end, unless this is asked for; Windows has no such pipes.
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)
# By the type in a file's mode.
_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFDIR: "a folder",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}
# Of a file that is being written, and of what a killed process has left of one.
_NEW = ".fwbench-{}.new"


def opened(path: Path) -> io.BufferedReader:
    """Open a file to read it, and nothing else: a pipe may have no writer, and a device no end.

    Raises:
        OSError: it cannot be read, or is no file, as its `filename` and `strerror` tell.
    """
    with _named(path):
        descriptor = os.open(path, os.O_RDONLY | _NO_WAIT | getattr(os, "O_BINARY", 0))
        kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
        if kind != stat.S_IFREG:
            os.close(descriptor)
            raise OSError(errno.EINVAL, f"it is {_KINDS.get(kind, 'something else')}, not a file")
        return os.fdopen(descriptor, "rb")


def read(path: Path, most: int | None = None) -> bytes:
    """The contents of a file.

    Args:
        most: bytes that it may have; None: any number.

    Raises:
        OSError: it cannot be read, is no file, or is too large, as its `filename` and `strerror` tell.
    """
    with opened(path) as file, _named(path):
        if most is not None and os.fstat(file.fileno()).st_size > most:
            raise OSError(errno.EFBIG, f"it has more than {most >> 20} MiB")
        return file.read()


def write(path: Path, content: str | bytes) -> None:
    """Write a file, in the place of an older one in one go: readers find the old one or the new one, never a part.

    What is no file (a pipe that somebody reads, `/dev/stdout`) is written to as it is; of a link, what it leads to is
    replaced. So is a file in a folder that takes no other one.

    Raises:
        OSError: it could not be written, as its `filename` and `strerror` tell; an older one is as it was.
    """
    data = _bytes(content)
    # What is no file may have no path: `/dev/stdout` leads to it.
    target = path if path.exists() and not path.is_file() else path.resolve()
    with _named(path):
        if target.exists() and not target.is_file():
            _fill(target, data, os.O_WRONLY)
            return
        try:
            with _beside(target, data) as made:
                if target.exists():
                    made.chmod(target.stat().st_mode)
                made.replace(target)
        except PermissionError:
            if not target.exists():
                raise
            _fill(target, data, os.O_WRONLY | os.O_TRUNC)
            return
        _sync(target.parent)


def create(path: Path, content: str | bytes) -> None:
    """Write a file that must not be there yet: of two processes that ask for the same name one gets it.

    Raises:
        FileExistsError: it is there.
        OSError: it could not be written.
    """
    data = _bytes(content)
    with _named(path):
        with _beside(path, data) as made:
            try:
                # Unlike a rename a link replaces nothing.
                os.link(made, path)
            except FileExistsError:
                raise
            except OSError:
                # Not every file system has links.
                _fill(path, data, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        _sync(path.parent)


def append(path: Path, content: str | bytes) -> None:
    """Write at the end of a file, which is made where there is none.

    Raises:
        OSError: it could not be written, as its `filename` and `strerror` tell.
    """
    with _named(path):
        _fill(path, _bytes(content), os.O_WRONLY | os.O_APPEND | os.O_CREAT)


@contextlib.contextmanager
def writing(advice: str) -> Iterator[None]:
    """What cannot be written meanwhile is for the user to correct; the advice says how.

    Raises:
        UserError: a file cannot be written.
        BlockingIOError: another process writes into it.
    """
    try:
        yield
    except BlockingIOError:
        raise
    except OSError as error:
        raise UserError(f"{error.filename or 'a file'} cannot be written ({error.strerror}): {advice}") from None


@contextlib.contextmanager
def temporary() -> Iterator[None]:
    """What cannot be written meanwhile are temporary files, for which the user must make room.

    Raises:
        UserError: one of them cannot be written.
    """
    try:
        yield
    except OSError as error:
        where = error.filename or os.environ.get("TMPDIR") or "the system's folder for them"
        advice = exhausted(error) or "free space there, or name another folder by TMPDIR"
        raise UserError(f"temporary files cannot be written to {where} ({error.strerror}): {advice}") from None


def content(path: Path) -> str:
    """What a small text file holds, without the space around it; empty where it cannot be read."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def unwritable(folder: Path) -> str:
    """Why nothing can be put into a folder, which need not be there yet; empty where something can."""
    there = folder
    while not os.path.lexists(there) and there != there.parent:
        there = there.parent
    if not there.is_dir():
        return f"{there} is no folder"
    if os.access(there, os.W_OK | os.X_OK):
        return ""
    is_read_only = hasattr(os, "statvfs") and os.statvfs(there).f_flag & os.ST_RDONLY
    return os.strerror(errno.EROFS if is_read_only else errno.EACCES)


def sweep(folder: Path, *, below: bool = False) -> None:
    """Remove what killed processes have left of files that they were writing.

    Args:
        below: whether the folders in it are swept, too.
    """
    if sys.platform == "win32":
        return
    for path in (folder.rglob if below else folder.glob)(_NEW.format("*")):
        # One that is being written is locked, and not every file system has locks.
        with contextlib.suppress(OSError):
            left = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                fcntl.flock(left, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
            finally:
                os.close(left)


@contextlib.contextmanager
def _beside(path: Path, data: bytes) -> Iterator[Path]:
    """A new file in the same folder, hidden from whoever looks for records, with its contents on disk.

    It is locked meanwhile, so that a sweep leaves it alone, and removed if it still bears its name in the end.
    """
    sweep(path.parent)
    made, lock = _locked(path.parent)
    try:
        _fill(made, data, os.O_WRONLY)
        yield made
    finally:
        with contextlib.suppress(OSError):
            made.unlink(missing_ok=True)
        if lock >= 0:
            os.close(lock)


def _locked(folder: Path) -> tuple[Path, int]:
    """An empty file, and the descriptor that locks it; -1 where the system has no such locks."""
    while True:
        # Not by the process's number, which a process in another container may have too.
        made = folder / _NEW.format(os.urandom(8).hex())
        lock = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        if sys.platform == "win32":
            os.close(lock)
            return made, -1
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
        # Another process may have swept it before it was locked.
        if os.fstat(lock).st_nlink:
            return made, lock
        os.close(lock)


def _fill(path: Path, data: bytes, flags: int) -> None:
    with open(path, "wb", buffering=0, opener=lambda name, _: os.open(name, flags | _NO_WAIT, 0o666)) as file:
        if _NO_WAIT:
            # A reader may be slower than we write.
            os.set_blocking(file.fileno(), True)
        left = memoryview(data)
        while left:
            left = left[file.write(left) :]
        # Pipes have nothing to be synced.
        if path.is_file():
            os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    """Have a folder's entries on disk too, where the system can."""
    with contextlib.suppress(OSError):
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def _bytes(content: str | bytes) -> bytes:
    return content.encode() if isinstance(content, str) else content


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """Errors name the file that was asked for: those of writing name none, and others the one beside it."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
