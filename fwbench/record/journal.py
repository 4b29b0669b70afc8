"""The journal: every measurement on disk as soon as it is made, so that a run killed halfway has lost nothing."""

import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

SCHEMA = 1


class Journal:
    """An append-only file of JSON lines, opened with the first record and fsynced after each.

    The first line is a header (`schema`, `started`, and what the caller gives); each further line is one measurement.
    """

    def __init__(self, folder: Path, header: Mapping[str, Any]) -> None:
        self._folder = folder
        self._header = header
        self._file: TextIO | None = None
        self.path: Path | None = None

    def append(self, record: Mapping[str, Any]) -> None:
        """Write one record and return only when it is on disk."""
        if self._file is None:
            self._file = self._open()
        self._write(self._file, record)

    def close(self) -> None:
        """Close the file, if any record opened it."""
        if self._file is not None:
            self._file.close()

    def _open(self) -> TextIO:
        self._folder.mkdir(parents=True, exist_ok=True)
        started = datetime.now(UTC)
        self.path = self._folder / f"{started:%Y%m%dT%H%M%S}-{os.getpid()}.jsonl"
        file = self.path.open("x", encoding="utf-8")
        self._write(file, {"schema": SCHEMA, "started": started.isoformat(), **self._header})
        return file

    @staticmethod
    def _write(file: TextIO, record: Mapping[str, Any]) -> None:
        file.write(json.dumps(record) + "\n")
        file.flush()
        os.fsync(file.fileno())
