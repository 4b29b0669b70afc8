"""The journal: every record on disk as soon as it is made, so that a run killed halfway has lost nothing."""

import contextlib
import io
import itertools
import json
import os
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from fwbench.record import files

if sys.platform != "win32":
    import fcntl

SCHEMA = 1

# A header is some kilobytes long; what is no journal need not have lines at all.
_LONGEST = 2**24


class Journal:
    """An append-only file of JSON lines, begun with the first record and fsynced after each.

    The first line is a header (`schema`, `started`, and what the caller gives); each further line is one record. What
    a killed process has left of a last line is no record.

    Args:
        folder: in which the file lies.
        header: JSON primitives.
        name: of a file that is gone on with where it is there; None: a new file, named for the second and the process.
    """

    def __init__(self, folder: Path, header: Mapping[str, Any], name: str | None = None) -> None:
        self._folder = folder
        self._header = header
        self._name = name
        self._file: BinaryIO | None = None
        self.path: Path | None = None

    def begin(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Begin with these records, which are all there as soon as the file is; a file that is gone on with has them.

        Raises:
            BlockingIOError: another process writes into the file.
            OSError: it could not be written.
        """
        self._file = self._open(records)

    def append(self, record: Mapping[str, Any]) -> None:
        """Write one record and return only when it is on disk.

        Raises:
            OSError: it could not be written, as `filename` and `strerror` tell; what was there before still is.
        """
        if self._file is None:
            self._file = self._open()
        whole = self._file.seek(0, io.SEEK_END)
        left = memoryview(_line(record))
        try:
            while left:
                left = left[self._file.write(left) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            # Else the next line would be part of this one.
            with contextlib.suppress(OSError):
                self._file.truncate(whole)
            raise OSError(error.errno, error.strerror, str(self.path)) from error

    def close(self) -> None:
        """Close the file, if any record opened it."""
        if self._file is not None:
            self._file.close()

    def _open(self, records: Iterable[Mapping[str, Any]] = ()) -> BinaryIO:
        self._folder.mkdir(parents=True, exist_ok=True)
        started = datetime.now(UTC)
        header = {"schema": SCHEMA, "started": started.isoformat(), **self._header}
        content = b"".join(map(_line, (header, *records)))
        for path in self._names(started):
            try:
                files.create(path, content)
            except FileExistsError:
                if not self._name:
                    continue
            break
        self.path = path
        # Unbuffered: what could not be written must not be tried again when the file is closed.
        file = path.open("rb+", buffering=0)
        try:
            if self._name:
                # What looks like a line that was cut off may be one that another process is writing.
                _lock(file)
            file.truncate(file.read().rfind(b"\n") + 1)
        except OSError:
            file.close()
            raise
        return file

    def _names(self, started: datetime) -> Iterable[Path]:
        if self._name:
            yield self._folder / self._name
        # Processes in two containers may have the same number.
        for number in itertools.count(1):
            yield self._folder / f"{started:%Y%m%dT%H%M%S}-{os.getpid()}{f'-{number}' if number > 1 else ''}.jsonl"


def lines(text: str) -> tuple[list[str], bool]:
    """A journal's lines that are whole, and whether a last one was cut off."""
    *whole, rest = text.split("\n")
    return whole, bool(rest)


def header(path: Path) -> dict[str, Any]:
    """A journal's first line; empty where it is none.

    Raises:
        OSError: it cannot be read.
    """
    with files.opened(path) as file:
        first = file.readline(_LONGEST)
    try:
        first_line = json.loads(first)
    except (ValueError, RecursionError):
        return {}
    return first_line if isinstance(first_line, dict) and {"schema", "started"} <= first_line.keys() else {}


def newest(folder: Path) -> Path | None:
    """The journal in a folder that was begun last; None where there is none."""
    starts = {}
    for path in folder.glob("*.jsonl"):
        with contextlib.suppress(OSError):
            starts[path] = str(header(path).get("started", ""))
    begun = {path: started for path, started in starts.items() if started}
    return max(begun, key=lambda path: (begun[path], path.name), default=None)


def _lock(file: BinaryIO) -> None:
    """Keep other processes from going on with a file, where the system can.

    Raises:
        BlockingIOError: one of them does.
    """
    if sys.platform != "win32":
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BlockingIOError(error.errno, error.strerror, file.name) from None
        except OSError:
            # Not every file system has locks.
            return


def _line(record: Mapping[str, Any]) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"
