"""Facts about this machine that one benchmark finds out, so that later ones need not.

A fact is a file, named after its kind, the machine, and all conditions under which it holds. Under other conditions,
such as another driver, version or precision, it is unknown, and is found out again.
"""

import contextlib
import dataclasses
import hashlib
import json
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from fwbench.record import files
from fwbench.record.machine import Machine
from fwbench.record.measurement import Metric

# Seconds after which a fact is found out again: firmware and settings of a machine change.
_VALID = 30 * 86400.0

# Seconds from which on a probe of the arithmetic is stored as a fact: XLA needs four on a GPU. Shorter probes are made
# each time.
WORTH = 1.0

# The suffix of a fact's name for the folder of its files.
_FILES = ".files"

_T = TypeVar("_T")


class Kind(NamedTuple):
    """A kind of fact.

    Attributes:
        quiet: how long it holds if nothing disturbed its benchmark: for 30 days, or in the same run.
        disturbed: how long it holds if something did; None: it is not stored.
    """

    name: str
    quiet: Literal["days", "run"]
    disturbed: Literal["days", "run"] | None


# The arithmetic that the probe found: no other load changes it.
ARITHMETIC = Kind("arithmetic", "days", "days")
# Idle power changes with the GPU's temperature: by 3 % within an H100's run.
RESTING = Kind("resting", "run", None)
# A lane's own ceilings, and the highest `compute_ceiling` of a precision in this run.
CEILINGS = Kind("ceilings", "days", "run")
HIGHEST = Kind("highest", "run", "run")
# The compile times of a workload; the compiled files lie in a folder beside the fact. Other load does not spoil it: the
# program is the same, and the source of the times names the benchmark that measured them.
COMPILED = Kind("compiled", "days", "days")
# Known if an undisturbed record of this run has a lane's ceilings.
TOLD = Kind("told", "run", None)


def asked(folder: Path, run: str, machine: Machine) -> dict[str, Any]:
    """The message from which a worker makes `Facts`, for a run with a name of its own; the folder need not exist."""
    same = [machine.device, machine.accelerator, machine.driver, machine.power_limit, machine.cpu, machine.threads]
    return {"folder": str(folder), "run": run, "machine": same}


class Facts:
    """The facts that a benchmark, named by its id, may take over, and those that it finds out.

    Without a message (`asked`) nothing is known and nothing is stored.
    """

    def __init__(self, message: Mapping[str, Any] | None = None, benchmark: str = "") -> None:
        self._message = message or {}
        self._benchmark = benchmark
        self._found: list[tuple[Path, Kind, Any]] = []

    @property
    def shared(self) -> bool:
        """True if facts are shared with other benchmarks."""
        return bool(self._message)

    def known(self, kind: Kind, conditions: Mapping[str, Any], decode: Callable[[Any, str], _T]) -> _T | None:
        """A fact; None if it is unknown or its file is damaged.

        `decode` makes the fact of its content and of a phrase that says where and when it was found.
        """
        if not self._message:
            return None
        path = self._path(kind, conditions)
        try:
            if time.time() - path.stat().st_mtime > _VALID:
                return None
            stored = json.loads(files.read(path))
            if stored["run"] not in (None, self._message["run"]):
                return None
            return decode(stored["content"], f"in {stored['benchmark']} on {stored['on']}")
        except (OSError, ValueError, TypeError, LookupError, AttributeError):
            return None

    def note(self, kind: Kind, conditions: Mapping[str, Any], content: Any) -> None:
        """Note a fact, as JSON primitives; `store` stores it."""
        if self._message:
            self._found.append((self._path(kind, conditions), kind, content))

    def store(self, *, quiet: bool) -> None:
        """Store the facts noted, for as long as they hold; `quiet`: nothing disturbed the benchmark."""
        on = time.strftime("%Y-%m-%d", time.gmtime())
        for path, kind, content in self._found:
            if not (holds := kind.quiet if quiet else kind.disturbed):
                continue
            run = self._message["run"] if holds == "run" else None
            stored = {"run": run, "benchmark": self._benchmark, "on": on, "content": content}
            # No benchmark depends on a fact being stored.
            with contextlib.suppress(OSError):
                path.parent.mkdir(parents=True, exist_ok=True)
                files.write(path, json.dumps(stored))

    def folder(self, kind: Kind, conditions: Mapping[str, Any]) -> Path:
        """The folder of the files that belong to a fact, if facts are `shared` with other benchmarks."""
        return self._path(kind, conditions).with_suffix(_FILES)

    def outdated_folders(self) -> list[Path]:
        """Folders of files whose facts have expired or are gone."""
        folders = Path(self._message["folder"]).glob(f"*{_FILES}") if self._message else ()
        facts = ((folder, folder.with_suffix("")) for folder in folders)
        return [each for each, fact in facts if not fact.exists() or time.time() - fact.stat().st_mtime > _VALID]

    def _path(self, kind: Kind, conditions: Mapping[str, Any]) -> Path:
        key = json.dumps([kind.name, self._message["machine"], conditions], sort_keys=True)
        return Path(self._message["folder"], hashlib.sha256(key.encode()).hexdigest()[:16])


def provide(folder: Path, caches: Path) -> None:
    """Copy all files kept with facts in `folder` to `caches`, in which processes that take turns look for them."""
    for kept in folder.glob(f"*{_FILES}"):
        with contextlib.suppress(OSError, shutil.Error):
            shutil.copytree(kept, caches, dirs_exist_ok=True)


def content(metrics: Mapping[str, Metric]) -> dict[str, Any]:
    """Metrics as a fact's content."""
    return {name: metric.to_json(name) for name, metric in metrics.items()}


def metrics(content: Mapping[str, Any], found: str) -> dict[str, Metric]:
    """Metrics of a fact's content; the source of each says where it was found. One without a number: a TypeError."""
    known = {name: Metric.from_json(metric) for name, metric in content.items()}
    if not all(isinstance(of.value, int | float) for of in known.values()):
        raise TypeError("a metric has no number")
    return {name: dataclasses.replace(of, source=f"{of.source}, {found}") for name, of in known.items()}
