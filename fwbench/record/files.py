"""Writes files whole or not at all, and reads them without waiting for a pipe or a device.

An OSError of a file that cannot be read or written has `filename` and `strerror`.
"""

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

# Without this flag, opening a pipe waits for its other end; Windows has no such pipes.
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)
# Names of the file types in a file's mode.
_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFDIR: "a folder",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}
# Name of a file that is being written. A killed process leaves it behind.
_NEW = ".fwbench-{}.new"


def opened(path: Path) -> io.BufferedReader:
    """Open a regular file to read it, and nothing else: a pipe may have no writer, and a device no end."""
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
        most: the most bytes that it may have; None: any number.
    """
    with opened(path) as file, _named(path):
        if most is not None and os.fstat(file.fileno()).st_size > most:
            raise OSError(errno.EFBIG, f"it has more than {most >> 20} MiB")
        return file.read()


def write(path: Path, content: str | bytes) -> None:
    """Write a file, replacing an older one at once: readers find the old file or the new one, never a part.

    A path that is no regular file (a pipe that somebody reads, `/dev/stdout`) is written to directly, and so is a file
    in a folder that takes no new file. If the path is a link, its target is replaced.

    Raises:
        OSError: it could not be written. An older file that was to be replaced is as it was.
    """
    data = _bytes(content)
    # The target of `/dev/stdout` may be no file and have no path.
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
            _overwrite(target, data)
            return
        _sync(target.parent)


def create(path: Path, content: str | bytes) -> None:
    """Write a file that must not exist yet: of two processes that ask for the same name, only one gets it.

    Raises:
        FileExistsError: it exists.
        OSError: it could not be written.
    """
    data = _bytes(content)
    with _named(path):
        with _beside(path, data) as made:
            try:
                # Unlike a rename, a link replaces no file.
                os.link(made, path)
            except FileExistsError:
                raise
            except OSError:
                # Not every file system has links.
                _fill(path, data, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        _sync(path.parent)


def append(path: Path, content: str | bytes) -> None:
    """Write at the end of a file, which is created if it does not exist."""
    with _named(path):
        _fill(path, _bytes(content), os.O_WRONLY | os.O_APPEND | os.O_CREAT)


@contextlib.contextmanager
def writing(advice: str) -> Iterator[None]:
    """Turn errors of writing in this context into a `UserError`; the advice says how to correct them.

    Raises:
        UserError: a file cannot be written.
        BlockingIOError: another process writes into the file.
    """
    try:
        yield
    except BlockingIOError:
        raise
    except OSError as error:
        raise UserError(f"{error.filename or 'a file'} cannot be written ({error.strerror}): {advice}") from None


@contextlib.contextmanager
def temporary() -> Iterator[None]:
    """Turn errors of writing temporary files in this context into a `UserError`: the user must make room.

    Raises:
        UserError: a temporary file cannot be written.
    """
    try:
        yield
    except OSError as error:
        where = error.filename or os.environ.get("TMPDIR") or "the system's folder for them"
        advice = exhausted(error) or "free space there, or name another folder by TMPDIR"
        raise UserError(f"temporary files cannot be written to {where} ({error.strerror}): {advice}") from None


def content(path: Path) -> str:
    """The text of a small file, without the space around it; empty if it cannot be read."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def unwritable(folder: Path) -> str:
    """The reason why no file can be put into a folder, which need not exist yet; empty if one can."""
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
    """Remove unfinished files that killed processes have left behind.

    Args:
        below: whether its subfolders are swept, too.
    """
    if sys.platform == "win32":
        return
    for path in (folder.rglob if below else folder.glob)(_NEW.format("*")):
        # A file that is still being written is locked. Not every file system has locks.
        with contextlib.suppress(OSError):
            left = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                fcntl.flock(left, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
            finally:
                os.close(left)


@contextlib.contextmanager
def _beside(path: Path, data: bytes) -> Iterator[Path]:
    """A new file in the same folder, with its contents on disk, under a name that no search for records finds.

    It is locked in this context, so that a sweep leaves it alone, and removed in the end if it still has its name.
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
    """A new empty file, and the descriptor that locks it; -1 if the system has no such locks."""
    while True:
        # Random, as a process in another container may have this one's number.
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
        put(file, data)
        # Pipes have nothing to be synced.
        if path.is_file():
            os.fsync(file.fileno())


def _overwrite(path: Path, data: bytes) -> None:
    """Write over a regular file in its place.

    The part beyond its old size comes first, as only that part can find the disk full.
    """
    with open(path, "wb", buffering=0, opener=lambda name, _: os.open(name, os.O_WRONLY)) as file:
        size = file.seek(0, os.SEEK_END)
        try:
            put(file, data[size:])
            os.fsync(file.fileno())
        except OSError:
            file.truncate(size)
            raise
        file.seek(0)
        put(file, data[:size])
        file.truncate(len(data))
        os.fsync(file.fileno())


def put(file: io.FileIO, data: bytes) -> None:
    """Write all bytes into an unbuffered file, which may take fewer at once."""
    left = memoryview(data)
    while left:
        left = left[file.write(left) :]


def _sync(folder: Path) -> None:
    """Flush a folder's entries to disk, if the system can."""
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
    """Make errors name this path: an error of writing names no file, and others name the new file beside it."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
