"""The journal: every record on disk as soon as it is made, so that a run that is killed halfway loses nothing."""

import contextlib
import io
import itertools
import json
import os
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fwbench.record import dates, files
from fwbench.text import storable

if sys.platform != "win32":
    import fcntl

SCHEMA = 1

# Keys for a round of turns and for a duet's pair, in a line that is no measurement; and, in a duet's header, for the
# revision or environment that it compares with.
ROUND, PAIR, AGAINST = "round", "pair", "against"

# The most bytes that are read of a header, which has some kilobytes: a file that is no journal may have no lines.
_LONGEST = 2**24


class Journal:
    """An append-only file of JSON lines, begun with the first record and fsynced after each.

    The first line is a header (`schema`, `started`, and the caller's fields); each further line is one record. A last
    line that a killed process has left unfinished is no record. If somebody else removes or changes the file meanwhile,
    the next `append` or `close` writes all lines again into a new file.

    Args:
        folder: in which the file lies.
        header: JSON primitives.
        name: of the file, which is continued if it exists; None: a new file, named after the time and the process.

    Attributes:
        path: of the file; None: nothing has been written yet.
        losses: for each time that the file was lost, a sentence on what was done.

    Raises:
        BlockingIOError: in `begin`, another process writes into the file.
        OSError: the file could not be written, or not be written again; see `filename` and `strerror`. The records
            before it are unharmed.
    """

    def __init__(self, folder: Path, header: Mapping[str, Any], name: str | None = None) -> None:
        self._folder = folder
        # A test may change the current directory.
        self._absolute = folder.absolute()
        self._header = header
        self._name = name
        self._file: io.FileIO | None = None
        self._lines: list[bytes] = []  # all that the file holds
        self.path: Path | None = None
        self.losses: list[str] = []

    def begin(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Create the file with these records, all at once; a file that is continued has them already."""
        started = datetime.now(UTC)
        name = self._name or f"{started:%Y%m%dT%H%M%S}-{os.getpid()}.jsonl"
        header = {"schema": SCHEMA, "started": started.isoformat(), **self._header}
        self._open(name, [*map(_line, (header, *records))], bool(self._name))

    def append(self, record: Mapping[str, Any]) -> None:
        """Write one record and return only when it is on disk."""
        if self._file is None:
            self.begin(())
        assert self._file is not None
        self._restore()
        line = _line(record)
        whole = self._file.seek(0, io.SEEK_END)
        try:
            files.put(self._file, line)
            os.fsync(self._file.fileno())
        except OSError as error:
            # Otherwise the next line would be part of this one.
            with contextlib.suppress(OSError):
                self._file.truncate(whole)
            raise OSError(error.errno, error.strerror, str(self.path)) from error
        self._lines.append(line)

    def close(self) -> None:
        """Close the file, if any record opened it."""
        if self._file is not None:
            try:
                self._restore()
            finally:
                self._file.close()
                self._file = None

    def _restore(self) -> None:
        """Write all lines again if the path no longer leads to them."""
        assert self._file is not None
        assert self.path is not None
        lost, file = self.path, self._file
        own = os.fstat(file.fileno())
        with contextlib.suppress(OSError):
            there = os.stat(self._absolute / lost.name)
            if os.path.samestat(there, own) and own.st_size == sum(map(len, self._lines)):
                return
        self._open(lost.name, self._lines)
        file.close()
        self.losses.append(
            f"{lost} was removed or changed by somebody else while the run wrote into it: all of its records were "
            f"written again, into {self.path}"
        )

    def _open(self, name: str, lines: list[bytes], gone_on_with: bool = False) -> None:
        """Open a new file with these lines.

        Args:
            name: of the file; if another file has it, a number is added.
            gone_on_with: whether that other file is opened instead, with its own lines.
        """
        self._absolute.mkdir(parents=True, exist_ok=True)
        # Processes in two containers may have the same number.
        for number in itertools.count(1):
            numbered = Path(name) if number == 1 else Path(f"{Path(name).stem}-{number}{Path(name).suffix}")
            path = self._absolute / numbered
            try:
                files.create(path, b"".join(lines))
            except FileExistsError:
                if not gone_on_with:
                    continue
            break
        # Unbuffered, so that closing the file does not repeat a write that failed.
        file = path.open("rb+", buffering=0)
        try:
            if self._name:
                # A line that looks cut off may be one that another process is writing.
                _lock(file)
            content = file.read()
            file.truncate(whole := content.rfind(b"\n") + 1)
        except OSError:
            file.close()
            raise
        self.path, self._file, self._lines = self._folder / numbered, file, [content[:whole]]


def text(path: Path) -> str:
    """The text of a record's file. A byte that is not UTF-8 becomes half a character, and damages one record alone."""
    return decoded(files.read(path))


def decoded(data: bytes) -> str:
    """Decode the bytes of a record's file as `text` does."""
    return data.decode("utf-8", "surrogateescape")


def lines(text: str) -> tuple[list[str], bool]:
    """The whole lines of a journal, and True if a last line was cut off."""
    *whole, rest = text.split("\n")
    return whole, bool(rest)


def header(path: Path) -> dict[str, Any]:
    """The header of a journal; empty if the file is no journal.

    Raises:
        OSError: it cannot be read.
    """
    with files.opened(path) as file:
        first = file.readline(_LONGEST)
    try:
        first_line = json.loads(decoded(first))
    except (ValueError, RecursionError):
        return {}
    return first_line if isinstance(first_line, dict) and {"schema", "started"} <= first_line.keys() else {}


def oldest_first(folder: Path) -> list[Path]:
    """The journals in a folder in the order in which they were begun; of copies of one, the longest comes last."""
    begun: dict[Path, tuple[datetime, int, str]] = {}
    for path in folder.glob("*.jsonl"):
        with contextlib.suppress(OSError):
            if first := header(path):
                begun[path] = dates.made(first["started"], path)[0], path.stat().st_size, path.name
    return sorted(begun, key=lambda path: begun[path])


def newest(folder: Path, duet: bool = False) -> Path | None:
    """The journal in a folder, of a duet or of another run, that was begun last; None if there is none."""
    return next((path for path in reversed(oldest_first(folder)) if (AGAINST in header(path)) is duet), None)


def _lock(file: io.FileIO) -> None:
    """Keep other processes from continuing a file, if the system can."""
    if sys.platform != "win32":
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BlockingIOError(error.errno, error.strerror, file.name) from None
        except OSError:
            # Not every file system has locks.
            return


def _line(record: Mapping[str, Any]) -> bytes:
    return json.dumps(storable(record), separators=(",", ":")).encode() + b"\n"
